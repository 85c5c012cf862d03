"""Checks source rows in the dataset: each row is there once, each id is in one split; counts rows that repeat an id.

In: the digests of all ids, the row tables. Out: findings; the expected `split.repeated_rows`. Equal digests are
candidates for equal ids. Only if there are candidates, the row tables are read again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.places import check_row_places, rows_of_file
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.validate.disk_documents import digests_of
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.split import VALID, among


def firsts_of_rows(rows: npt.NDArray[np.int64], before: int = -1) -> npt.NDArray[np.bool_]:
    """Which documents are the first of their source row, bool [N]. `rows`: int64 [N], the source row of each;
    `before`: the source row of the document before them."""
    firsts: npt.NDArray[np.bool_] = np.diff(rows, prepend=before) != 0
    return firsts


def firsts_in_turn() -> Callable[[pa.Table | pa.RecordBatch], npt.NDArray[np.bool_]]:
    """`firsts_of_rows` for consecutive batches of a row table."""
    before = -1

    def firsts(batch: pa.Table | pa.RecordBatch) -> npt.NDArray[np.bool_]:
        nonlocal before
        rows = batch.column("row").to_numpy()
        chosen = firsts_of_rows(rows, before)
        before = int(rows[-1]) if rows.size else before
        return chosen

    return firsts


def check_rows_and_ids(
    report: Report,
    whole: WholeCheck,
    digests: DigestRuns,
    *,
    id_column: str,
    split_column: str,
    noun: str,
    several: bool = False,
    of_file: int | None = None,
    also: Callable[[ShardEntry, Sequence[Path]], Iterable[Finding]] | None = None,
) -> None:
    """Checks that every source row is in one split or rejected, and that `split.repeated_rows` is the number of rows
    that repeat an id.

    `id_column`: of the source; `split_column`: of the row table, with the ids that the split rule uses; `noun`: what
    these ids name, in messages; `several`: a row may become several documents; `of_file`: the number of rows of a
    source that is one file, whose rejected rows a file may list; `also`: additional checks of a shard's row tables.
    """
    content = whole.content

    def check_shard(own: Report, shard: ShardEntry) -> None:
        own.ran("rows placed", shard.rows_read)
        if not whole.is_readable(shard):
            return
        splits = whole.readable_splits(shard)
        rows, unlisted = None, None
        if of_file is not None:
            rows = rows_of_file(content, shard, of_file)
            written = sum(counts.sequences for counts in shard.splits.values())
            unlisted = len(rows) - written if shard.rejects_file is None else None
        check = partial(check_row_places, id_column=id_column, several=several, rows=rows, unlisted=unlisted)
        try:
            own.add(check(whole.root, shard, splits))
            if also is not None:
                own.add(also(shard, [rows_file(whole.root, split, shard.shard) for split in splits]))
        except ArtifactError as unreadable:
            own.wrong("rows", unreadable.what, shard=shard.shard)

    whole.run.each(report, content.shards, check_shard)
    _check_disjoint(report, whole, digests, split_column, noun)
    if not all(whole.is_readable(shard) for shard in content.shards):
        return
    tables = [rows_file(whole.root, split, number) for split, number in sorted(whole.readable)]
    try:
        repeated = repeated_rows(digests, tables, split_column)
    except ArtifactError as unreadable:
        report.wrong("rows", unreadable.what)
        return
    assert content.split is not None, "the schema demands it of these families"
    if repeated != (stated := content.split.repeated_rows):
        report.wrong("manifest", f"split.repeated_rows is {stated}, {repeated} rows repeat an earlier id")


def _check_disjoint(report: Report, whole: WholeCheck, digests: DigestRuns, id_column: str, noun: str) -> None:
    """Reports every document of train whose id is also in valid. `noun`: what the id names, in the message."""
    of_valid, others = (
        [place for place in sorted(whole.readable) if (place[0] == VALID) is wanted] for wanted in (True, False)
    )
    for some in digests.repeated():
        held_out = [ids[among(ids, some)] for place in of_valid for _, ids in _ids(whole, place, id_column)]
        ordered = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *held_out]))
        for split, number in others if ordered.size else ():
            for first, ids in _ids(whole, (split, number), id_column):
                report.add(
                    Finding(
                        check="disjoint",
                        message=f"this {noun} is in valid too",
                        split=split,
                        shard=number,
                        sequence=first + at,
                    )
                    for at in np.flatnonzero(among(ids, ordered)).tolist()
                )


def _ids(whole: WholeCheck, place: tuple[str, int], id_column: str) -> Iterator[tuple[int, Digests]]:
    """The number of the first document, and the digests of ids, uint64 [N], of each batch. Stops at an unreadable
    table, which is already reported."""
    first = 0
    try:
        wanted = pa.schema([pa.field(id_column, pa.string(), nullable=False)])
        for batch in row_batches(rows_file(whole.root, *place), wanted):
            yield first, digests_of(batch.column(id_column))
            first += batch.num_rows
    except ArtifactError:
        return


def repeated_rows(digests: DigestRuns, tables: Sequence[Path], id_column: str) -> int:
    """The number of source rows that repeat the id of an earlier row. `digests`: of the ids of all rows; superfluous
    duplicates cost only time.

    Raises ArtifactError if a table cannot be read.
    """
    columns = [pa.field("row", pa.int64(), nullable=False), pa.field(id_column, pa.string(), nullable=False)]
    repeated = 0
    for some in digests.repeated():
        seen: set[bytes] = set()
        for table in tables:
            firsts = firsts_in_turn()
            for batch in row_batches(table, pa.schema(columns)):
                chosen = among(digests_of(batch.column(id_column)), some) & firsts(batch)
                ids = batch.column(id_column).filter(pa.array(chosen))
                for name in ids.cast(pa.binary()).to_pylist():
                    fingerprint = blake2b(name or b"", digest_size=16).digest()
                    repeated += fingerprint in seen
                    seen.add(fingerprint)
    return repeated
