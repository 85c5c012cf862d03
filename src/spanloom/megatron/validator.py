"""The validating process. It imports its libraries while other processes check and render.

In: nothing. Out: a pool of that one process, and its progress. This module imports almost nothing, so that a command
can start the process first and import its own libraries at the same time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spanloom.megatron.readers import ReaderChoice, chosen_reader
from spanloom.workers import Counters, Pool, import_ahead, process_pool


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The validating process, and the number of documents that it has checked."""

    pool: Pool
    counters: Counters


@contextmanager
def validating_process(reader: ReaderChoice = "auto") -> Iterator[Validator]:
    """Starts the process, and ends it with the block. Raises SpanloomError if the reader is not installed."""
    chosen_reader(reader)
    counters = Counters(1)
    with process_pool(1, counters) as pool:
        pool.submit(import_ahead, "spanloom.dataset.validate.dataset")
        yield Validator(pool=pool, counters=counters)
        pool.abort()  # its work is done
