"""Documents of a dataset as arrays: the output of readers, the input of an audit.

In: nothing. Out: `Documents`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int32]


def counts(mask: npt.NDArray[np.bool_]) -> Counts:
    """How many are true before each place, int32 [T + 1]."""
    counted = np.empty(mask.size + 1, np.int32)
    counted[0] = 0
    np.cumsum(mask, out=counted[1:], dtype=np.int32)
    return counted


@dataclass(frozen=True, kw_only=True)
class Documents:
    """N concatenated documents, token-aligned.

    tokens   int32 [T]
    trained  bool [T]
    differs  bool [T]   a trained label that differs from the token; None if the container has no labels
    lengths  int64 [N]  tokens of each document, all ≥ 1, sum = T
    rows     int64 [N]  the row of each document in the file, from 0
    parts    int64 [N]  its number within that row, from 0
    file     their path, as shown
    """

    tokens: npt.NDArray[np.int32]
    trained: Bools
    lengths: Ints
    rows: Ints
    parts: Ints
    file: str
    differs: Bools | None = None

    def __len__(self) -> int:
        return self.lengths.size

    @property
    def ends(self) -> Ints:
        """The end of each document, int64 [N]."""
        return np.cumsum(self.lengths)

    def place(self, document: int) -> str:
        """The name of a document in reports: `train.parquet, row 17, part 2`. Rows and parts count from 0."""
        part = int(self.parts[document])
        return f"{self.file}, row {int(self.rows[document])}" + (f", part {part}" if part else "")
