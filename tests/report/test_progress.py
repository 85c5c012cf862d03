"""The speed and the time left that a bar shows."""

import re
from io import StringIO
from itertools import count

import pytest
from rich.console import Console

from spanloom.report import progress
from spanloom.workers import Counters


def test_a_resumed_shard_shows_the_speed_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 rows of 1,000 were finished before: 100 more in 10 seconds are 10 a second, and 300 are left: 30 seconds."""
    counters = Counters(1)
    clock = count(0, 10)
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    meter = progress._Meter(
        "render", counters, range(1), 1000, "rows", lambda done, seconds: f"{done.rows / seconds} rows/s"
    )
    assert meter.read() == (0, "starting", 0.0)
    counters.add(0, rows=600, tokens=6)
    assert meter.read() == (600, "", 0.0)
    counters.add(0, rows=100, tokens=1)
    assert meter.read() == (700, "10.0 rows/s", 30.0)


@pytest.mark.parametrize(("shards", "bars"), [(16, 16), (17, 1), (100, 1)])
def test_many_shards_share_a_bar_that_counts_them_all(shards: int, bars: int) -> None:
    counters = Counters(shards)
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=50)
    with progress.Progress(console, progress.Mode.LIVE).rendering(counters, [10] * shards):
        for shard in range(shards):
            counters.add(shard, rows=shard % 7, tokens=1)
    names = set(re.findall(r"render (?:shard \d+|\d+ shards)", screen.getvalue()))
    assert len(names) == bars
    if bars == 1:
        assert f"{sum(shard % 7 for shard in range(shards))}/{10 * shards}" in screen.getvalue()
