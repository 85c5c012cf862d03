"""Documents by their source row, in families that make one document from each row.

In: a dataset whose row tables have a column `row`. Out: the place of each row's document, and the columns of its row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import WholeCheck
from spanloom.dataset.root.layout import array_prefix, rows_file
from spanloom.dataset.rows.table import row_batches
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.megatron.readers import OpenIndexed

_ROW_NUMBERS = pa.schema([pa.field("row", pa.int64(), nullable=False)])


@dataclass(frozen=True, kw_only=True)
class PlacedDocument:
    """A document and its row of the row table. `sequence`: its position in the file, not the number in its row.

    `open_with`: the reader of arrays.
    """

    split: str
    shard: int
    sequence: int
    row: Mapping[str, Any]
    open_with: OpenIndexed

    def finding(self, check: str, message: str, offset: int | None = None) -> Finding:
        return Finding(
            check=check, message=message, split=self.split, shard=self.shard, sequence=self.sequence, offset=offset
        )

    def read(self, root: Path, name: str) -> npt.NDArray[Any]:
        """One array of the document, [T]."""
        array: npt.NDArray[Any] = self.open_with(array_prefix(root, self.split, self.shard, name)).get(self.sequence)
        return array


def placed_rows(report: Report, whole: WholeCheck) -> npt.NDArray[np.int64] | None:
    """The column `row` of all documents, int64 [N], sorted; None, with a finding, if not all could be read."""
    if not all(whole.is_readable(shard) for shard in whole.content.shards):
        return None
    numbers = [np.empty(0, dtype=np.int64)]
    for split, shard in sorted(whole.readable):
        try:
            batches = row_batches(rows_file(whole.root, split, shard), _ROW_NUMBERS)
            numbers += [batch.column("row").to_numpy() for batch in batches]
        except ArtifactError as unreadable:
            report.wrong("rows", unreadable.what, split=split, shard=shard)
            return None
    rows = np.sort(np.concatenate(numbers))
    report.ran("rows placed", rows.size)
    return rows


def placed_documents(whole: WholeCheck, columns: pa.Schema) -> dict[int, PlacedDocument]:
    """`row` → its document, for the readable shards. Raises ArtifactError if a row table cannot be read."""
    documents: dict[int, PlacedDocument] = {}
    for split, shard in sorted(whole.readable):
        batches = row_batches(rows_file(whole.root, split, shard), columns)
        rows = (row for batch in batches for row in batch.to_pylist())
        for sequence, row in enumerate(rows):
            documents[int(row["row"])] = PlacedDocument(
                split=split, shard=shard, sequence=sequence, row=row, open_with=whole.open_with
            )
    return documents


def drawn_rows(rows: int, deep: int) -> set[int]:
    """The numbers of `deep` rows, evenly spaced over a source of `rows` rows; all rows if there are fewer."""
    return set(np.linspace(0, rows - 1, min(deep, rows), dtype=np.int64).tolist()) if rows and deep else set()


def first_difference(values: Sequence[int], wanted: Sequence[int]) -> int:
    """The first index at which two sequences differ."""
    pairs = enumerate(zip(values, wanted, strict=False))
    return next((at for at, (value, other) in pairs if value != other), min(len(values), len(wanted)))
