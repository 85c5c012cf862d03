"""Documents as they are on disk, in runs, for a family's checks; findings by document and offset.

In: arrays of whole documents of one split of one shard. Out: findings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.findings import Finding


@dataclass(frozen=True, kw_only=True)
class DiskRun:
    """Neighbours in one split of one shard; `first` is the number of the first of them in its file."""

    split: str
    shard: int
    first: int

    def finding(self, check: str, message: str, number: int, offset: int | None = None) -> Finding:
        """`number`: which of the run."""
        return Finding(
            check=check,
            message=message,
            split=self.split,
            shard=self.shard,
            sequence=self.first + number,
            offset=offset,
        )


@dataclass(frozen=True, kw_only=True)
class DiskDocuments(DiskRun):
    """N whole documents as on disk. `lengths` int32 [N]; `tokens` int32 [T]; `lossmask` uint8 [T], label-aligned."""

    lengths: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    lossmask: npt.NDArray[np.uint8]

    def at(self, check: str, message: str, positions: npt.NDArray[np.int64]) -> Iterator[Finding]:
        """One finding for each flat position, as sequence and offset."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        for position in positions.tolist():
            document = int(np.searchsorted(ends, position, side="right"))
            yield self.finding(check, message, document, position - int(ends[document] - self.lengths[document]))

    @property
    def spans(self) -> npt.NDArray[np.uint8]:
        """The span of each label, uint8 [T]; without spans, 1 where it is learned."""
        return (self.lossmask > 0).astype(np.uint8)

    def check_rows(self, rows: pa.Table, expected: Mapping[str, npt.NDArray[Any]]) -> Iterator[Finding]:
        """Columns of the rows that describe these documents against their values, [N] each."""
        for name, values in expected.items():
            found = rows.column(name).to_numpy()
            for at in np.flatnonzero(found != values).tolist():
                yield self.finding("rows", f"{name} is {found[at]}, the files say {values[at]}", at)

    def check_split(
        self, ids: pa.ChunkedArray, digests: npt.NDArray[np.uint64], valid_fraction: float
    ) -> Iterator[Finding]:
        """The split rule applied to each id, by its digest."""
        threshold = int(Decimal(str(valid_fraction)) * 2**64)
        valid = digests < threshold if threshold < 2**64 else np.ones(digests.size, dtype=np.bool_)
        for at in np.flatnonzero(valid != (self.split == "valid")).tolist():
            wanted = "valid" if valid[at] else "train"
            yield self.finding("split", f"{ids[at].as_py()!r} belongs to {wanted}", at)


@dataclass(frozen=True, kw_only=True)
class SpanDocuments(DiskDocuments):
    """The same with `span` uint8 [T], label-aligned."""

    span: npt.NDArray[np.uint8]

    @property
    def spans(self) -> npt.NDArray[np.uint8]:
        return self.span


def digests_of(ids: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint64]:
    """What the split rule goes by: the 64 bits of blake2b of each id, as numbers. Returns uint64 [N].

    Two rows with one id have one digest: where both obey the rule, they are in one split.
    """
    joined = b"".join([blake2b(name or b"", digest_size=8).digest() for name in ids.cast(pa.binary()).to_pylist()])
    return np.frombuffer(joined, dtype=">u8").astype(np.uint64)
