"""The progress of a rank in its pass over games and thinking rows, with the counts so far.

In: the options, the epoch, the rank and the worker of this process. Out: see `spanloom.training.runs.passes`.
Besides `shard`, the place of a shard has:

    games     the `epochs.Place` after the last game; None before the first
    step      the number of samples returned; only if games and thinking rows are mixed
    thinking  the place in the thinking rows; only if they are mixed with games
    counts    the counts of the pass so far; only in saved states
"""

from collections.abc import Mapping
from typing import Any

from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.reading.epochs import Counts
from spanloom.records.scalars import is_integer
from spanloom.training.runs import passes
from spanloom.training.runs.passes import Begin, ShardPlace


class Progress(passes.Progress):
    """`passes.Progress` with the `counts` of the last pass so far. Raises ChessError for an invalid rank or epoch."""

    def __init__(self, options: Mapping[str, Any], *, epoch: int, rank: int, world_size: int) -> None:
        _check_epoch(epoch)
        require(is_integer(world_size) and world_size >= 1, f"world_size is {world_size!r}: give 1 or more")
        require(is_integer(rank) and 0 <= rank < world_size, f"there is no rank {rank!r} of {world_size}")
        super().__init__(options, epoch=epoch, rank=rank, world_size=world_size)
        self.counts = Counts()

    def set_epoch(self, epoch: int) -> None:
        _check_epoch(epoch)
        super().set_epoch(epoch)

    def begin_pass(self, worker: int, workers: int) -> Begin:
        """Begins a pass. The counts continue from the loaded state, or start at 0."""
        begin = super().begin_pass(worker, workers)
        self.counts = Counts.from_dict(begin.place["counts"]) if begin.place else Counts()
        return begin

    def here(self) -> ShardPlace | None:
        return None if self.place is None else {**self.place, "counts": self.counts.as_dict()}


def require(holds: bool, otherwise: str) -> None:
    """Raises ChessError (a ValueError) with the message `otherwise` unless the condition holds."""
    if not holds:
        raise ChessError(otherwise)


def _check_epoch(epoch: int) -> None:
    require(is_integer(epoch) and epoch >= 0, f"the epoch is {epoch!r}: give 0 or more")
