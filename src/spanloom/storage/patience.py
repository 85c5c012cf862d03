"""Going on after dropped connections and 503s: pauses that grow, up to a deadline without any progress.

In: one try, who judges its faults, how far it got. Out: its result, or a StorageError with the last fault.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from spanloom.errors import StorageError
from spanloom.storage.objects import Store
from spanloom.storage.uri import Uri

T = TypeVar("T")

DEADLINE_VARIABLE = "SPANLOOM_STORAGE_DEADLINE"
DEADLINE_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
TOLD_AT_PAUSE = 1.0
"""The third fault in a row is told: a dropped connection is nothing to speak of, a silent wait is."""

_log = logging.getLogger(__name__)


class StoppedError(Exception):
    """Another transfer of the same set failed, or the user interrupted: this one ends where it is."""


def deadline_seconds() -> float:
    """How long a store may go without any progress: $SPANLOOM_STORAGE_DEADLINE, else 300 seconds."""
    text = os.environ.get(DEADLINE_VARIABLE) or str(DEADLINE_SECONDS)
    try:
        return float(text)
    except ValueError:
        raise StorageError(f"{DEADLINE_VARIABLE}={text!r} is not a number of seconds") from None


def keep_trying(
    attempt: Callable[[], T],
    *,
    store: Store,
    uri: Uri,
    progress: Callable[[], int] = lambda: 0,
    stop: threading.Event | None = None,
) -> T:
    """Calls `attempt` until it returns, a fault is not transient, or the deadline passes without more `progress()`.

    The pause doubles from 0.25 s to 30 s, less up to half of it by chance, so that many workers do not come back at
    once; any progress sets it back. Raises what `store.explained` makes of the fault.
    """
    patience = deadline_seconds()
    best, since, pause = progress(), time.monotonic(), FIRST_PAUSE
    while True:
        try:
            return attempt()
        except Exception as fault:
            if not store.is_transient(fault):
                if (explained := store.explained(fault, uri)) is None:
                    raise
                raise explained from fault
            if progress() > best:
                best, since, pause = progress(), time.monotonic(), FIRST_PAUSE
            if pause == TOLD_AT_PAUSE:
                _log.warning("no answer from %s (%s); trying again for up to %g s", uri, _one_line(fault), patience)
            if time.monotonic() - since + pause > patience:
                raise StorageError(
                    f"the store gave no answer to go on with for {patience:g} s; the last was: {_one_line(fault)}",
                    where=str(uri),
                    remedy="look at the network and the address (AWS_ENDPOINT_URL, STORAGE_EMULATOR_HOST), then run "
                    "the same command again: what is there stays; give it longer with "
                    f"{DEADLINE_VARIABLE}=seconds",
                ) from fault
        if (stop or threading.Event()).wait(pause * random.uniform(0.5, 1)):
            raise StoppedError
        pause = min(2 * pause, LONGEST_PAUSE)


def _one_line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:300] or type(fault).__name__
