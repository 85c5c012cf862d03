"""Worker processes: a pool that dies with its parent, and the counters through which it reports while it works.

In: a number of workers. Out: a pool to submit work to, and `Counters` that anyone may read at any time.
Processes, not threads: openai-harmony holds the GIL while it renders.
"""

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, TypeVar, cast
from weakref import WeakSet

from spanloom.errors import WorkerError
from spanloom.machine import keep_freed_memory
from spanloom.no_pandas import leave_out_pandas
from spanloom.options.shared import MAX_WORKERS

T = TypeVar("T")

OnProgress = Callable[[int, int], None]
"""Called with the amount done so far and the total; the function that takes the callback defines the unit."""

_FIELDS = ("rows", "tokens", "rejects", "written", "checked")


@dataclass(frozen=True, kw_only=True)
class ShardCount:
    """Progress of shards: source rows read, tokens rendered, rows rejected, documents written, documents checked."""

    rows: int
    tokens: int
    rejects: int
    written: int
    checked: int


class _Semaphore:
    """A semaphore without a name: bytes in a pipe, which end with the last process that has it.

    Those of multiprocessing have a name in shared memory where processes are spawned, and a kill of the whole group
    leaves it there for ever. The methods are those that `multiprocessing.Queue` and its like ask for.
    """

    def __init__(self, count: int) -> None:
        self._reader, self._writer = _SPAWN.Pipe(duplex=False)
        os.set_blocking(self._reader.fileno(), False)
        os.write(self._writer.fileno(), bytes(count))
        self._semlock = self  # `Queue.full` asks this one; the name is private, and there is no other way to be one

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return bool(os.read(self._reader.fileno(), 1))
            except BlockingIOError:
                left = None if until is None else until - time.monotonic()
                if not block or (left is not None and left <= 0):
                    return False
                self._reader.poll(left)

    def release(self) -> None:
        os.write(self._writer.fileno(), b"\0")

    def _is_zero(self) -> bool:
        return not self._reader.poll(0)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def _main_unnamed() -> Iterator[None]:
    """Hides where the main script is. A fresh process would import it first, and run what it does without a guard."""
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.get("__file__")
    main.__spec__ = None
    main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


class _Worker(SpawnProcess):
    """A fresh process, which imports only what its work names: work is of this package, never of a main script."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        # multiprocessing reads where the main script is at this place, and has no option to leave it out.
        with _main_unnamed():
            return SpawnProcess._Popen(process_obj)


class _SpawnContext(SpawnContext):
    """Fresh processes, and locks without names between them."""

    Process = _Worker

    def Lock(self) -> Any:
        return _Semaphore(1)

    def BoundedSemaphore(self, value: int = 1) -> Any:
        return _Semaphore(value)


_SPAWN = _SpawnContext()
ForkingPickler.register(ModuleType, lambda module: (import_module, (module.__name__,)))  # a family is a module


class Counters:
    """The progress of every shard, in memory that all workers share."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._values = _SPAWN.RawArray("q", shards * len(_FIELDS))
        self._lock = _SPAWN.Lock()

    def add(self, shard: int, **counts: int) -> None:
        """Adds to some of the fields of `ShardCount`."""
        with self._lock:
            for field, count in counts.items():
                self._values[shard * len(_FIELDS) + _FIELDS.index(field)] += count

    def read(self, shards: range) -> ShardCount:
        """The sums of these shards, which follow one another.

        Without the lock, which a worker that was killed may hold for ever: each number is whole by itself.
        """
        values = self._values[shards.start * len(_FIELDS) : shards.stop * len(_FIELDS)]
        return ShardCount(**{field: sum(values[at :: len(_FIELDS)]) for at, field in enumerate(_FIELDS)})


COLLECT_AFTER = 20_000
"""Objects made, less those freed, after which a worker looks for garbage. Imports make many and leave next to none;
what is parsed has no cycles and goes with its batch."""


LOOK_SECONDS, NOTICED_SECONDS = 1.0, 10.0
"""How often a pool looks for a worker that died, and how long the executor may take to notice."""


class Pool:
    """A process pool whose failures name the work that was lost."""

    def __init__(self, executor: ProcessPoolExecutor, workers: int) -> None:
        self._executor, self.workers = executor, workers

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> "Future[T]":
        # A worker is started here when there are too few. It inherits the mask, so that Ctrl-C, which goes to the whole
        # process group, does not end it with a traceback while it is still importing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        method = cast("str | None", multiprocessing.get_start_method(allow_none=True))
        try:
            future = self._executor.submit(work, *arguments, **named)
        except BrokenProcessPool as broken:
            raise self._died("before it was given more work") from broken
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if method is None:  # multiprocessing fixes one when it spawns: the caller could not set his own any more
                multiprocessing.set_start_method(None, force=True)
        return future

    def result(self, future: "Future[T]", what: str) -> T:
        """The outcome of submitted work; `what` names it for the message when its process died."""
        try:
            return future.result()
        except BrokenProcessPool as broken:
            raise self._died(f"while the pool was busy with {what}") from broken

    def abort(self) -> None:
        """Ends the workers at once. Their results are not wanted any more, and files are only renamed in when whole."""
        self._end_workers()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _end_workers(self) -> None:
        for process in self._processes():
            process.terminate()
        # A worker that is ended while it sends a result leaves a part of it, and the executor's thread waits for the
        # rest: until the pipe ends, which it does not do while this process may write to it.
        if (results := self._executor._result_queue) is not None:
            results._writer.close()  # type: ignore[attr-defined]

    def _processes(self) -> "list[BaseProcess]":
        return list((self._executor._processes or {}).values())

    def watch(self, left: threading.Event) -> None:
        """Ends all workers where one has died and the executor does not notice, since it waits for the rest of a result
        that this one was sending: when the system killed it, for want of memory. Returns when `left` is set."""
        while not left.wait(LOOK_SECONDS):
            if wait([process.sentinel for process in self._processes()], timeout=0):
                if not (left.wait(NOTICED_SECONDS) or self._executor._broken):
                    self._end_workers()
                return

    def _died(self, when: str) -> WorkerError:
        return WorkerError(
            f"a worker process died {when} (killed, or out of memory)",
            remedy="run the same command again; a build keeps its finished parts. With too little memory, lower "
            "--workers",
        )


