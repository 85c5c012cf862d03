"""Finds documents with the same tokens, in memory that does not grow with the dataset.

In: `Documents`. Out: a digest of each; the documents that repeat an earlier one. Digests are written to 64 files by
value, and read one file at a time.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spanloom.law.documents import Documents, Ints

BUCKETS = 64
RECORD = np.dtype([("digest", "<u8"), ("number", "<i8"), ("tokens", "<i8"), ("row", "<i8"), ("part", "<i8")])
"""A document: `number` is its order in the dataset; `row` and `part` say where it is in its file."""

Places = tuple[npt.NDArray[np.uint64], Ints, Ints, Ints]
"""Of the documents of a batch: digests, lengths, rows, parts."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xC2B2AE3D27D4EB4F)


def digests(documents: Documents) -> npt.NDArray[np.uint64]:
    """A digest of each document's tokens and their positions, uint64 [N].

    Each token is mixed with its position, and the mixed values are summed. The probability that two of 10 million
    different documents have the same digest is 3e-6.
    """
    starts = documents.ends - documents.lengths
    places = np.arange(documents.tokens.size) - np.repeat(starts, documents.lengths)
    with np.errstate(over="ignore"):
        mixed = documents.tokens.astype(np.uint64) * _OTHER + (places.astype(np.uint64) + np.uint64(1)) * _ODD
        mixed ^= mixed >> np.uint64(29)
        mixed *= _OTHER
        mixed ^= mixed >> np.uint64(32)
        mixed *= _ODD
        return np.add.reduceat(mixed, starts) if starts.size else np.zeros(0, np.uint64)


class Spool:
    """Digests in files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, places: Places, numbers: Ints) -> None:
        """Adds documents. Their numbers, int64 [N], are their order in the dataset."""
        values, lengths, rows, parts = places
        records = np.empty(values.size, RECORD)
        records["digest"], records["number"], records["tokens"] = values, numbers, lengths
        records["row"], records["part"] = rows, parts
        buckets = (values % np.uint64(BUCKETS)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        edges = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket in np.flatnonzero(np.diff(edges)).tolist():
            with (self._folder / f"{bucket:02d}").open("ab") as stream:
                records[order[edges[bucket] : edges[bucket + 1]]].tofile(stream)

    def repeated(self) -> Iterator[npt.NDArray[np.void]]:
        """Yields the records of documents that repeat the digest of an earlier one, bucket by bucket."""
        for bucket in range(BUCKETS):
            path = self._folder / f"{bucket:02d}"
            if not path.is_file():
                continue
            records = np.fromfile(path, RECORD)
            records.sort(order=["digest", "tokens", "number"])
            same = (records["digest"][1:] == records["digest"][:-1]) & (records["tokens"][1:] == records["tokens"][:-1])
            yield records[1:][same]
