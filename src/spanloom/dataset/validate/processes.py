"""The checks of shards, in as many processes as are worth it. Threads are of no use: most checks hold the GIL.

In: a dataset, its source if given. Out: the reports of all shards, and the digests of ids and of documents' tokens.
Each process has some of the shards; the calling process has the first of them. Where there are fewer shards than
processes, the rows of a shard's source are compared in pieces, see `CheckRun.spread`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from multiprocessing import current_process
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from spanloom import workers
from spanloom.dataset.family import CheckRun
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.validate.checks import DatasetCheck, check_beyond_files
from spanloom.dataset.validate.content import check_shape
from spanloom.dataset.validate.disk_documents import token_digests
from spanloom.errors import ArtifactError
from spanloom.findings import Report
from spanloom.machine import workers_that_fit
from spanloom.storage.temporaries import temporary_folder
from spanloom.workers import Counters, OnProgress, Pool, process_pool

TOKENS_A_PROCESS, TOKENS_WITHOUT_SOURCE = 1 << 24, 1 << 26
"""Tokens of a dataset that are worth a process: they take longer to check than a process takes to begin."""

SECONDS_OF_DOCUMENTS = 1.0
"""How long the documents are checked at least where the rows of a shard are compared in pieces: comparing them takes
longer still, and a process takes up to three seconds to begin."""

PROCESS_BYTES = 500 << 20
"""Memory of a process, where the caller did not say how many there may be."""

CONTENTS_AT_ONCE = 1 << 24
"""Digests of documents' tokens in memory: 128 MiB, in addition to the digests of ids."""

_REPORT_EVERY = 0.2
"""Seconds."""


T = TypeVar("T")

Parts: TypeAlias = "list[tuple[Report, Any]]"
"""Of one shard: the report of each call of `CheckRun.each`, and its result."""

OnChecked = Callable[[int], object]
"""Called with the number of further documents that were checked."""

AGAIN = "run validate-shard of all shards again"
"""The remedy where reports of shards do not fit."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What joins the checks of all shards; see `joined_checks`."""

    check: DatasetCheck
    run: CheckRun
    ids: DigestRuns
    contents: DigestRuns


