"""The weight of each document, if the rows of a dataset have weights.

In: a dataset root. Out: an array, for a sampler or the weighted loss (`spanloom.training.weights`).
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.table import row_batches
from spanloom.errors import DatasetError

_WEIGHT = pa.schema([pa.field("weight", pa.float64())])


def document_weights(root: Path, split: str, shard: int) -> npt.NDArray[np.float64]:
    """The column `weight` of the rows of one shard, float64 [documents]. Raises DatasetError if it is missing."""
    path = rows_file(root, split, shard)
    parts = [np.empty(0)]
    for batch in row_batches(path, _WEIGHT):
        if "weight" not in batch.schema.names:
            raise DatasetError(
                "the documents of this dataset have no weights", where=str(path), remedy="train without weights"
            )
        parts.append(batch.column("weight").to_numpy())
    return np.concatenate(parts)
