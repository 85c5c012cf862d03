"""Ids that two documents have: are they in one split, and how many rows repeat an id?

In: the digests of all ids, the row tables. Out: findings; the number that `split.repeated_rows` must be. Equal digests
make candidates. Only where there are any are the row tables read again.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import WholeCheck
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.validate.disk_documents import digests_of
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.split import VALID, among


def firsts_of_rows(rows: npt.NDArray[np.int64], before: int = -1) -> npt.NDArray[np.bool_]:
    """Which documents are the first of their source row. `rows`: int64 [N], that of each; `before`: of the last one
    before these. Returns bool [N]."""
    firsts: npt.NDArray[np.bool_] = np.diff(rows, prepend=before) != 0
    return firsts


def check_disjoint(report: Report, whole: WholeCheck, digests: DigestRuns, id_column: str, noun: str) -> None:
    """Every document of train whose id a document of valid has too. `noun`: what the id is of."""
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
    """Number of the first document, and digests, uint64 [N], of each batch. What cannot be read is in the report."""
    first = 0
    try:
        wanted = pa.schema([pa.field(id_column, pa.string(), nullable=False)])
        for batch in row_batches(rows_file(whole.root, *place), wanted):
            whole.run.go_on()
            yield first, digests_of(batch.column(id_column))
            first += batch.num_rows
    except ArtifactError:
        return


def repeated_rows(digests: DigestRuns, tables: Sequence[Path], id_column: str) -> int:
    """Source rows whose id another row has too, but for one of them. `digests`: of the ids of all rows; one that is
    there twice without need costs time alone.

    Raises ArtifactError where a table cannot be read.
    """
    columns = [pa.field("row", pa.int64(), nullable=False), pa.field(id_column, pa.string(), nullable=False)]
    repeated = 0
    for some in digests.repeated():
        seen: set[bytes] = set()
        for table in tables:
            before = -1
            for batch in row_batches(table, pa.schema(columns)):
                rows = batch.column("row").to_numpy()
                chosen = among(digests_of(batch.column(id_column)), some) & firsts_of_rows(rows, before)
                before = int(rows[-1]) if rows.size else before
                ids = batch.column(id_column).filter(pa.array(chosen))
                for name in ids.cast(pa.binary()).to_pylist():
                    fingerprint = blake2b(name or b"", digest_size=16).digest()
                    repeated += fingerprint in seen
                    seen.add(fingerprint)
    return repeated
