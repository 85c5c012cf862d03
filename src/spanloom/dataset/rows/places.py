"""Where each source row of a shard went, in families that make documents from rows: into one split, or rejected.

In: the row tables of a shard, which have a column `row`, and its rejects file. Out: findings; and the dataset's rows
for one range of source rows after the other, so that memory does not grow with the number of rows or rejects.

    ROOT/rejects/shard_NN.jsonl   {"detail":…,"reason":…,"row":…,"shard":…,"ID":…}, canonical JSON, by row; ID is the
                                  source's name of its id column
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.root.layout import rejects_file, rows_file
from spanloom.dataset.rows.table import BATCH_ROWS, RowsReader
from spanloom.findings import Finding
from spanloom.provenance import canonical_json

REJECT_TYPES: dict[str, tuple[type, ...]] = {
    "shard": (int,),
    "row": (int,),
    "reason": (str,),
    "detail": (str,),
}
"""Required keys of a line in a rejects file, and their types; the id (a string, or null) is required, too."""

REFUSAL_TYPES: dict[str, tuple[type, ...]] = {"run": (int, type(None)), "remedy": (str, type(None))}
"""Optional keys of such a line, either both or none: the place of the refused message, and what to do."""


@dataclass(frozen=True, kw_only=True)
class RejectedRow:
    """A rejected row in a shard's rejects file, at line number `line`, counted from 1."""

    line: int
    row: int
    id: str | None
    reason: str
    detail: str


def rejected_rows(
    root: Path, shard: ShardEntry, id_column: str, fault: Callable[[Finding], object]
) -> Iterator[RejectedRow]:
    """The rejected rows in a shard's rejects file. Invalid lines go to `fault` as findings."""
    if shard.rejects_file is None:
        return
    path = rejects_file(root, shard.shard)
    name = path.relative_to(root).as_posix()

    def wrong(message: str, line: int | None = None) -> None:
        fault(Finding(check="rejects", message=message, shard=shard.shard, file=name, line=line))

    if not path.is_file():  # already reported
        return
    before = -1
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                reject = _parsed(line, id_column)
                if reject is None:
                    wrong("the line is not a rejected row, spelled as canonical JSON", number)
                    continue
                if reject["shard"] != shard.shard:
                    wrong(f"shard is {reject['shard']}", number)
                if not before < reject["row"] < shard.rows_read:
                    wrong(f"row {reject['row']} does not follow row {before}, or not below {shard.rows_read}", number)
                    continue
                before = reject["row"]
                yield RejectedRow(
                    line=number, row=before, id=reject[id_column], reason=reject["reason"], detail=reject["detail"]
                )
    except OSError as unreadable:
        wrong(f"the file cannot be read: {unreadable.strerror}")


def _parsed(line: bytes, id_column: str) -> dict[str, Any] | None:
    demanded = {**REJECT_TYPES, id_column: (str, type(None))}
    try:
        stored = orjson.loads(line)
    except ValueError:
        return None
    types = {**demanded, **REFUSAL_TYPES}
    if isinstance(stored, dict) and not stored.keys() & REFUSAL_TYPES.keys():
        types = demanded
    if (
        not isinstance(stored, dict)
        or stored.keys() != types.keys()
        or any(type(stored[name]) not in kinds for name, kinds in types.items())
        or canonical_json(stored) + b"\n" != line
    ):
        return None
    return stored


@dataclass(frozen=True, kw_only=True)
class PlacedRows:
    """The dataset's rows for a range of source rows: of each split its part of the row table, and the rejects."""

    tables: Mapping[str, pa.Table]
    rejected: Sequence[RejectedRow]

    @property
    def empty(self) -> bool:
        return not self.rejected and not any(table.num_rows for table in self.tables.values())


