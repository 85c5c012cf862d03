"""Documents of a split of a shard with the same tokens: a warning if one of them is a large part of it.

In: digests of documents' tokens, batch by batch. Out: a warning.

It is not an error: a source may hold one text under many ids, and builds refuse ids that repeat, not texts. So copies
cannot tell an honest dataset from one in which a document was copied over others. With the source, families compare the
texts of each document with its own row: there a copy that the source does not have is an error.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from spanloom.dataset.family import CheckRun
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.rows.digests import Digests
from spanloom.findings import Finding, Report

SHARE = 0.05
"""From more than this share on, copies of one document are reported."""
AT_LEAST = 20
"""Fewer copies are not reported: in a small dataset a few are a large share."""
HELD = 4096
"""Digests that are counted at once. A count is at most 1 in 4,096 of all documents too low."""

T = TypeVar("T")


class Copies:
    """Counts the documents that are copies of one, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self.documents = 0
        self._digests: Digests = np.empty(0, dtype=np.uint64)
        self._counts = np.empty(0, dtype=np.int64)

    def add(self, digests: Digests) -> None:
        """Adds documents. `digests` uint64 [N], in any order."""
        self.documents += digests.size
        of_all = np.concatenate([self._digests, digests])
        weights = np.concatenate([self._counts, np.ones(digests.size, dtype=np.int64)])
        kept, places = np.unique(of_all, return_inverse=True)
        counts = np.bincount(places, weights=weights, minlength=kept.size).astype(np.int64)
        if kept.size > HELD:
            # Each step takes the same from more than HELD digests, so that what is taken from one is a small share.
            counts -= np.partition(counts, -HELD - 1)[-HELD - 1]
            kept, counts = kept[counts > 0], counts[counts > 0]
        self._digests, self._counts = kept, counts

    @property
    def most(self) -> int:
        """How many documents are the most frequent one, or slightly fewer."""
        return int(self._counts.max(initial=0))

    def findings(self, split: str, shard: int) -> Iterator[Finding]:
        """The warning, if there is one."""
        if self.most >= AT_LEAST and self.most > SHARE * self.documents:
            message = f"{self.most:,} of {self.documents:,} documents have the same tokens"
            yield Finding(check="copies", message=message, split=split, shard=shard, severity="warning")


@dataclass
class CountedRun:
    """A `CheckRun` that also counts copies."""

    run: CheckRun
    copies: Copies = field(default_factory=Copies)

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:
        return self.run.each(report, shards, check)

    def spread(self, work: Callable[[range], T], rows: int) -> list[T]:
        return self.run.spread(work, rows)

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        digests = self.run.checked(tokens, lengths)
        self.copies.add(digests)
        return digests
