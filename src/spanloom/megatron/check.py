"""Checks IndexedDatasets that must be parallel to each other, through the reader of the validation.

In: prefixes with their dtypes. Out: the opened datasets, or findings. Every family's validation starts here.
"""

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.findings import Report
from spanloom.megatron.indexed import DTYPE_CODES, INDEX_MAGIC
from spanloom.megatron.official import open_indexed
from spanloom.megatron.readers import OpenIndexed

_HEADER_BYTES = 34
_CHUNK = 1 << 13
"""Sequences checked together: memory must not grow with the number of sequences."""


@dataclass(frozen=True, kw_only=True)
class ParallelDatasets:
    """Parallel datasets. `lengths` int32 [N]: the sequence lengths of each of them."""

    datasets: dict[str, Any]
    lengths: npt.NDArray[np.int32]

    def batches(self, tokens: int) -> Iterator[tuple[int, npt.NDArray[np.int32], dict[str, npt.NDArray[Any]]]]:
        """`(first sequence, lengths, name → flat array)` over runs of whole sequences of about `tokens` tokens."""
        first = 0
        while first < self.lengths.size:
            ends = np.cumsum(self.lengths[first : first + _CHUNK], dtype=np.int64)
            count = max(1, int(np.searchsorted(ends, tokens, side="right")))
            # Copied: Megatron unmaps its index when the dataset is deleted, even if arrays still refer to it.
            lengths = self.lengths[first : first + count].copy()
            items = int(ends[lengths.size - 1])
            # One read for a run of sequences, as Megatron reads one of them: `dataset[first:last]` reads the same, then
            # splits it into one array per sequence, which took longer than all checks.
            yield (
                first,
                lengths,
                {
                    name: dataset.bin_reader.read(
                        dtype=dataset.index.dtype,
                        count=items,
                        offset=int(dataset.index.sequence_pointers[first]),
                    )
                    for name, dataset in self.datasets.items()
                },
            )
            first += count
            _unload(*self.datasets.values())


def _unload(*datasets: Any) -> None:
    """Takes the mapped pages of indexes out of memory, 20 bytes a sequence: they count as memory of this process, and
    are read from the file again where they are needed."""
    for dataset in datasets:
        dataset.index.bin_buffer_mmap._mmap.madvise(mmap.MADV_DONTNEED)


def open_parallel(
    report: Report,
    prefixes: Mapping[str, tuple[Path, npt.DTypeLike]],
    *,
    split: str,
    shard: int,
    open_with: OpenIndexed = open_indexed,
) -> ParallelDatasets | None:
    """Opens parallel datasets and adds findings to `report`.

    `prefixes`: name → (path without suffix, dtype). `open_with`: the reader, by default Megatron's own. Returns None
    if they cannot be read side by side.
    """

    def find(check: str, message: str, file: Path, sequence: int | None = None) -> None:
        report.wrong(check, message, split=split, shard=shard, sequence=sequence, file=file.name)

    datasets: dict[str, Any] = {}
    for name, (prefix, dtype) in prefixes.items():
        index, data = (prefix.with_name(prefix.name + suffix) for suffix in (".idx", ".bin"))
        report.ran("readable", 1)
        if fault := _index_fault(index, data, np.dtype(dtype)):
            find(*fault)
            continue
        dataset = open_with(prefix)
        if _check_index(find, dataset, index, data, np.dtype(dtype)):
            datasets[name] = dataset
        _unload(dataset)
    if len(datasets) < len(prefixes):
        return None

    names = list(prefixes)
    first = datasets[names[0]]
    parallel = True
    for name in names[1:]:
        other, file = datasets[name], prefixes[name][0]
        report.ran("parallel", 1)
        if len(other) != len(first):
            find("parallel", f"{len(other)} sequences, {names[0]} has {len(first)}", file)
            parallel = False
        elif (different := np.flatnonzero(other.sequence_lengths != first.sequence_lengths)).size:
            at = int(different[0])
            find(
                "parallel",
                f"{other.sequence_lengths[at]} items where {names[0]} has {first.sequence_lengths[at]}",
                file,
                at,
            )
            parallel = False
        _unload(first, other)
        if not np.array_equal(other.document_indices, first.document_indices):
            find("parallel", f"document boundaries differ from those of {names[0]}", file)
        _unload(first, other)
    return ParallelDatasets(datasets=datasets, lengths=first.sequence_lengths) if parallel else None


