"""Retries after dropped connections and 503s: growing pauses, up to a deadline without progress.

In: a function that tries once, the store that classifies its errors, its progress. Out: its result, or a
StoreGivenUpError with the last error. A try that hangs, or is too slow, is abandoned at the deadline.
"""

import io
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from spanloom.errors import StorageError, StoreGivenUpError
from spanloom.storage.stores.objects import Store
from spanloom.storage.uri import Uri

T = TypeVar("T")

DEADLINE_VARIABLE = "SPANLOOM_STORAGE_DEADLINE"
DEADLINE_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
TOLD_AT_PAUSE = 1.0
"""The pause, in seconds, after the third error in a row, which is logged: fewer dropped connections are normal."""
SLOWEST = 1024
"""Bytes a second. A slower transfer, on average over the deadline, counts as no progress."""
LOOK_SECONDS = 0.25
"""Seconds between two looks at a running try."""

_log = logging.getLogger(__name__)


class StoppedError(Exception):
    """Another transfer of the same set failed, or the user interrupted: this one is aborted."""


def deadline_seconds(default: float = DEADLINE_SECONDS) -> float:
    """Seconds that a store may make no progress: $SPANLOOM_STORAGE_DEADLINE, else `default`. Raises StorageError for an
    invalid value."""
    text = os.environ.get(DEADLINE_VARIABLE) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:  # refuses NaN, too: no time is later than NaN
        raise StorageError(f"{DEADLINE_VARIABLE}={text!r} is not a number of seconds above 0")
    return seconds


def keep_trying(
    attempt: Callable[[], T],
    *,
    store: Store,
    uri: Uri,
    progress: Callable[[], int] = lambda: 0,
    enough: float | None = None,
    stop: threading.Event | None = None,
) -> T:
    """Calls `attempt` until it returns, an error is not transient, or the deadline passes without enough `progress()`.

    `progress()`: the most it has reached so far, by default in bytes. `enough`: how much it must grow within the
    deadline, by default SLOWEST bytes a second. The pause doubles from 0.25 s to 30 s, shortened at random by up to a
    half, so that many workers do not retry at once; enough progress resets it. Raises the error that `store.explained`
    returns, StoreGivenUpError at the deadline, StoppedError when `stop` is set.

    Each try runs in a thread of its own: a connection that hangs, or is very slow, cannot be interrupted otherwise. An
    abandoned try stays in its daemon thread, which does not keep the process alive.
    """
    deadline = deadline_seconds()
    enough = SLOWEST * deadline if enough is None else enough
    mark, since, pause = progress(), time.monotonic(), FIRST_PAUSE

    def left() -> float:
        """Seconds until the deadline."""
        nonlocal mark, since, pause
        if (now_at := progress()) > mark and now_at >= mark + enough:
            mark, since, pause = now_at, time.monotonic(), FIRST_PAUSE
        return since + deadline - time.monotonic()

    last_fault = ""
    while True:
        tried = _begun(attempt)
        while not tried.done():
            if stop is not None and stop.is_set():
                raise StoppedError
            if (rest := left()) <= 0:
                raise _given_up(f"too little came, or nothing{last_fault}", deadline, uri)
            wait([tried], timeout=min(rest, LOOK_SECONDS))
        fault = tried.exception()
        if fault is None:
            return tried.result()
        if not isinstance(fault, Exception) or not store.is_transient(fault):
            explained = store.explained(fault, uri) if isinstance(fault, Exception) else None
            if explained is None:
                raise fault
            raise explained from fault
        rest, last_fault = left(), f"; the last was: {_one_line(fault)}"
        if pause == TOLD_AT_PAUSE:
            _log.warning("no answer from %s (%s); trying again for up to %g s", uri, _one_line(fault), deadline)
        if pause > rest:
            raise _given_up(last_fault.removeprefix("; "), deadline, uri) from fault
        if (stop or threading.Event()).wait(pause * random.uniform(0.5, 1)):
            raise StoppedError
        pause = min(2 * pause, LONGEST_PAUSE)


def _begun(attempt: Callable[[], T]) -> "Future[T]":
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(attempt())
        except BaseException as fault:
            future.set_exception(fault)

    threading.Thread(target=run, daemon=True, name="spanloom-transfer").start()
    return future


def _given_up(why: str, deadline: float, uri: Uri) -> StoreGivenUpError:
    return StoreGivenUpError(
        f"the store gave no usable answer for {deadline:g} s; {why}",
        where=str(uri),
        remedy="look at the network and the address (AWS_ENDPOINT_URL, STORAGE_EMULATOR_HOST), then run "
        f"the same command again: what is there stays; give it longer with {DEADLINE_VARIABLE}=seconds",
    )


def _one_line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:300] or type(fault).__name__


_this_thread = threading.local()


def keep_sending(
    attempt: Callable[[], T],
    *,
    store: Store,
    uri: Uri,
    stop: threading.Event | None,
    before: Callable[[], int] = lambda: 0,
) -> T:
    """`keep_trying` for an upload. Progress: the bytes of the request body sent, after `before()` bytes stored."""
    furthest = 0

    def sent(count: int) -> None:
        nonlocal furthest
        furthest = max(furthest, before() + count)

    def counting() -> T:
        _this_thread.sent = sent
        return attempt()

    return keep_trying(counting, store=store, uri=uri, progress=lambda: furthest, stop=stop)


def counted(body: object) -> object:
    """The body of a request: within `keep_sending`, a stream that counts the bytes sent. For the clients' hooks."""
    sent = getattr(_this_thread, "sent", None)
    if sent is None or not body:
        return body
    if isinstance(body, io.BytesIO):  # boto3 wraps bytes in one
        body = body.getvalue()
    return _SentBytes(body, sent) if isinstance(body, bytes | bytearray) else body


class _SentBytes(io.BytesIO):
    """A request body that reports how many bytes the client has read for sending."""

    def __init__(self, data: bytes | bytearray, sent: Callable[[int], None]) -> None:
        super().__init__(data)
        self._sent = sent

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._sent(self.tell())
        return data
