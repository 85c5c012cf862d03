"""How many rows repeat an earlier id: what `split.repeated_rows` must say.

In: the digests of all ids, the row tables. Out: the number. Equal digests make candidates, the ids themselves decide.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import Digests
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.validate.disk_documents import digests_of
from spanloom.split import among

CANDIDATES = 1 << 20
"""Digests looked at together, so that a source full of copies does not fill the memory."""


def firsts_of_rows(rows: npt.NDArray[np.int64], before: int = -1) -> npt.NDArray[np.bool_]:
    """Which documents are the first of their source row. `rows`: int64 [N], that of each; `before`: of the last one
    before these. Returns bool [N]."""
    firsts: npt.NDArray[np.bool_] = np.diff(rows, prepend=before) != 0
    return firsts


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
