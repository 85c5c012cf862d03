"""`.bin` and `.idx` with the files of a mask, such as Spanloom's datasets → documents.

In: a unit, the wanted sequences. Out: `Documents`, batch by batch. An index is used only if its sizes agree with those
of the files.

    corpus_tokens.bin .idx    corpus_lossmask.bin .idx      or   corpus.bin .idx   corpus_mask.bin .idx

The mask is aligned with labels, as in Megatron's datasets, unless `--aligned tokens` is given. A document is what the
index says: one sequence, or several.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.auditing.readers.unit import LABELS, TOKENS_AT_ONCE, Reading, Unit
from spanloom.errors import SourceError
from spanloom.law.documents import Documents, Ints
from spanloom.megatron.indexed import INDEX_MAGIC
from spanloom.megatron.reader import ShardReader
from spanloom.supervision import shift_to_tokens

MASK_ENDINGS = ("_lossmask", "_loss_mask", "_mask", "_assistant_mask", "_assistant_masks", "_completion_mask")
TOKENS_ENDING = "_tokens"
_DTYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
_HEADER = struct.Struct("<9sQBQQ")
_CHUNK = 1 << 16
_REMEDY = "write or copy the dataset again"


@dataclass(frozen=True)
class _Index:
    """An `.idx`: how many sequences and documents, and the dtype of the `.bin`."""

    path: Path
    sequences: int
    documents: int
    dtype: np.dtype[Any]

    def firsts(self, begin: int, count: int) -> Ints:
        """The first sequences of documents from number `begin`, and the end of the last one, int64 [count + 1]."""
        at = _HEADER.size + 12 * self.sequences + 8 * begin
        return np.fromfile(self.path, dtype="<i8", count=count + 1, offset=at)


def mask_beside(prefix: Path, reading: Reading) -> Path:
    """The prefix of the mask of tokens. Raises SourceError if there is none."""
    stem = prefix.name.removesuffix(TOKENS_ENDING)
    endings = MASK_ENDINGS if reading.mask is None else (reading.mask,)
    for ending in endings:
        beside = prefix.with_name(stem + ending)
        if _with(beside, ".idx").is_file():
            return beside
    raise SourceError(
        "no mask is beside the tokens",
        where=str(_with(prefix, ".idx")),
        remedy=f"put {stem}{endings[0]}.bin and .idx beside it, or name the ending of another: --mask _ENDING",
    )


def prefixes_in(folder: Path, reading: Reading) -> list[Path]:
    """The prefixes of tokens in a folder, by name, without those of masks and other arrays."""
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.idx"))
    named = [prefix for prefix in prefixes if prefix.name.endswith(TOKENS_ENDING)]
    if named:
        return named
    masks = MASK_ENDINGS if reading.mask is None else (*MASK_ENDINGS, reading.mask)
    return [prefix for prefix in prefixes if not prefix.name.endswith((*masks, "_span"))]


def indexed_units(prefix: Path, shown: str, reading: Reading, rows_of_unit: int) -> list[Unit]:
    """The units of tokens and their mask. Raises SourceError if the two do not match, or a file is truncated."""
    mask = mask_beside(prefix, reading)
    tokens, flags = _checked(prefix), _checked(mask)
    for what, of_tokens, of_mask in (
        ("sequences", tokens.sequences, flags.sequences),
        ("documents", tokens.documents, flags.documents),
    ):
        if of_tokens != of_mask:
            raise _broken(f"the tokens have {of_tokens:,} {what}, the mask has {of_mask:,}", _with(mask, ".idx"))
    return [
        Unit(
            kind="indexed",
            path=prefix,
            mask=mask,
            shown=shown,
            first=first,
            rows=min(rows_of_unit, tokens.documents - first),
            reading=reading,
        )
        for first in range(0, tokens.documents, rows_of_unit)
    ]


def indexed_documents(unit: Unit, rows: Ints | None) -> Iterator[Documents]:
    """The documents of a unit. `rows`: sorted numbers of documents; None: all."""
    assert unit.mask is not None
    prefixes = {"tokens": unit.path, "mask": unit.mask}
    indexes = {name: _read_header(prefix) for name, prefix in prefixes.items()}
    reader, masks = (
        ShardReader(arrays={name: (prefixes[name], index.dtype)}, sequences=index.sequences)
        for name, index in indexes.items()
    )
    end = unit.first + unit.rows
    if rows is None:
        stretches = [(unit.first, end)]
    else:
        own = rows[np.searchsorted(rows, unit.first) : np.searchsorted(rows, end)]
        stretches = [(number, number + 1) for number in own.tolist()]
    for first, last in stretches:
        for numbers, firsts in _batches(reader, indexes["tokens"], first, last):
            begin = int(firsts[0])
            lengths = reader.lengths(begin, int(firsts[-1]) - begin)
            wrong = np.flatnonzero(lengths != masks.lengths(begin, lengths.size))
            if wrong.size:
                raise _broken("tokens and mask differ in length", f"{unit.shown}, sequence {begin + int(wrong[0])}")
            tokens = reader.read(begin, lengths)["tokens"]
            flags = masks.read(begin, lengths)["mask"]
            sizes = _of_documents(lengths, firsts)
            if flags.size and (flags.min() < 0 or flags.max() > 1):
                raise _broken("the mask has values that are not 0 or 1", unit.shown)
            if tokens.size and (tokens.min() < 0 or tokens.max() > 2**31 - 1):
                raise _broken("there are ids that are no token ids", unit.shown)
            full = sizes > 0
            numbers, kept = numbers[full], sizes[full].astype(np.int32)
            trained = flags.astype(np.uint8)
            if (unit.reading.aligned or LABELS) == LABELS:
                trained = shift_to_tokens(trained, kept)
            yield Documents(
                tokens=tokens.astype(np.int32, copy=False),
                trained=trained.astype(np.bool_),
                lengths=kept.astype(np.int64),
                rows=numbers,
                parts=np.zeros(numbers.size, np.int64),
                file=unit.shown,
            )


def _batches(reader: ShardReader, index: _Index, first: int, last: int) -> Iterator[tuple[Ints, Ints]]:
    """Consecutive documents of about `TOKENS_AT_ONCE` tokens: their numbers, and see `_Index.firsts`."""
    while first < last:
        firsts = index.firsts(first, min(_CHUNK, last - first))
        sizes = _of_documents(reader.lengths(int(firsts[0]), int(firsts[-1] - firsts[0])), firsts)
        count = max(1, int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), TOKENS_AT_ONCE, side="right")))
        yield np.arange(first, first + count), firsts[: count + 1]
        first += count


def _of_documents(lengths: npt.NDArray[Any], firsts: Ints) -> Ints:
    """The lengths of documents from those of their sequences, int64 [D]."""
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    of_documents: Ints = np.diff(ends[firsts - firsts[0]])
    return of_documents


def _checked(prefix: Path) -> _Index:
    """The index of a prefix; checks its sizes against both files. Raises SourceError."""
    index = _read_header(prefix)
    path, data = _with(prefix, ".idx"), _with(prefix, ".bin")
    size = _HEADER.size + 12 * index.sequences + 8 * (index.documents + 1)
    if path.stat().st_size not in (size, size + index.sequences):  # with a byte a sequence: modes of multimodal data
        raise _broken("the index has another size than its header says: torn?", path)
    last = 0
    for first in range(0, index.documents, _CHUNK):
        firsts = index.firsts(first, min(_CHUNK, index.documents - first))
        if firsts[0] != last or (np.diff(firsts) < 0).any():
            raise _broken("the documents in the index do not follow each other", path)
        last = int(firsts[-1])
    if last != index.sequences:
        raise _broken(f"the documents in the index have {last:,} of its {index.sequences:,} sequences", path)
    whole = ShardReader(arrays={"x": (prefix, index.dtype)}, sequences=index.sequences)
    begin = 0
    steps = [*range(0, index.sequences, _CHUNK), index.sequences]
    for first, last in pairwise(steps):
        lengths = whole.lengths(first, last - first).astype(np.int64)
        at = _HEADER.size + 4 * index.sequences + 8 * first
        pointers = np.fromfile(path, dtype="<i8", count=last - first, offset=at)
        ends = begin + np.cumsum(lengths * index.dtype.itemsize)
        if (lengths < 0).any() or not np.array_equal(pointers, ends - lengths * index.dtype.itemsize):
            raise _broken("lengths and places in the index do not fit each other", path)
        begin = int(ends[-1])
    if begin != data.stat().st_size:
        raise _broken(f"the file has {data.stat().st_size:,} bytes, the index speaks of {begin:,}", data)
    return index


def _read_header(prefix: Path) -> _Index:
    for path in (_with(prefix, ".idx"), _with(prefix, ".bin")):
        if not path.is_file():
            raise _broken("a file is missing", path)
    path = _with(prefix, ".idx")
    with path.open("rb") as stream:
        raw = stream.read(_HEADER.size)
    if len(raw) != _HEADER.size:
        raise _broken("the index has no whole header", path)
    magic, version, code, sequences, indices = _HEADER.unpack(raw)
    if magic != INDEX_MAGIC or version != 1 or code not in _DTYPES or not indices:
        raise SourceError("this is no index of whole numbers", where=str(path), remedy="give Megatron's .bin and .idx")
    return _Index(path, int(sequences), int(indices) - 1, np.dtype(_DTYPES[code]))


def _broken(what: str, where: Path | str) -> SourceError:
    return SourceError(what, where=str(where), remedy=_REMEDY)


def _with(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)
