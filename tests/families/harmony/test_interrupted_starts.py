"""Ctrl-C while the shards of a build are being handed to its threads ends the build at once."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from spanloom.families.harmony.build import _for_each_shard
from spanloom.workers import Pool

SHARDS = 200
WAIT = 20.0
"""Seconds that a shard waits for its workers; reached only when the test fails."""


class Workers:
    """What a shard's thread waits for, until the pool is aborted."""

    def __init__(self) -> None:
        self.aborted = threading.Event()

    def abort(self) -> None:
        self.aborted.set()


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background lets them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_during_the_first_start_aborts_the_pool() -> None:
    workers, waited_in_vain = Workers(), threading.Event()

    def render(shard: int) -> dict[str, Any]:
        if shard == 0:
            os.kill(os.getpid(), signal.SIGINT)
        if not workers.aborted.wait(WAIT):
            waited_in_vain.set()
        return {}

    with pytest.raises(KeyboardInterrupt):
        _for_each_shard(render, SHARDS, cast(Pool, workers))
    assert workers.aborted.is_set()
    assert not waited_in_vain.is_set()