@contextmanager
def checked_shards(check: DatasetCheck, processes: int | None, on_progress: OnProgress | None) -> Iterator[Checked]:
    """Yields a run of the checks of all shards: one that returns their reports, or one that is still to check them.

    `processes`: how many there may be; None: as many as CPUs and memory allow.
    """
    scratch, shards = check.scratch, check.content.shards
    numbers = tuple(shard.shard for shard in shards)
    count = processes_for(check, numbers, processes)
    groups = [numbers[first::count] for first in range(min(count, len(numbers)))]
    on_checked = counted(on_progress, check.content.totals.sequences)
    if len(groups) < 2:
        with _collections(check.content, numbers, scratch) as (ids, contents), ExitStack() as stack:
            run = Run(shards, contents, on_checked, count, stack)
            yield Checked(check=check, run=run, ids=ids, contents=contents)
        return
    with (
        temporary_folder("spanloom-", scratch) as folder,
        DigestRuns(0, scratch) as ids,
        DigestRuns(0, scratch, CONTENTS_AT_ONCE) as contents,
    ):
        files = [Path(folder) / f"{number}" for number in range(len(groups))]
        parts: dict[int, Parts] = {}
        of_groups = _in_processes(check, groups, files, count // len(groups), on_checked)
        for file, (of_group, held) in zip(files, of_groups, strict=True):
            parts |= of_group
            ids.add_file(file, last=held)
            contents.add_file(file, first=held)
        joined = JoinedRun([parts[shard.shard] for shard in shards])
        rest = replace(check, source=check.source and replace(check.source, at_hand=()))
        yield Checked(check=rest, run=joined, ids=ids, contents=contents)


def processes_for(check: DatasetCheck, numbers: Collection[int], processes: int | None) -> int:
    """How many processes the checks of these shards are worth, at most `processes`."""
    content = check.content
    tokens = sum(counts.tokens for shard in _those(content, numbers) for counts in shard.splits.values())
    worth = tokens // (TOKENS_WITHOUT_SOURCE if check.source is None else TOKENS_A_PROCESS)
    # A dataset without the shape of its family cannot be read; and Python lets a daemonic process start no others.
    if worth < 2 or current_process().daemon or any(check_shape(content, check.family)):
        return 1
    return min(worth, processes or workers_that_fit(PROCESS_BYTES))


def _in_processes(
    check: DatasetCheck,
    groups: Sequence[tuple[int, ...]],
    files: Sequence[Path],
    processes: int,
    on_checked: OnChecked,
) -> list[tuple[dict[int, Parts], int]]:
    """What `checked_group` gives for each group. `processes`: for each of them."""
    counters, seen = Counters(1), 0

    def report_others() -> None:
        nonlocal seen
        more = counters.read(range(1)).checked - seen
        seen += more
        on_checked(more)

    def report(more: int) -> None:
        on_checked(more)
        report_others()

    with process_pool(len(groups) - 1, counters) as pool:
        given = zip(groups[1:], files[1:], strict=True)
        others = [pool.submit(checked_group, check, group, file, processes) for group, file in given]
        first = checked_group(check, groups[0], files[0], processes, report)
        while wait(others, timeout=_REPORT_EVERY).not_done:
            report_others()
        results = [first, *(pool.result(other, "validation") for other in others)]
        report_others()
        pool.abort()  # its work is done
    return results


def _count_here(more: int) -> None:
    if workers.counters_here:
        workers.counters_here.add(0, checked=more)


def checked_group(
    check: DatasetCheck,
    numbers: tuple[int, ...],
    digests_file: Path,
    processes: int,
    on_checked: OnChecked = _count_here,
) -> tuple[dict[int, Parts], int]:
    """Checks these shards, from their own files. Returns what their checks gave, and the number of their ids.

    Writes `digests_file`: the digests of the ids of all of them, then those of their documents' tokens.
    """
    shards = _those(check.content, numbers)
    with _collections(check.content, numbers, check.scratch) as (ids, contents), ExitStack() as stack:
        run = Run(shards, contents, on_checked, processes, stack)
        own = replace(check, source=check.source and replace(check.source, at_hand=numbers))
        check_beyond_files(Report(), own, run, ids)
        digests_file.parent.mkdir(parents=True, exist_ok=True)
        with digests_file.open("wb") as stream:
            count = ids.write(stream)
            contents.write(stream)
    return run.parts, count


@contextmanager
def _collections(
    content: Content, numbers: Collection[int], scratch: Path | None
) -> Iterator[tuple[DigestRuns, DigestRuns]]:
    """Empty collections for the digests of these shards: of ids, and of documents' tokens."""
    documents = sequences_in(content, numbers)
    with DigestRuns(documents, scratch) as ids, DigestRuns(documents, scratch, CONTENTS_AT_ONCE) as contents:
        yield ids, contents


def sequences_in(content: Content, numbers: Collection[int]) -> int:
    """How many documents these shards have."""
    return sum(counts.sequences for shard in _those(content, numbers) for counts in shard.splits.values())


def _those(content: Content, numbers: Collection[int]) -> list[ShardEntry]:
    return [shard for shard in content.shards if shard.shard in numbers]


# --- Runs of checks ---------------------------------------------------------------------------------------------------


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

    contents   the digests of documents' tokens are added to it
    processes  how many there may be for pieces of a shard; they end with `stack`
    """

    def __init__(
        self,
        shards: Sequence[ShardEntry],
        contents: DigestRuns,
        on_checked: OnChecked,
        processes: int,
        stack: ExitStack,
    ) -> None:
        self.parts: dict[int, Parts] = {shard.shard: [] for shard in shards}
        self._contents, self._on_checked = contents, on_checked
        self._processes, self._stack = processes, stack
        self._began = monotonic()

    @cached_property
    def _pool(self) -> Pool | None:
        """For pieces of shards, once all documents are checked; None where they are not worth it."""
        if self._processes < 2 or monotonic() - self._began < SECONDS_OF_DOCUMENTS:
            return None
        pool = self._stack.enter_context(process_pool(self._processes))
        self._stack.callback(pool.abort)  # its work is done
        return pool

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

    def spread(self, work: Callable[[range], T], rows: int) -> list[T]:
        if self._pool is None:
            return [work(range(rows))]
        edges = [rows * number // self._pool.workers for number in range(self._pool.workers + 1)]
        futures = [self._pool.submit(work, range(first, last)) for first, last in pairwise(edges) if first < last]
        return [self._pool.result(future, "validation") for future in futures]

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        digests = token_digests(tokens, lengths)
        self._contents.add(digests)
        self._on_checked(lengths.size)
        return digests


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

    def spread(self, work: Callable[[range], T], rows: int) -> list[T]:  # noqa: ARG002
        """Never called: no row is checked here."""
        return []

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        """Never called: no document is checked here."""
        return token_digests(tokens, lengths)