def _index_fault(index: Path, data: Path, dtype: np.dtype[Any]) -> tuple[str, str, Path] | None:
    """A fault that would make Megatron's reader fail an assertion or read beyond the file, as a finding instead."""
    for file in (index, data):
        if not file.is_file():
            return "readable", "the file is missing", file
        if not file.stat().st_size:
            return "readable", "the file is empty, which Megatron cannot memory-map", file
    with index.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(INDEX_MAGIC):
        return "readable", "this is not an IndexedDataset index", index
    version, code, sequences, documents = struct.unpack("<QBQQ", header[len(INDEX_MAGIC) :])
    if version != 1:
        return "readable", f"index version {version}, Megatron reads version 1", index
    if code != DTYPE_CODES[dtype]:
        return "dtype", f"the index says dtype code {code}, expected {DTYPE_CODES[dtype]} ({dtype})", index
    expected = _HEADER_BYTES + sequences * (4 + 8) + documents * 8
    if index.stat().st_size != expected:
        return "readable", f"the index has {index.stat().st_size} bytes, its header requires {expected}", index
    with index.open("rb") as stream:
        stream.seek(_HEADER_BYTES + sequences * (4 + 8) + max(documents - 1, 0) * 8)
        last = int.from_bytes(stream.read(8), "little")
    if not documents or last != sequences:
        return "readable", f"the last document ends at sequence {last}, there are {sequences}", index
    return None


def _check_index(find: Any, dataset: Any, index: Path, data: Path, dtype: np.dtype[Any]) -> bool:
    """Compares what the reader read from an index with the `.bin`. Returns whether its sequences can be read."""
    readable = True
    lengths = dataset.sequence_lengths
    if dataset.index.dtype != dtype.type:
        find("dtype", f"the reader finds {dataset.index.dtype.__name__}, expected {dtype}", index)
        readable = False
    if lengths.size and lengths.min() < 1:
        find("lengths", f"a sequence of {lengths.min()} items", index, int(lengths.argmin()))
        readable = False
    expected = int(lengths.sum(dtype=np.int64)) * dtype.itemsize
    if (size := data.stat().st_size) != expected:
        find("bin_size", f"{size} bytes, the lengths add up to {expected}", data)
        readable = False
    if (sequence := _first_wrong_pointer(lengths, dataset.index.sequence_pointers, dtype.itemsize)) is not None:
        find("pointers", "the byte pointer does not follow from the lengths before it", index, sequence)
        readable = False
    boundaries = dataset.document_indices
    for first in range(0, boundaries.size, _CHUNK):
        chunk = boundaries[first : first + _CHUNK]
        if (wrong := np.flatnonzero(chunk != np.arange(first, first + chunk.size))).size:
            find("documents", "the documents are not one sequence each", index, first + int(wrong[0]))
            break
    return readable


def _first_wrong_pointer(lengths: npt.NDArray[np.int32], pointers: npt.NDArray[np.int64], itemsize: int) -> int | None:
    begins = 0
    for first in range(0, lengths.size, _CHUNK):
        ends = begins + np.cumsum(lengths[first : first + _CHUNK], dtype=np.int64) * itemsize
        expected = np.concatenate([[begins], ends[:-1]])
        if (wrong := np.flatnonzero(pointers[first : first + _CHUNK] != expected)).size:
            return first + int(wrong[0])
        begins = int(ends[-1])
    return None
