"""Several pieces of one object transferred at once, finished in order: ranges of a download, parts of an upload.

In: jobs, and slots shared by all objects, which bound the number of pieces in memory. Out: the results, in the order of
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
    """Runs the jobs in threads, at most `at_once` and only with free slots; yields the results in order.

    A job is taken from `jobs` when there is a slot for it. Its slot is released when the next result is requested, so
    there are never more pieces in memory than slots. An object waits for a slot only while it holds none, so objects
    that share slots cannot deadlock.

    Raises the error of the first job that failed, in order, and StoppedError if `stop` is set. When the iterator ends,
    no job is running; close an iterator that is not exhausted.
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
    """Takes a slot; without `wait`, only if one is free. Returns whether it was taken."""
    while wait:
        if slots.acquire(timeout=LOOK_SECONDS):
            return True
        _check(stop)
    return slots.acquire(blocking=False)


def _check(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise StoppedError
