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

from spanloom.dataset.manifest import Content, ShardEntry
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
    root: Path, shard: ShardEntry, id_column: str, fault: Callable[[Finding], object], rows: range | None = None
) -> Iterator[RejectedRow]:
    """The rejected rows in a shard's rejects file. Invalid lines go to `fault` as findings. `rows`: the numbers of the
    shard's rows, by default from 0 to `rows_read`."""
    if shard.rejects_file is None:
        return
    path = rejects_file(root, shard.shard)
    name = path.relative_to(root).as_posix()

    def wrong(message: str, line: int | None = None) -> None:
        fault(Finding(check="rejects", message=message, shard=shard.shard, file=name, line=line))

    if not path.is_file():  # already reported
        return
    before = -1
    rows = range(shard.rows_read) if rows is None else rows
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                reject = _parsed(line, id_column)
                if reject is None:
                    wrong("the line is not a rejected row, spelled as canonical JSON", number)
                    continue
                if reject["shard"] != shard.shard:
                    wrong(f"shard is {reject['shard']}", number)
                if reject["row"] <= before or reject["row"] not in rows:
                    wrong(f"row {reject['row']} does not follow row {before}, or is none of the shard's rows", number)
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
        rows: range | None = None,
    ) -> None:
        """`columns`: of the row tables, including `row`; `id_column`, `rows`: see `rejected_rows`. Raises ArtifactError
        if a table cannot be read."""
        self._readers = {split: RowsReader(rows_file(root, split, shard.shard), columns) for split in splits}
        self._held = {split: reader.take(BATCH_ROWS) for split, reader in self._readers.items()}
        self._rejects = rejected_rows(root, shard, id_column, fault, rows)
        self._next = next(self._rejects, None)

    def skip(self, first: int) -> None:
        """Passes over the source rows below `first`, some at a time."""
        for row in range(0, first, BATCH_ROWS):
            self.before(min(row + BATCH_ROWS, first))

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


def rows_of_file(content: Content, shard: ShardEntry, rows: int) -> range:
    """The rows of a shard, of a source that is one file with so many rows: row i is of shard i mod their number."""
    return range(shard.shard, rows, len(content.shards))


def row_numbers(table: pa.Table) -> npt.NDArray[np.int64]:
    """The column `row`, int64 [N]; -1 for null."""
    numbers: npt.NDArray[np.int64] = table.column("row").fill_null(-1).to_numpy()
    return numbers


def check_row_places(
    root: Path,
    shard: ShardEntry,
    splits: Sequence[str],
    *,
    id_column: str,
    several: bool = False,
    rows: range | None = None,
    unlisted: int | None = None,
) -> Iterator[Finding]:
    """Checks that each source row is either in one split or rejected, and exactly once; with `several`, a row may be in
    its split several times. Also checks the counts of the reasons for rejects.

    `id_column`: of the rejects. `rows`: the numbers of the shard's rows, by default from 0 to `rows_read`. `unlisted`:
    how many rows are in no split, where no file lists them. Raises ArtifactError if a
    row table cannot be read.
    """
    faults: list[Finding] = []
    rows = range(shard.rows_read) if rows is None else rows
    places = RowPlaces(root, shard, splits, ["row"], id_column, faults.append, rows)
    reasons: Counter[str] = Counter()
    absent = 0

    def finding(message: str, row: int | None = None) -> Finding:
        at = "" if row is None else f"source row {row}: "
        return Finding(check="source", message=f"{at}{message}", shard=shard.shard)

    for first in range(0, len(rows), BATCH_ROWS):
        batch = rows[first : first + BATCH_ROWS]
        placed = places.before(batch[-1] + 1)
        if placed.empty and not unlisted and not places.rest():
            yield finding(f"source rows {batch[0]} to {rows[-1]} are in neither split and were not rejected")
            break
        rejected = np.array([reject.row for reject in placed.rejected], dtype=np.int64)
        reasons.update(reject.reason for reject in placed.rejected)
        times = {split: _times(row_numbers(table), batch) for split, table in placed.tables.items()}
        aside = _times(rejected, batch)
        if several:
            times = {split: np.minimum(number, 1) for split, number in times.items()}
        written = sum(times.values(), np.zeros(len(batch), dtype=np.int64))
        for at in np.flatnonzero(written + aside != 1).tolist():
            if aside[at] and written[at]:
                yield finding("was rejected, yet is in the dataset", batch[at])
            elif written[at]:
                how_often = "in both splits" if several else f"{written[at]} times"
                yield finding(f"is in the dataset {how_often}", batch[at])
            elif unlisted is None:
                yield finding("is in neither split and was not rejected", batch[at])
            else:
                absent += 1
    if places.rest():
        yield finding(f"there are rows beyond the {len(rows)} that were read")
    if unlisted is not None and absent != unlisted:
        yield finding(f"{absent} rows are in neither split, the manifest says {unlisted}")
    if unlisted is None and not faults and dict(reasons) != shard.rejected:
        message = f"the rejects file holds {dict(reasons)}, the manifest says {shard.rejected}"
        yield Finding(check="rejects", message=message, shard=shard.shard)
    yield from faults


def _times(numbers: npt.NDArray[np.int64], rows: range) -> npt.NDArray[np.int64]:
    """The number of occurrences in `numbers` of each of N rows, int64 [N].

    Numbers 3 3 4 7 and the rows 1 3 5 7: 0 2 0 1.
    """
    places, offsets = np.divmod(numbers - rows.start, rows.step)
    return np.bincount(places[(offsets == 0) & (places >= 0) & (places < len(rows))], minlength=len(rows))