@contextmanager
def process_pool(
    workers: int, counters: Counters | None = None, *, ahead: Callable[[], object] | None = None
) -> Iterator[Pool]:
    """A pool of `workers` fresh processes. Leaving the block by an exception drops the work that has not begun.

    Each calls `ahead` first of all, before it imports what its work needs: to begin what takes a while and must not be
    waited for.
    """
    if workers > MAX_WORKERS:
        raise WorkerError(
            f"{workers:,} worker processes are more than {MAX_WORKERS:,}",
            remedy="give fewer, such as the number of CPUs",
        )
    if multiprocessing.current_process().daemon:
        raise WorkerError(
            "Python lets a daemonic process, such as a worker of multiprocessing.Pool, start no processes",
            remedy="call it in a concurrent.futures.ProcessPoolExecutor, or in a process that is not daemonic",
        )
    # Spawning starts this process too, which lets SIGINT through again: not between the mask in `submit` and a worker.
    resource_tracker.ensure_running()
    executor = ProcessPoolExecutor(workers, mp_context=_SPAWN, initializer=_start_worker, initargs=(counters, ahead))
    pool, left = Pool(executor, workers), threading.Event()
    threading.Thread(target=pool.watch, args=(left,), daemon=True).start()
    try:
        yield pool
    except BaseException:
        left.set()
        pool.abort()
        raise
    else:
        left.set()
        executor.shutdown(wait=True)


def import_ahead(module: str) -> None:
    """Imports a module in a worker, before work needs it."""
    import_module(module)


counters_here: Counters | None = None
"""In a worker: the counters of the run it belongs to."""


@contextmanager
def counting_here(counters: Counters) -> Iterator[None]:
    """This process counts as a worker does, while the block runs: for work without a pool."""
    global counters_here
    before, counters_here = counters_here, counters
    try:
        yield
    finally:
        counters_here = before


def _start_worker(counters: Counters | None, ahead: Callable[[], object] | None) -> None:
    global counters_here
    counters_here = counters
    gc.set_threshold(COLLECT_AFTER)
    keep_freed_memory()
    leave_out_pandas()
    # Ctrl-C goes to the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if ahead is not None:
        ahead()


def end_at_once() -> None:
    """Lets this process, a torch DataLoader's worker, end without taking its libraries apart.

    A loader that is left in the middle of a pass ends its workers while pyarrow and tokenizers have threads at work.
    Taking those down with the interpreter sometimes aborts ("terminate called without an active exception"), which
    torch then reports of the worker. Batches are delivered by then: this is multiprocessing's own last step.
    """
    if multiprocessing.parent_process() is not None:  # there is no public hook: `atexit` is not run in a worker
        Finalize(None, os._exit, args=(0,), exitpriority=-(1 << 30))


_open_passes: WeakSet[Generator[Any, None, None]] = WeakSet()


def passing(loader: Iterable[T]) -> Generator[T, None, None]:
    """A pass over a torch DataLoader, begun at once. It ends its workers itself, however it is left.

    Without this, what prints is up to chance. Where Python exits in the middle of a pass, multiprocessing sends the
    workers SIGTERM; Ctrl-C sends SIGINT to the whole group. A worker that is still importing dies of either, and
    torch reports that as "DataLoader worker is killed by signal".
    """
    if getattr(loader, "num_workers", 0):
        resource_tracker.ensure_running()  # begun by the first worker, it would let SIGINT through again
    with _interrupts_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers inherit it
        try:
            batches = iter(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        begun = _ended(batches)
        # Exit functions run last in, first out: this must come before multiprocessing's, and before torch's, which
        # turns the ending of workers off. Both are registered by imports that may come after this module's.
        atexit.unregister(_close_passes)
        atexit.register(_close_passes)
        _open_passes.add(begun)
        next(begun)
    return begun


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Holds back Ctrl-C, and raises it at the end.

    A mask of this thread is not enough: another thread, such as one of torch's, then takes the signal, and Python
    raises KeyboardInterrupt in the main thread all the same. Only the main thread may set a handler, and Python raises
    nothing in others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if held:
            signal.raise_signal(signal.SIGINT)


def _ended(batches: Iterator[Any]) -> Generator[Any, None, None]:
    try:
        yield  # begun: from here on, closing it ends the workers
        yield from batches
    finally:
        # What `del batches` does, unless a traceback still holds it. torch has no public name for it.
        if end := getattr(batches, "_shutdown_workers", None):
            end()


def _close_passes() -> None:
    for begun in list(_open_passes):
        with suppress(ValueError):  # it is running, in a thread that ends with the process
            begun.close()
    # Each queue to a worker was fed by a daemon thread. It unlinks the locks of its queue, then tells the resource
    # tracker so; where the interpreter stops it in between, the tracker warns of leaked semaphores.
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(1)


def _die_with_parent() -> None:
    """Without this, a worker of a killed parent keeps writing into a directory that the next run already uses."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
