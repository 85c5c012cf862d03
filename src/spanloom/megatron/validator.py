"""The validating process. It loads the reader (Megatron's takes seconds) while other processes check and render.

In: nothing. Out: a pool of that one process, and its progress. It keeps the memory of torch out of the process that
starts it. Imports almost nothing, so that a command can start it first and import its libraries at the same time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spanloom.megatron.readers import ReaderChoice, chosen_reader, load_reader
from spanloom.workers import Counters, Pool, process_pool


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The validating process, and the number of documents that it has checked."""

    pool: Pool
    counters: Counters


@contextmanager
def validating_process(reader: ReaderChoice = "auto") -> Iterator[Validator]:
    """Starts the process, and ends it with the block. Raises SpanloomError if the reader is not installed."""
    chosen = chosen_reader(reader)
    counters = Counters(1)
    with process_pool(1, counters) as pool:
        pool.submit(load_reader, chosen)
        yield Validator(pool=pool, counters=counters)
        pool.abort()  # its work is done, and torch takes a second to exit
