"""Megatron Core's IndexedDataset on disk, written in bulk.

In: batches of flat arrays with their lengths. Out: one `.bin` and one `.idx` for each array, byte for byte what
`megatron.core.datasets.indexed_dataset.IndexedDatasetBuilder` writes (tests compare the two).

    .bin   the sequences in a row, in the dtype, nothing between them
    .idx   0   9 bytes  b"MMIDIDX\\0\\0"
           9   u64      version, 1
           17  u8       dtype code (uint8 1, int32 4, uint16 8)
           18  u64      N, the number of sequences
           26  u64      D + 1, the number of document indices
           34  i32 × N          length of each sequence, in items
               i64 × N          start of each sequence in .bin, in bytes
               i64 × (D + 1)    first sequence of each document, then N

Here every document is one sequence, so D = N and the document indices are 0 … N.
"""

import hashlib
import os
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ArtifactError
from spanloom.storage import discard, publish, temporary_beside
from spanloom.supervision import Lengths

INDEX_MAGIC = b"MMIDIDX\x00\x00"
DTYPE_CODES = {np.dtype(np.uint8): 1, np.dtype(np.int32): 4, np.dtype(np.uint16): 8}
_INDEX_CHUNK = 1 << 16
"""Sequences per block: memory beside the lengths does not grow with their number."""


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A published file: its size in bytes and its sha256."""

    path: Path
    bytes: int
    sha256: str


class _HashedFile:
    """A temporary file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, temporary_beside(path)
        self._stream = self.temporary.open("wb", buffering=0)
        self._digest = hashlib.sha256()
        self._bytes = 0

    def write(self, data: npt.NDArray[Any] | bytes) -> None:
        view = memoryview(data) if isinstance(data, bytes) else data.data.cast("B")
        self._digest.update(view)
        self._bytes += len(view)
        while view:  # an unbuffered write may write only a part
            view = view[self._stream.write(view) :]

    def close(self) -> WrittenFile:
        os.fsync(self._stream.fileno())
        self._stream.close()
        return WrittenFile(path=self.path, bytes=self._bytes, sha256=self._digest.hexdigest())

    def discard(self) -> None:
        self._stream.close()
        discard(self.temporary)


class ParallelWriter:
    """Writes IndexedDatasets that share their sequence lengths, such as tokens, loss mask and span.

    No file has its final name before `publish`; leaving the block without it leaves nothing behind.
    Holds 4 bytes per sequence. Without sequences it writes no files: Megatron cannot memory-map an empty one.
    """

    def __init__(self, prefixes: Mapping[str, tuple[Path, npt.DTypeLike]]) -> None:
        """`prefixes`: name → (path without suffix, dtype)."""
        self._prefixes = {name: (path, np.dtype(dtype)) for name, (path, dtype) in prefixes.items()}
        self._data: dict[str, _HashedFile] = {}
        self._indexes: list[_HashedFile] = []
        self._lengths = array("i")

    def __enter__(self) -> "ParallelWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in (*self._data.values(), *self._indexes):
            file.discard()

    @property
    def sequences(self) -> int:
        return len(self._lengths)

    def append(self, lengths: Lengths, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Appends N sequences: `lengths` int32 [N]; each of `values` is flat, of its dtype, with sum(lengths) items."""
        total = int(lengths.sum(dtype=np.int64))
        if values.keys() != self._prefixes.keys():
            raise ArtifactError(f"expected arrays {sorted(self._prefixes)}, got {sorted(values)}")
        for name, flat in values.items():
            _, dtype = self._prefixes[name]
            if flat.dtype != dtype or flat.shape != (total,):
                raise ArtifactError(f"{name}: expected {dtype} [{total}], got {flat.dtype} {list(flat.shape)}")
        if not lengths.size:
            return
        if not self._data:
            self._data = {
                name: _HashedFile(path.with_name(path.name + ".bin")) for name, (path, _) in self._prefixes.items()
            }
        self._lengths.frombytes(np.ascontiguousarray(lengths, dtype=np.int32).tobytes())
        for name, flat in values.items():
            self._data[name].write(np.ascontiguousarray(flat))

    def publish(self) -> list[WrittenFile]:
        """Fsyncs and publishes all files create-only, every `.bin` before any `.idx`: no reader opens a short one."""
        if not self._lengths:
            return []
        lengths = np.frombuffer(self._lengths, dtype=np.int32)
        for path, dtype in self._prefixes.values():
            index = _HashedFile(path.with_name(path.name + ".idx"))
            self._indexes.append(index)
            for block in index_blocks(lengths, dtype):
                index.write(block)
        written = []
        for file in (*self._data.values(), *self._indexes):
            record = file.close()
            publish(file.temporary, record.path, record.sha256)
            written.append(record)
        return written


def index_blocks(lengths: Lengths, dtype: npt.DTypeLike) -> Iterator[bytes | npt.NDArray[Any]]:
    """The bytes of an `.idx` file, block by block. Args: lengths int32 [N]; dtype of the `.bin`."""
    dtype = np.dtype(dtype)
    yield INDEX_MAGIC + struct.pack("<QBQQ", 1, DTYPE_CODES[dtype], lengths.size, lengths.size + 1)
    chunks = range(0, lengths.size, _INDEX_CHUNK)
    for start in chunks:
        yield lengths[start : start + _INDEX_CHUNK]
    pointer = 0
    for start in chunks:
        sizes = lengths[start : start + _INDEX_CHUNK].astype(np.int64) * dtype.itemsize
        ends = np.cumsum(sizes) + pointer
        yield ends - sizes
        pointer = int(ends[-1])
    for start in range(0, lengths.size + 1, _INDEX_CHUNK):
        yield np.arange(start, min(start + _INDEX_CHUNK, lengths.size + 1), dtype=np.int64)
