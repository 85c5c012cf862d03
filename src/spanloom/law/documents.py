"""Documents of a dataset as arrays: the output of readers, the input of an audit.

In: nothing. Out: `Documents`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Counts:
    """How many of the flags bool [T] are true before places: `counts[places]`, int64 of places from 0 to T.

    Keeps a bit for each flag and a sum for each 64 of them. Sums for all places take seven times as long to make.
    """

    def __init__(self, flags: Bools) -> None:
        self._words = np.zeros(flags.size // 64 + 1, "<u8")
        packed = np.packbits(flags, bitorder="little")
        self._words.view(np.uint8)[: packed.size] = packed
        self._before = np.zeros(self._words.size, np.int64)
        np.cumsum(np.bitwise_count(self._words[:-1]), out=self._before[1:])

    def __getitem__(self, places: Ints) -> Ints:
        words, bits = places >> 6, (places & 63).astype(np.uint64)
        below = self._words[words] & ((np.uint64(1) << bits) - np.uint64(1))
        counted: Ints = self._before[words] + np.bitwise_count(below)
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
