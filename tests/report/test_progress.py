"""The speed and the time left that a bar shows."""

from itertools import count

import pytest

from spanloom.report import progress
from spanloom.workers import Counters


def test_a_resumed_shard_shows_the_speed_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 rows of 1,000 were finished before: 100 more in 10 seconds are 10 a second, and 300 are left: 30 seconds."""
    counters = Counters(1)
    clock = count(0, 10)
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    meter = progress._Meter("render", counters, 0, 1000, "rows", lambda done, seconds: f"{done.rows / seconds} rows/s")
    assert meter.read() == (0, "starting", 0.0)
    counters.add(0, rows=600, tokens=6)
    assert meter.read() == (600, "", 0.0)
    counters.add(0, rows=100, tokens=1)
    assert meter.read() == (700, "10.0 rows/s", 30.0)
