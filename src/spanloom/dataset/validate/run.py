"""Runs of checks: those of some shards, and those of all shards, which ran elsewhere.

In: shards. Out: the report and the result of each check of each shard, to be joined with those of other shards.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from spanloom.conversations.source.folder import Part
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.validate.disk_documents import token_digests
from spanloom.errors import ArtifactError
from spanloom.findings import Report
from spanloom.workers import OnProgress, Pool

T = TypeVar("T")

Parts: TypeAlias = "list[tuple[Report, Any]]"
"""Of one shard: the report of each call of `CheckRun.each`, and its result."""

OnChecked = Callable[[int], object]
"""Called with the number of further documents that were checked."""

AGAIN = "run validate-shard of all shards again"


def counted(on_progress: OnProgress | None, total: int) -> OnChecked:
    """Adds up what was checked, for `on_progress`."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if on_progress:
            on_progress(done, total)

    return count


class Run:
    """A `CheckRun` that checks some of the shards, one after the other. `parts`: what it gave, by number of the shard.

    `contents`: the digests of documents' tokens are added to it; `pool`: for pieces of a shard.
    """

    def __init__(
        self, shards: Sequence[ShardEntry], contents: DigestRuns, on_checked: OnChecked, pool: Pool | None
    ) -> None:
        self.parts: dict[int, Parts] = {shard.shard: [] for shard in shards}
        self._contents, self._on_checked, self._pool = contents, on_checked, pool

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:
        results: list[Any] = []
        for shard in shards:
            result = None
            if shard.shard in self.parts:
                own = Report()
                result = check(own, shard)
                report.include(own)
                self.parts[shard.shard].append((own, result))
            results.append(result)
        return results

    def spread(self, work: Callable[[Sequence[Part]], T], parts: Sequence[Part]) -> list[T]:
        if self._pool is None:
            return [work(parts)]
        futures = [self._pool.submit(work, piece) for piece in pieces(parts, self._pool.workers)]
        return [self._pool.result(future, "validation") for future in futures]

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        digests = token_digests(tokens, lengths)
        self._contents.add(digests)
        self._on_checked(lengths.size)
        return digests


def pieces(parts: Sequence[Part], count: int) -> list[Sequence[Part]]:
    """Cuts parts, in order, into at most `count` pieces of about as many rows."""
    ends = list(accumulate(part.rows for part in parts))
    edges = [bisect_left(ends, ends[-1] * number / count) + 1 for number in range(1, count) if ends]
    return [parts[first:last] for first, last in pairwise([0, *edges, len(parts)]) if first < last]


class JoinedRun:
    """A `CheckRun` without checks, which returns what those of all shards gave. `parts`: of each shard, in order."""

    def __init__(self, parts: Sequence[Parts]) -> None:
        self._parts = parts
        self._calls = 0

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:  # noqa: ARG002  # as `CheckRun` has it
        results = []
        for shard, parts in zip(shards, self._parts, strict=True):
            if self._calls >= len(parts):
                raise ArtifactError(f"the report of shard {shard.shard} lacks a check", remedy=AGAIN)
            of_shard, result = parts[self._calls]
            report.include(of_shard)
            results.append(result)
        self._calls += 1
        return results

    def spread(self, work: Callable[[Sequence[Part]], T], parts: Sequence[Part]) -> list[T]:  # noqa: ARG002
        """Never called: no row is checked here."""
        return []

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        """Never called: no document is checked here."""
        return token_digests(tokens, lengths)
