"""A second reader of Megatron's IndexedDataset format, in numpy, for validation without Megatron.

In: a prefix. Out: an object with the attributes of Megatron's `IndexedDataset` that validation reads. Written from the
format alone, with its own tables. Of Spanloom it imports only the errors, not the writer of these files nor `reader`:
so a mistake of the writer is not repeated here. A test compares it with Megatron's own reader on files that Megatron's
own builder wrote.

    .idx   magic b"MMIDIDX\\0\\0" | u64 version 1 | u8 dtype | u64 S sequences | u64 D document indices
           S × i32 lengths | S × i64 byte offsets in .bin | D × i64 first sequence of each document, then S
           little-endian; modes of multimodal datasets may follow, they are not read here
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ArtifactError

_HEADER = np.dtype(
    [("magic", "S9"), ("version", "<u8"), ("dtype", "u1"), ("sequences", "<u8"), ("documents", "<u8")], align=False
)
_DTYPES = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float64,
    7: np.float32,
    8: np.uint16,
}
"""The codes of `megatron.core.datasets.indexed_dataset.DType`."""


@dataclass(frozen=True, kw_only=True)
class _Index:
    """`dtype`: the numpy type of `.bin`; `sequence_pointers`: int64 [S], bytes; `bin_buffer_mmap`: the mapped file."""

    dtype: Any
    sequence_pointers: npt.NDArray[np.int64]
    bin_buffer_mmap: Any


class _Bin:
    """The `.bin` file, read through a file handle: mapped pages would count as memory and grow with the dataset."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, dtype: Any, count: int, offset: int) -> npt.NDArray[Any]:
        """`count` items from byte `offset` on: [count]. Raises ArtifactError if the file ends before."""
        values = np.fromfile(self._path, dtype=dtype, count=count, offset=offset)
        if values.size != count:
            raise ArtifactError(f"the file ends {count - values.size} items too early", where=str(self._path))
        return values


class IndependentDataset:
    """One IndexedDataset. `sequence_lengths` int32 [S] in items, `document_indices` int64 [D], `index`, `bin_reader`.

    Raises ArtifactError for an index that is not of this format, or is smaller than its header requires.
    """

    def __init__(self, prefix: Path) -> None:
        path = prefix.with_name(prefix.name + ".idx")
        raw = np.memmap(path, dtype=np.uint8, mode="r")
        if raw.size < _HEADER.itemsize:
            raise ArtifactError("the index has no whole header", where=str(path))
        header = raw[: _HEADER.itemsize].view(_HEADER)[0]
        # numpy removes trailing zeros from an S9.
        if header["magic"] != b"MMIDIDX" or header["version"] != 1 or int(header["dtype"]) not in _DTYPES:
            raise ArtifactError("not an index of version 1 of the IndexedDataset format", where=str(path))
        sequences, documents = int(header["sequences"]), int(header["documents"])
        ends = np.cumsum([_HEADER.itemsize, 4 * sequences, 8 * sequences, 8 * documents])
        if raw.size < ends[-1]:
            raise ArtifactError(f"the index has {raw.size} bytes, its header requires {ends[-1]}", where=str(path))
        self.sequence_lengths: npt.NDArray[np.int32] = raw[ends[0] : ends[1]].view("<i4")
        pointers: npt.NDArray[np.int64] = raw[ends[1] : ends[2]].view("<i8")
        self.document_indices: npt.NDArray[np.int64] = raw[ends[2] : ends[3]].view("<i8")
        self.index = _Index(dtype=_DTYPES[int(header["dtype"])], sequence_pointers=pointers, bin_buffer_mmap=raw)
        self.bin_reader = _Bin(prefix.with_name(prefix.name + ".bin"))

    def __len__(self) -> int:
        return int(self.sequence_lengths.size)

    def get(self, sequence: int) -> npt.NDArray[Any]:
        """One sequence: [its length], in the dtype of the index. Raises IndexError for a missing one."""
        if not 0 <= sequence < len(self):
            raise IndexError(f"sequence {sequence} of {len(self)}")
        return self.bin_reader.read(
            self.index.dtype, int(self.sequence_lengths[sequence]), int(self.index.sequence_pointers[sequence])
        )

    def __getitem__(self, sequences: slice) -> list[npt.NDArray[Any]]:
        return [self.get(sequence) for sequence in range(*sequences.indices(len(self)))]
