"""Draws samples: a few of each source to look at, or many by weight to train on.

In: sources or weights, a seed. Out: positions.

Drawing by weight is systematic sampling: all weights are laid end to end on a line, and `draws` points at equal
distances select samples, the first point at a random offset. A sample of weight w is drawn ⌊draws · w / sum⌋ times or
once more, on average exactly draws · w / sum times. The average holds for every subtype too.

    weights  1.0 1.0 2.0    draws 2    line |--a--|--b--|----c----|    points every 2.0, at 0.6 and 2.6: a, c
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.families.toolcalls.format.findings import ToolCallError

Positions = npt.NDArray[np.int64]


def of_each_source(sources: Sequence[str], count: int, seed: int) -> dict[str, list[int]]:
    """Draws `count` samples of each source, or all. Returns source → ascending positions, sorted by source."""
    by_source: dict[str, list[int]] = {}
    for position, source in enumerate(sources):
        by_source.setdefault(source, []).append(position)
    return {
        # Each source has its own generator: adding a source does not change the draws of the others.
        source: sorted(random.Random(f"{seed}:{source}").sample(positions, min(count, len(positions))))
        for source, positions in sorted(by_source.items())
    }


def drawn_by_weight(weights: Sequence[float] | npt.NDArray[Any], draws: int, *, seed: int, epoch: int = 0) -> Positions:
    """Draws positions of `draws` samples, int64 [draws], in a random order that depends only on seed and epoch.

    Args: weights float [N], ≥ 0. Raises ToolCallError if one is negative or not finite, all are 0, or an option < 0.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or not values.sum() > 0:
        raise ToolCallError("weights must be numbers of 0 or more, and not all 0", remedy="fix training.sample_weight")
    if draws < 0 or seed < 0 or epoch < 0:
        raise ToolCallError("draws, seed and epoch must be 0 or more", remedy="fix the options")
    generator = np.random.Generator(np.random.PCG64([seed, epoch]))
    # The line is shuffled each epoch. Otherwise neighbours of small weight could never be drawn together.
    order = generator.permutation(len(values))
    ends = np.cumsum(values[order])
    points = (generator.random() + np.arange(draws)) * (ends[-1] / max(draws, 1))
    indices = np.searchsorted(ends, points, side="right")
    # Rounding may put a point at the very end of the line; it counts for the last sample with a weight above 0.
    last = int(np.flatnonzero(values[order])[-1])
    positions: Positions = order[np.minimum(indices, last)]
    return generator.permutation(positions)


def shard(positions: Positions, *, rank: int = 0, ranks: int = 1, worker: int = 0, workers: int = 1) -> Positions:
    """The positions for one worker of one rank. Each goes to exactly one worker; shares differ by at most one."""
    if not (0 <= rank < ranks and 0 <= worker < workers):
        raise ToolCallError(
            f"rank {rank} of {ranks} or worker {worker} of {workers} is invalid", remedy="count both from 0"
        )
    return positions[rank + ranks * worker :: ranks * workers]


class WeightedSampler:
    """A sampler for torch's DataLoader (`sampler=`) that draws by weight, by default as many positions as samples.

    With the same seed and epoch, the ranks share one draw; each takes its part. Call `set_epoch` before each epoch.
    """

    def __init__(
        self,
        weights: Sequence[float] | npt.NDArray[Any],
        *,
        draws: int | None = None,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.weights = np.asarray(weights, dtype=np.float64)
        self.draws = len(self.weights) if draws is None else draws
        self.seed, self.rank, self.ranks, self.epoch = seed, rank, ranks, 0
        self._positions()  # raises now for invalid arguments

    @classmethod
    def of(cls, dataset: Any, **options: Any) -> "WeightedSampler":
        """Builds a sampler for a `spanloom.training.pytorch.DocumentDataset`. `options`: those of the class.

        Raises DatasetError if the dataset also returns weights for the loss: samples would be weighted twice.
        """
        from spanloom.training.weights import check_weighted_once  # torch

        check_weighted_once(loss=dataset.weighted, sampler=True)
        return cls(dataset.weights, **options)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def _positions(self) -> Positions:
        drawn = drawn_by_weight(self.weights, self.draws, seed=self.seed, epoch=self.epoch)
        return shard(drawn, rank=self.rank, ranks=self.ranks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions().tolist())

    def __len__(self) -> int:
        return len(range(self.rank, self.draws, self.ranks))