class RowPlaces:
    """The row tables and the rejects of a shard, read in parallel in the order of the source rows."""

    def __init__(
        self,
        root: Path,
        shard: ShardEntry,
        splits: Sequence[str],
        columns: Sequence[str],
        id_column: str,
        fault: Callable[[Finding], object],
    ) -> None:
        """`columns`: of the row tables, including `row`; `id_column`: of the rejects. Raises ArtifactError if a table
        cannot be read."""
        self._readers = {split: RowsReader(rows_file(root, split, shard.shard), columns) for split in splits}
        self._held = {split: reader.take(BATCH_ROWS) for split, reader in self._readers.items()}
        self._rejects = rejected_rows(root, shard, id_column, fault)
        self._next = next(self._rejects, None)

    def before(self, end: int) -> PlacedRows:
        """The source rows below `end` that were not returned yet."""
        rejected = []
        while self._next is not None and self._next.row < end:
            rejected.append(self._next)
            self._next = next(self._rejects, None)
        return PlacedRows(tables={split: self._take(split, end) for split in self._readers}, rejected=rejected)

    def rest(self) -> bool:
        """Whether any row or reject is left."""
        for split, reader in self._readers.items():
            if not self._held[split].num_rows:
                self._held[split] = reader.take(BATCH_ROWS)
        return self._next is not None or any(table.num_rows for table in self._held.values())

    def _take(self, split: str, end: int) -> pa.Table:
        """The rows of a split below `end`; in an unordered table, also those after a row that is not below it."""
        held = self._held[split]
        while not held.num_rows or row_numbers(held)[-1] < end:
            more = self._readers[split].take(BATCH_ROWS)
            if not more.num_rows:
                break
            held = pa.concat_tables([held, more])
        below = row_numbers(held) < end
        self._held[split] = held.filter(pa.array(~below))
        return held.filter(pa.array(below))


def row_numbers(table: pa.Table) -> npt.NDArray[np.int64]:
    """The column `row`, int64 [N]; -1 for null."""
    numbers: npt.NDArray[np.int64] = table.column("row").fill_null(-1).to_numpy()
    return numbers


def check_row_places(
    root: Path,
    shard: ShardEntry,
    splits: Sequence[str],
    go_on: Callable[[], object],
    *,
    id_column: str,
    several: bool = False,
) -> Iterator[Finding]:
    """Checks that each source row is either in one split or rejected, and exactly once; with `several`, a row may be in
    its split several times. Also checks the counts of the reasons for rejects.

    `id_column`: of the rejects. `go_on` is called once a batch. Raises ArtifactError if a row table cannot be read.
    """
    faults: list[Finding] = []
    places = RowPlaces(root, shard, splits, ["row"], id_column, faults.append)
    reasons: Counter[str] = Counter()

    def finding(row: int, message: str) -> Finding:
        return Finding(check="source", message=f"source row {row}: {message}", shard=shard.shard)

    first = 0
    while first < shard.rows_read:
        go_on()
        end = min(first + BATCH_ROWS, shard.rows_read)
        placed = places.before(end)
        if placed.empty and not places.rest():
            message = f"source rows {first} to {shard.rows_read - 1} are in neither split and were not rejected"
            yield Finding(check="source", message=message, shard=shard.shard)
            break
        count = end - first
        rejected = np.array([reject.row for reject in placed.rejected], dtype=np.int64)
        reasons.update(reject.reason for reject in placed.rejected)
        times = {split: _times(row_numbers(table), first, count) for split, table in placed.tables.items()}
        aside = _times(rejected, first, count)
        if several:
            times = {split: np.minimum(number, 1) for split, number in times.items()}
        written = sum(times.values(), np.zeros(count, dtype=np.int64))
        for at in np.flatnonzero(written + aside != 1).tolist():
            if aside[at] and written[at]:
                yield finding(first + at, "was rejected, yet is in the dataset")
            elif written[at]:
                how_often = "in both splits" if several else f"{written[at]} times"
                yield finding(first + at, f"is in the dataset {how_often}")
            else:
                yield finding(first + at, "is in neither split and was not rejected")
        first = end
    if places.rest():
        message = f"there are rows beyond the {shard.rows_read} that were read"
        yield Finding(check="source", message=message, shard=shard.shard)
    if not faults and dict(reasons) != shard.rejected:
        message = f"the rejects file holds {dict(reasons)}, the manifest says {shard.rejected}"
        yield Finding(check="rejects", message=message, shard=shard.shard)
    yield from faults


def _times(rows: npt.NDArray[np.int64], first: int, count: int) -> npt.NDArray[np.int64]:
    """The number of occurrences in `rows` of each of the `count` rows from `first` on, int64 [count]."""
    inside = rows[(rows >= first) & (rows < first + count)] - first
    return np.bincount(inside, minlength=count)
