"""Documents of a dataset as arrays: what readers give, and what is audited.

In: nothing; a carrier. Out: `Documents`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Documents:
    """N documents laid end to end, token-aligned.

    tokens   int32 [T]
    trained  bool [T]
    differs  bool [T]   a label that is trained and is another token; None where the container has no labels
    lengths  int64 [N]  tokens of each document, all ≥ 1, sum = T
    rows     int64 [N]  the row of the file that a document is in, from 0
    parts    int64 [N]  its number in that row, from 0
    file     where they are: a path, as it is shown
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
        """Where each document ends, int64 [N]."""
        return np.cumsum(self.lengths)

    def place(self, document: int) -> str:
        """A document as reports name it: `train.parquet, row 17, part 2`. Rows and parts count from 0."""
        part = int(self.parts[document])
        return f"{self.file}, row {int(self.rows[document])}" + (f", part {part}" if part else "")
