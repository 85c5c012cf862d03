"""The process that validates: it loads the reader, of which Megatron's takes seconds, while others check and render.

In: nothing. Out: a pool of that one process, and how far it is. It keeps the memory of torch out of the process that
starts it. Imports next to nothing, so that a command can begin with this and import its libraries meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spanloom.megatron.readers import ReaderChoice, chosen_reader, load_reader
from spanloom.workers import Counters, Pool, process_pool


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The process that validates, and how many documents it has checked."""

    pool: Pool
    counters: Counters


@contextmanager
def validating_process(reader: ReaderChoice = "auto") -> Iterator[Validator]:
    """Starts the process, and ends it with the block. Raises SpanloomError where there is no such reader."""
    chosen = chosen_reader(reader)
    counters = Counters(1)
    with process_pool(1, counters) as pool:
        pool.submit(load_reader, chosen)
        yield Validator(pool=pool, counters=counters)
        pool.abort()  # it has nothing left to do, and torch takes a second to end by itself
