"""The games of a shard in an epoch, in order, and how to resume in the middle of an epoch.

In: the names of the files, a function that reads one, the shard and the number of shards T, the epoch's draws. Out:
tables and the numbers of their games, each with the place after it.

With at least as many files as shards, file i of the epoch's order belongs to shard i mod T. With fewer files, every
shard reads all files, and game j of the epoch's order belongs to shard j mod T. So no shard is idle, and together the
shards give every usable game once.

    5 files, T = 4     shard 0: files 0, 4   shard 1: file 1   shard 2: file 2   shard 3: file 3
    3 files, T = 4     shard 0: games 0, 4, 8, …   shard 1: games 1, 5, 9, …   of all files, end to end

Bad games are not numbered, so a shard's games do not depend on them. Only one shard counts a left-out game of file i:
shard i mod T.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic

import numpy as np

from spanloom.families.chess.encoding.draws import keys_of, shuffled
from spanloom.families.chess.reading.source import reasons
from spanloom.families.chess.reading.tables import WITHOUT, GameTable, Reject, Table, ThinkingTable

REJECTS_KEPT = 100
"""The maximum number of left-out games that are listed; the others are only counted."""


@dataclass(kw_only=True)
class Counts:
    """The counts of a pass.

    `games`, `thinking`      samples returned
    `left_out`               games and thinking rows without a sample, by reason; `rejects`: the first of them
    `null_rows`              rows without a game_id, which are dropped
    `best_missing`, `best_unknown`   plies of usable games with a move but a missing or unknown best_move: they have no
                             move target
    """

    games: int = 0
    thinking: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)
    null_rows: int = 0
    best_missing: int = 0
    best_unknown: int = 0

    def take(self, table: GameTable | ThinkingTable) -> None:
        """Adds the left-out games or rows of a file, and its counts of incomplete rows."""
        without = {name: getattr(table, name, 0) for name in WITHOUT}
        self.include(Counts(left_out=Counter(reasons(table.rejects)), rejects=list(table.rejects), **without))

    def include(self, other: "Counts") -> None:
        """Adds the counts of another shard or of a file."""
        self.games += other.games
        self.thinking += other.thinking
        self.left_out += other.left_out
        self.rejects += other.rejects[: max(0, REJECTS_KEPT - len(self.rejects))]
        self.null_rows += other.null_rows
        self.best_missing += other.best_missing
        self.best_unknown += other.best_unknown

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON values; `from_dict` is the inverse."""
        return {**vars(self), "left_out": dict(self.left_out), "rejects": [vars(reject) for reject in self.rejects]}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Counts":
        rejects = [Reject(**reject) for reject in value["rejects"]]
        return cls(**{**value, "left_out": Counter(value["left_out"]), "rejects": rejects})


@dataclass(frozen=True, kw_only=True)
class Place:
    """A shard's place in an epoch: `file`, in the order of its own files; `before`, the games in the files before it
    (used only if all shards read all files); `given`, the shard's games already returned from this file."""

    file: int = 0
    before: int = 0
    given: int = 0


class Files(Generic[Table]):
    """The files of one kind. The last table is cached: with little data the same file is requested again and again."""

    def __init__(self, names: Sequence[str], read: Callable[[int], Table]) -> None:
        self.names = list(names)
        self.keys = keys_of("", self.names)
        self._read = read
        self._last: tuple[int, Table] | None = None

    @property
    def fingerprint(self) -> str:
        """The number of files and a hash of their names: a place in an epoch is valid only for the same files."""
        return f"{len(self.names)} files ({blake2b(self.keys.tobytes(), digest_size=8).hexdigest()})"

    def table(self, file: int) -> Table:
        if self._last is None or self._last[0] != file:
            self._last = None  # frees the old table before reading the next
            self._last = (file, self._read(file))
        return self._last[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_last": None}  # the cached table is not sent to other processes


def dealt(
    files: Files[Table],
    *,
    shard: int,
    shards: int,
    order_of: bytes,
    shuffle_files: bool,
    shuffle_games: bool,
    begin: Place | None = None,
    counts: Counts | None = None,
) -> Iterator[tuple[Table, int, Place]]:
    """Yields the shard's games of an epoch: the table, the game's number in it, and the place after it.

    `order_of`: the input of the epoch's draws, from `pass_of`. Each file that starts at or after `begin` adds its
    left-out games to `counts`.
    """
    begin = begin or Place()
    order = shuffled(files.keys, order_of) if shuffle_files else np.arange(len(files.names))
    whole = len(files.names) >= shards
    mine = order[shard::shards] if whole else order
    before = begin.before
    for at in range(begin.file, len(mine)):
        table = files.table(int(mine[at]))
        drawn = begin.given if at == begin.file else 0
        if counts is not None and not drawn and (whole or at % shards == shard):
            counts.take(table)
        games = shuffled(table.keys, order_of) if shuffle_games else np.arange(len(table))
        if not whole:
            games = games[(shard - before) % shards :: shards]
        for game in games[drawn:].tolist():
            drawn += 1
            yield table, game, Place(file=at, before=before, given=drawn)
        before += len(table)
