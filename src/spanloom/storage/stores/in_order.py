"""Pieces of one object under way at once, finished in order: ranges of a download, parts of an upload.

In: jobs, and slots that all objects share, which bound how many pieces are in memory. Out: the results, in the order of
the jobs.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from spanloom.storage.stores.retry import LOOK_SECONDS, StoppedError

T = TypeVar("T")

Job = Callable[[threading.Event], T]
"""A piece of work; it ends soon after the event is set."""


def in_order(
    jobs: Iterable[Job[T]], slots: threading.Semaphore, at_once: int, stop: threading.Event | None
) -> Generator[T, None, None]:
    """Runs the jobs in threads, `at_once` at most and no more than there are free slots; yields each result in turn.

    A job is taken from `jobs` when there is a slot for it. The slot is free again when the next result is requested, so
    no more pieces are in memory than there are slots. An object waits for a slot only while it holds none, so objects
    that share slots cannot wait for each other in a circle.

    Raises what the first job in order raised, and StoppedError when `stop` is set. No job runs any more when this ends;
    close the iterator where it is not read to its end.
    """
    waiting = iter(jobs)
    running: deque[Future[T]] = deque()
    halt = threading.Event()
    exhausted = False
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="spanloom-piece")
    try:
        while True:
            while not exhausted and len(running) < at_once and _slot(slots, stop, wait=not running):
                try:
                    job = next(waiting, None)
                except BaseException:
                    slots.release()
                    raise
                if job is None:
                    slots.release()
                    exhausted = True
                else:
                    running.append(threads.submit(job, halt))
            if not running:
                return
            while not wait([running[0]], timeout=LOOK_SECONDS).done:
                _check(stop)
            yield running[0].result()
            running.popleft()
            slots.release()
    finally:
        halt.set()
        threads.shutdown(wait=True, cancel_futures=True)
        for _ in running:
            slots.release()


def _slot(slots: threading.Semaphore, stop: threading.Event | None, *, wait: bool) -> bool:
    """Takes a slot; without `wait` only where there is a free one."""
    while wait:
        if slots.acquire(timeout=LOOK_SECONDS):
            return True
        _check(stop)
    return slots.acquire(blocking=False)


def _check(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise StoppedError
