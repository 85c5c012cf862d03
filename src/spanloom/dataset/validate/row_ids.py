"""The rows of the source in the dataset, and how many repeat an id: what `split.repeated_rows` must say.

In: the digests of all ids, the row tables. Out: findings; the number. Equal digests make candidates, the ids
themselves decide.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import Digests, WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.places import check_row_places
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.validate.disk_documents import digests_of
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.split import among

CANDIDATES = 1 << 20
"""Digests looked at together, so that a source full of copies does not fill the memory."""


def firsts_of_rows(rows: npt.NDArray[np.int64], before: int = -1) -> npt.NDArray[np.bool_]:
    """Which documents are the first of their source row. `rows`: int64 [N], that of each; `before`: of the last one
    before these. Returns bool [N]."""
    firsts: npt.NDArray[np.bool_] = np.diff(rows, prepend=before) != 0
    return firsts


def firsts_in_turn() -> Callable[[pa.Table | pa.RecordBatch], npt.NDArray[np.bool_]]:
    """`firsts_of_rows` for batches of a row table that are given one after the other."""
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
    digests: Digests,
    *,
    id_column: str,
    split_column: str,
    several: bool,
    earlier: str,
    also: Callable[[ShardEntry, Sequence[Path]], Iterable[Finding]] | None = None,
) -> None:
    """Every row that was read is in one split or was set aside; as many ids come again as the manifest says.

    `id_column`: of the source; `split_column`: of the row table; `several`: a row may be several documents; `earlier`:
    how a row with the id of another is called; `also`: what a shard's row tables must hold besides.
    """

    def check_shard(own: Report, shard: ShardEntry) -> None:
        own.ran("rows placed", shard.rows_read)
        if not whole.is_readable(shard):
            return
        splits = whole.readable_splits(shard)
        try:
            own.add(check_row_places(whole.root, shard, splits, whole.run.go_on, id_column=id_column, several=several))
            if also is not None:
                own.add(also(shard, [rows_file(whole.root, split, shard.shard) for split in splits]))
        except ArtifactError as unreadable:
            own.wrong("rows", unreadable.what, shard=shard.shard)

    whole.run.each(report, whole.content.shards, check_shard)
    if not all(whole.is_readable(shard) for shard in whole.content.shards):
        return
    tables = [rows_file(whole.root, split, number) for split, number in sorted(whole.readable)]
    try:
        repeated = repeated_rows(digests, tables, split_column)
    except ArtifactError as unreadable:
        report.wrong("rows", unreadable.what)
        return
    assert whole.content.split is not None, "the schema demands it of these families"
    if repeated != (stated := whole.content.split.repeated_rows):
        report.wrong("manifest", f"split.repeated_rows is {stated}, {repeated} rows have {earlier}")


def repeated_rows(digests: Digests, tables: Sequence[Path], id_column: str) -> int:
    """Source rows whose id another row has too, but for one of them. `digests`: uint64, sorted, of the ids of all rows;
    one that is there twice without need costs time alone.

    Raises ArtifactError where a table cannot be read.
    """
    candidates = np.unique(digests[1:][digests[1:] == digests[:-1]])
    columns = [pa.field("row", pa.int64(), nullable=False), pa.field(id_column, pa.string(), nullable=False)]
    repeated = 0
    for first in range(0, candidates.size, CANDIDATES):
        some = candidates[first : first + CANDIDATES]
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
