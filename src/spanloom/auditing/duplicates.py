"""Finds documents with the same tokens, and answers that no document trains, in memory that does not grow with the
dataset.

In: `Documents`. Out: a digest of each; the documents that repeat an earlier one. Digests are written to 64 files by
value, and read one file at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spanloom.law.documents import Bools, Counts, Documents, Ints
from spanloom.law.frames import Frames
from spanloom.law.grammar import USER

BUCKETS = 64
RECORD = np.dtype(
    [("digest", "<u8"), ("number", "<i8"), ("tokens", "<i8"), ("row", "<i8"), ("part", "<i8"), ("trained", "u1")]
)
"""A document: `number` is its order in the dataset; `row` and `part` say where it is in its file."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True, kw_only=True)
class Places:
    """Documents of a batch, or their first questions.

    digests  uint64 [N]
    lengths  int64 [N]   tokens
    rows     int64 [N]
    parts    int64 [N]
    trained  bool [N]    whether the answer to the question is trained; False for whole documents
    """

    digests: npt.NDArray[np.uint64]
    lengths: Ints
    rows: Ints
    parts: Ints
    trained: Bools

    @classmethod
    def whole(cls, documents: Documents) -> "Places":
        """The documents of a batch."""
        starts = documents.ends - documents.lengths
        return cls.of(documents, starts, documents.lengths, np.zeros(len(documents), np.bool_))

    @classmethod
    def questions(cls, documents: Documents, frames: Frames) -> "Places":
        """The question before the first answer of each document: no tokens where there is none, or where no answer is
        trained. What else is before the answer may differ where the answer is in history."""
        starts = documents.ends - documents.lengths
        counted = Counts(documents.trained)
        numbers, first = np.unique(frames.document[frames.first], return_index=True)
        asked = np.maximum.accumulate(np.where(frames.roles == USER, np.arange(frames.roles.size), -1))
        question = asked[frames.first[first]]
        has_one = (question >= 0) & (frames.document[question] == numbers)
        has_one &= counted[documents.ends[numbers]] > counted[starts[numbers]]
        numbers, first, question = numbers[has_one], first[has_one], question[has_one]
        begins, lengths, trained = starts.copy(), np.zeros_like(starts), np.zeros(len(documents), np.bool_)
        begins[numbers] = frames.headed[question]
        lengths[numbers] = frames.ends[question] - frames.headed[question]
        trained[numbers] = counted[frames.stops[first]] > counted[frames.begins[first]]
        return cls.of(documents, begins, lengths, trained)

    @classmethod
    def of(cls, documents: Documents, begins: Ints, lengths: Ints, trained: Bools) -> "Places":
        return cls(
            digests=digests(documents, begins, lengths),
            lengths=lengths,
            rows=documents.rows,
            parts=documents.parts,
            trained=trained,
        )


def digests(documents: Documents, begins: Ints, lengths: Ints) -> npt.NDArray[np.uint64]:
    """A digest of some tokens of each document and their positions, uint64 [N]. `begins` int64 [N]: the first of them,
    a token of the batch; `lengths` int64 [N]: how many.

    Each token is mixed with its position, and the mixed values are summed. The probability that two of 10 million
    different documents have the same digest is 3e-6.
    """
    starts = documents.ends - documents.lengths
    places = np.arange(documents.tokens.size) - np.repeat(begins, documents.lengths)
    with np.errstate(over="ignore"):
        mixed = documents.tokens.astype(np.uint64) * _OTHER + (places.astype(np.uint64) + np.uint64(1)) * _ODD
        mixed ^= mixed >> np.uint64(29)
        mixed *= _OTHER
        mixed ^= mixed >> np.uint64(32)
        mixed *= _ODD
        if lengths is not documents.lengths:
            mixed[(places < 0) | (places >= np.repeat(lengths, documents.lengths))] = 0
        return np.add.reduceat(mixed, starts) if starts.size else np.zeros(0, np.uint64)


class Spool:
    """Digests in files of a folder, which is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, places: Places, first: int) -> None:
        """Adds documents with numbers from `first`, their order in the dataset; those without tokens are left out."""
        records = np.empty(places.digests.size, RECORD)
        records["digest"], records["tokens"], records["trained"] = places.digests, places.lengths, places.trained
        records["number"] = first + np.arange(records.size)
        records["row"], records["part"] = places.rows, places.parts
        records = records[records["tokens"] > 0]
        buckets = (records["digest"] % np.uint64(BUCKETS)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        edges = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket in np.flatnonzero(np.diff(edges)).tolist():
            with (self._folder / f"{bucket:02d}").open("ab") as stream:
                records[order[edges[bucket] : edges[bucket + 1]]].tofile(stream)

    def repeated(self) -> Iterator[npt.NDArray[np.void]]:
        """Yields the records of documents that repeat the digest of an earlier one, bucket by bucket."""
        for records, same in self._buckets():
            yield records[1:][same]

    def untrained(self) -> Iterator[npt.NDArray[np.void]]:
        """Yields the records of digests that have no trained one, bucket by bucket."""
        for records, same in self._buckets():
            groups = np.concatenate([[0], np.cumsum(~same)])
            some = np.zeros(groups[-1] + 1, np.bool_)
            some[groups[records["trained"] > 0]] = True
            yield records[~some[groups]]

    def _buckets(self) -> Iterator[tuple[npt.NDArray[np.void], Bools]]:
        """The sorted records of each bucket, and whether each but the first equals the one before it."""
        for bucket in range(BUCKETS):
            path = self._folder / f"{bucket:02d}"
            if path.is_file():
                records = np.fromfile(path, RECORD)
                records.sort(order=["digest", "tokens", "number"])
                same = (records["digest"][1:] == records["digest"][:-1]) & (
                    records["tokens"][1:] == records["tokens"][:-1]
                )
                yield records, same
