"""Jobs done by worker processes, with their results in the order of the jobs.

In: jobs, a function, a pool or None for this process. Out: each job with its result. Few jobs are under way at once, so
memory does not grow with their number. Results do not depend on the number of workers.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from spanloom.workers import Pool, process_pool

J = TypeVar("J")
T = TypeVar("T")


def pool_of(workers: int) -> AbstractContextManager[Pool | None]:
    """A pool; for one worker None: this process does the work."""
    return process_pool(workers) if workers > 1 else nullcontext()


def in_order(
    jobs: Iterable[J],
    work: Callable[[J], T],
    pool: Pool | None,
    *,
    what: Callable[[J], str],
    at_once: int | None = None,
) -> Iterator[tuple[J, T]]:
    """Yields each job with `work(job)`. The first exception of `work` ends the iteration.

    `jobs`: taken only when a worker can be given one. `what`: names a job in the message when its worker died.
    `at_once`: how many jobs are under way; None: two per worker. With 1, a job is taken after the caller has handled
    the result of the job before it, so it may depend on that result.
    """
    if pool is None:
        for job in jobs:
            yield job, work(job)
        return
    most = at_once or 2 * pool.workers
    waiting = iter(jobs)
    under_way: deque[tuple[J, Future[T]]] = deque()
    while True:
        while len(under_way) < most:
            try:
                job = next(waiting)
            except StopIteration:
                break
            under_way.append((job, pool.submit(work, job)))
        if not under_way:
            return
        job, future = under_way.popleft()
        yield job, pool.result(future, what(job))
