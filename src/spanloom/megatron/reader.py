"""An IndexedDataset read with numpy alone: for users and exporters, who should not wait for torch.

In: the `.bin` and `.idx` files of one split of one shard. Out: lengths, and documents as flat arrays of many or one by
one. Validation never reads through this: it uses Megatron's own reader, and a test compares the two. Memory does not
grow with the file, and only `single_sequences` memory-maps files.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ArtifactError
from spanloom.megatron.indexed import DTYPE_CODES, INDEX_MAGIC
from spanloom.supervision import Lengths

_HEADER = struct.Struct("<9sQBQQ")
_CHUNK = 1 << 13
"""Sequences read together."""

_REMEDY = "`spanloom validate` says what else is wrong; fetch or build the dataset again"


@dataclass(frozen=True, kw_only=True)
class ShardReader:
    """Parallel arrays of one split of one shard: `arrays` maps a name to its prefix (no suffix) and dtype."""

    arrays: Mapping[str, tuple[Path, np.dtype[Any]]]
    sequences: int

    def lengths(self, first: int, count: int) -> Lengths:
        """Tokens of the sequences `first` … `first + count - 1`: int32 [count], fewer at the end of the shard."""
        prefix, _ = next(iter(self.arrays.values()))
        count = max(0, min(count, self.sequences - first))
        return np.fromfile(_index(prefix), dtype=np.int32, count=count, offset=_HEADER.size + 4 * first)

    def read(self, first: int, lengths: Lengths) -> dict[str, npt.NDArray[Any]]:
        """The run of sequences that begins at `first` and has these `lengths`: name → flat array."""
        items = int(lengths.sum(dtype=np.int64))
        flat: dict[str, npt.NDArray[Any]] = {}
        for name, (prefix, dtype) in self.arrays.items():
            at = _HEADER.size + 4 * self.sequences + 8 * first
            begins = int(np.fromfile(_index(prefix), dtype=np.int64, count=1, offset=at)[0])
            flat[name] = np.fromfile(_data(prefix), dtype=dtype, count=items, offset=begins)
            if flat[name].size != items:
                raise ArtifactError(
                    f"the file ends before sequence {first + lengths.size - 1}",
                    where=str(_data(prefix)),
                    remedy=_REMEDY,
                )
        return flat

    def batches(self, tokens: int) -> Iterator[tuple[int, Lengths, dict[str, npt.NDArray[Any]]]]:
        """`(first sequence, lengths, name → flat array)` over runs of whole sequences of about `tokens` tokens."""
        first = 0
        while (lengths := self.lengths(first, _CHUNK)).size:
            fitting = int(np.searchsorted(np.cumsum(lengths, dtype=np.int64), tokens, side="right"))
            lengths = lengths[: max(1, fitting)]
            yield first, lengths, self.read(first, lengths)
            first += lengths.size


def single_sequences(prefix: Path, dtype: np.dtype[Any], numbers: Iterable[int]) -> Iterator[npt.NDArray[Any]]:
    """Sequences of one array by number, one after the other, for reading few of many: the files are memory-mapped."""
    return map(MappedSequences(prefix, dtype).__getitem__, numbers)


class MappedSequences:
    """Sequences of one array by number, for reading many in any order: the files are memory-mapped once."""

    def __init__(self, prefix: Path, dtype: np.dtype[Any]) -> None:
        """Raises ArtifactError if a file is missing or is not such an index."""
        sequences = _sequences(prefix, dtype)
        self._whole = np.asarray(np.memmap(_data(prefix), dtype=dtype, mode="r"))
        index = np.asarray(np.memmap(_index(prefix), dtype=np.uint8, mode="r"))
        self._lengths = np.frombuffer(index, "<i4", sequences, _HEADER.size)
        self._pointers = np.frombuffer(index, "<i8", sequences, _HEADER.size + 4 * sequences)

    def __getitem__(self, number: int) -> npt.NDArray[Any]:
        begin = int(self._pointers[number]) // self._whole.itemsize
        return self._whole[begin : begin + int(self._lengths[number])]


def open_shard_reader(arrays: Mapping[str, tuple[Path, np.dtype[Any]]]) -> ShardReader:
    """Opens `PREFIX.bin` and `PREFIX.idx` of each array: name → (prefix, dtype).

    Raises ArtifactError if a file is missing or is not such an index, or if the arrays have different numbers of
    sequences.
    """
    counts = {name: _sequences(prefix, dtype) for name, (prefix, dtype) in arrays.items()}
    if len(set(counts.values())) != 1:
        where = next(iter(arrays.values()))[0].parent
        raise ArtifactError(
            f"the arrays hold different numbers of sequences: {counts}", where=str(where), remedy=_REMEDY
        )
    return ShardReader(arrays=dict(arrays), sequences=next(iter(counts.values())))


def _sequences(prefix: Path, dtype: np.dtype[Any]) -> int:
    """The number of sequences in an index, after a check of its header."""
    for path in (_index(prefix), _data(prefix)):
        if not path.is_file():
            raise ArtifactError("a file of the dataset is missing", where=str(path), remedy=_REMEDY)
    with _index(prefix).open("rb") as stream:
        raw = stream.read(_HEADER.size)
    if len(raw) != _HEADER.size:
        raise ArtifactError("the index has no whole header", where=str(_index(prefix)), remedy=_REMEDY)
    magic, version, code, sequences, _ = _HEADER.unpack(raw)
    if (magic, version, code) != (INDEX_MAGIC, 1, DTYPE_CODES[dtype]):
        raise ArtifactError(f"not an IndexedDataset of {dtype}", where=str(_index(prefix)), remedy=_REMEDY)
    return int(sequences)


def _index(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".idx")


def _data(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".bin")
