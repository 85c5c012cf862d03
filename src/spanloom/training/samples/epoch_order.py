"""The order of samples in an epoch: a permutation that is computed per position, not stored.

In: the number of samples, a seed, an epoch, positions. Out: the sample at each position. Every process computes the
same order from any position: ranks, worker processes and resumed runs need no shared state. Pure arrays.

A sample's number is cut into two halves of equal bit width, which four rounds mix alternately (a Feistel network, so
the mapping is one to one). A result beyond the last sample is mixed again until it is a sample.
"""

import hashlib

import numpy as np
import numpy.typing as npt

_ROUNDS = 4


def samples_at(positions: npt.NDArray[np.int64], samples: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The sample at each position of an epoch. Positions: int64 [N], from 0 to `samples` - 1. Returns int64 [N]."""
    half = max(1, ((samples - 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    digest = hashlib.blake2b(f"{seed}\0{epoch}\0{samples}".encode(), digest_size=8 * _ROUNDS).digest()
    keys = np.frombuffer(digest, "<u8")
    mixed = positions.astype(np.uint64)
    moving = np.ones(mixed.size, dtype=np.bool_)
    while moving.any():
        left, right = mixed[moving] >> np.uint64(half), mixed[moving] & low
        for key in keys:
            left, right = right, left ^ (_mix(right ^ key) & low)
        mixed[moving] = left << np.uint64(half) | right
        moving = mixed >= samples
    return mixed.astype(np.int64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


class EpochOrder:
    """Samples by their number in a run of many epochs: number n is position n mod P of epoch n div P."""

    _BLOCK = 1024

    def __init__(self, samples: int, *, seed: int) -> None:
        self.samples, self.seed = samples, seed
        self._held: tuple[tuple[int, int], npt.NDArray[np.int64]] = ((-1, -1), np.empty(0, dtype=np.int64))

    def __getitem__(self, number: int) -> int:
        """The sample with this number. Neighbouring positions are computed together and cached."""
        epoch, position = divmod(number, self.samples)
        block, place = divmod(position, self._BLOCK)
        held, order = self._held  # read once: other threads replace it
        if held != (epoch, block):
            first = block * self._BLOCK
            positions = np.arange(first, min(first + self._BLOCK, self.samples), dtype=np.int64)
            order = samples_at(positions, self.samples, seed=self.seed, epoch=epoch)
            self._held = (epoch, block), order
        return int(order[place])
