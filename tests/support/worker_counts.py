"""What a worker process does in tests of its counters and of its memory."""

import os
import resource
from pathlib import Path

import numpy as np

from spanloom import workers


def count(times: int) -> None:
    """Adds to shard 0, one at a time."""
    assert workers.counters_here is not None
    for _ in range(times):
        workers.counters_here.add(0, rows=1, tokens=2)


def page_faults(items: int, times: int) -> list[int]:
    """Pages that the system gives for an array of `items` bytes, made, filled and freed, one time after another."""
    faults = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(items, dtype=np.uint8)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return faults


def much(begun: Path, size: int) -> bytes:
    """Says in a file, by the number of its process, that it is about to return so many bytes."""
    begun.write_text(str(os.getpid()))
    return bytes(size)
