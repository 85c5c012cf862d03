"""Documents of valid by a column of the row table, such as language or exercise.

In: a dataset, the name of a column. Out: for each value, this rank's documents as batches.

Documents are read one by one from their beginning, not concatenated as in training, so a document's loss does not
depend on its neighbours.
"""

from pathlib import Path

import pyarrow as pa
import torch.distributed as dist

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.table import row_batches
from spanloom.errors import DatasetError
from spanloom.split import VALID
from spanloom.training.batch import Batch
from spanloom.training.pytorch import DocumentDataset, collate
from spanloom.training.runs.trainlog import Record
from spanloom.training.shard import read_content

MISSING = "(none)"
"""The group of documents whose value is null."""


def documents_by(root: Path, column: str, *, documents: int, length: int) -> list[tuple[Record, list[Batch]]]:
    """The first `documents` documents of valid by their value of the column, in the order of values, each cut to
    `length` tokens: what a log says of each group (`by`, `value`, `documents` on all ranks), and this rank's batches.

    Raises DatasetError if a row table lacks the column, ArtifactError if one cannot be read.
    """
    values = values_of(read_content(root), root, column, documents=documents)
    dataset = DocumentDataset(root, VALID, max_length=length)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    groups = []
    for value in sorted(set(values)):
        numbers = [number for number, of_number in enumerate(values) if of_number == value]
        about: Record = {"by": column, "value": value, "documents": len(numbers)}
        groups.append((about, [collate([dataset[number]]) for number in numbers[rank::ranks]]))
    return groups


def values_of(content: Content, root: Path, column: str, *, documents: int) -> list[str]:
    """The column's value for each of the first `documents` documents of valid, in the order of `DocumentDataset`."""
    values: list[str] = []
    wanted = pa.schema([pa.field(column, pa.string())])
    for shard in content.shards:
        if VALID not in shard.splits or not shard.splits[VALID].sequences or len(values) >= documents:
            continue
        path = rows_file(root, VALID, shard.shard)
        for batch in row_batches(path, wanted):
            if column not in batch.schema.names:
                raise DatasetError(
                    f"the row table has no column {column}",
                    where=str(path),
                    remedy="name one of its text columns, such as language or exercise; docs/format.md lists them",
                )
            values += [MISSING if value is None else value for value in batch.column(0).to_pylist()]
    return values[:documents]
