"""Random numbers that depend on a game's key, not on the order of games.

In: the game's key (its file and its id), the seed, the epoch. Out: numbers in [0, 1), and the order of an epoch.

Every draw is a hash of its purpose and key. So a game gives the same sample in any worker and next to any other games,
and no generator state is shared. The hash is SHAKE-128: its output has any length, and is the same on every platform
and in every version of Python and NumPy.
"""

from collections.abc import Iterable
from hashlib import blake2b, shake_128

import numpy as np
import numpy.typing as npt

KEY_BYTES = 16

Keys = npt.NDArray[np.uint8]
"""uint8 [N, 16]: the keys of N games or rows."""


def key_of(file: str, item: str) -> bytes:
    """The key of a game or row: 16 bytes. Args: the file's name; the game's id, or the row's `thinking_id`."""
    return blake2b(f"{file}\0{item}".encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def keys_of(file: str, items: Iterable[str]) -> Keys:
    """`key_of` for each item: uint8 [N, 16]."""
    joined = b"".join(key_of(file, item) for item in items)
    return np.frombuffer(joined, np.uint8).reshape(-1, KEY_BYTES)


def pass_of(*parts: int | str) -> bytes:
    """The common input of all draws of one pass, as bytes: their purpose, the seed and the epoch."""
    return "\0".join(map(str, parts)).encode()


def uniforms(key: bytes, of_pass: bytes, count: int) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) that depend only on the key and the pass: float64 [count], multiples of 2**-53."""
    bits = np.frombuffer(shake_128(key + of_pass).digest(8 * count), "<u8") >> np.uint64(11)
    return np.asarray(bits * 2.0**-53, np.float64)


def shuffled(keys: Keys, of_pass: bytes) -> npt.NDArray[np.intp]:
    """A random order of N items, intp [N]: they are sorted by a hash of their key and the pass.

    The relative order of two items does not depend on the other items.
    """
    tags = np.ascontiguousarray(keys[:, :8]).view("<u8")[:, 0]
    mixed = tags ^ np.frombuffer(shake_128(of_pass).digest(8), "<u8")[0]
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64's finalizer
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(multiplier)
    return np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable")
