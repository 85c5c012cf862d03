"""Progress: live bars on a terminal, a plain line now and then elsewhere, nothing when silent.

In: counters that workers write to. Out: what a person sees on stderr. stdout stays free for results.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from spanloom.text import visible
from spanloom.workers import Counters, ShardCount

MOST_BARS = 16
"""With more shards one bar counts them all: a terminal has some 24 lines."""

POLL_SECONDS = 0.2
LINE_SECONDS = 10.0


class Mode(Enum):
    LIVE = "live"
    LINES = "lines"
    SILENT = "silent"


class Progress:
    """Says what is going on, in one of three modes, and keeps the seconds of each stage in `timings`."""

    def __init__(self, console: Console | None = None, mode: Mode | None = None, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self.console = console or Console(stderr=True)
        self.mode = mode or (Mode.LIVE if self.console.is_terminal else Mode.LINES)
        self.timings: dict[str, float] = {}

    def say(self, line: str) -> None:
        if self.mode is not Mode.SILENT:
            self.console.print(Text(visible(line)), soft_wrap=True)

    def detail(self, line: str) -> None:
        """Something that only `--verbose` wants to know."""
        if self.verbose:
            self.say(line)

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Times a stage and says when it ends."""
        began = time.monotonic()
        if self.mode is Mode.LINES:
            self.say(f"{name} …")
        yield
        self.timings[name] = round(time.monotonic() - began, 3)
        self.say(f"{name} done in {self.timings[name]:.1f} s{detail and ': ' + detail}")

    def rendering(self, counters: Counters, rows: Sequence[int]) -> AbstractContextManager[None]:
        """Rows, tokens/s, rejects and time left of every shard; `rows` are the rows that each will read."""

        def rate(count: ShardCount, seconds: float) -> str:
            return f"{count.tokens / seconds / 1e3:,.0f}k tokens/s  {count.rejects} rejects"

        return self._watched("rows", _meters("render", counters, rows, "rows", rate))

    def writing(self, counters: Counters, documents: Sequence[int]) -> AbstractContextManager[None]:
        """Documents written of every shard."""
        return self._watched("documents", _meters("write", counters, documents, "written"))

    def checking(self, counters: Counters, documents: int) -> AbstractContextManager[None]:
        """Documents validated, counted as those of shard 0."""
        return self._watched("documents", [_Meter("validate", counters, range(1), documents, "checked")])

    @contextmanager
    def counting(self, verb: str, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Gives a callback `(done, total)` for work that runs in this process."""
        if self.mode is Mode.LIVE:
            with self._bars() as bars:
                task = bars.add_task(f"{verb} {unit}", total=None, rate="")
                yield lambda done, total: bars.update(task, completed=done, total=total)
            return
        last = time.monotonic()

        def line(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_SECONDS:
                last = time.monotonic()
                self.say(f"{verb}: {done:,}/{total:,} {unit}")

        yield line

    def _bars(self) -> Bars:
        return Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )

    @contextmanager
    def _watched(self, unit: str, meters: Sequence["_Meter"]) -> Iterator[None]:
        """Reads the meters from a thread of its own while the block runs."""
        if self.mode is Mode.SILENT:
            yield
        elif self.mode is Mode.LIVE:
            with self._bars() as bars:
                tasks = [bars.add_task(meter.name, total=meter.total, rate="") for meter in meters]

                def show() -> None:
                    for task, meter in zip(tasks, meters, strict=True):
                        done, rate, _ = meter.read()
                        bars.update(task, completed=done, rate=rate)

                with _polled(show):
                    yield
        else:
            last = time.monotonic()

            def show_lines() -> None:
                nonlocal last
                readings = [meter.read() for meter in meters]
                if time.monotonic() - last < LINE_SECONDS:
                    return
                last = time.monotonic()
                for meter, (done, rate, left) in zip(meters, readings, strict=True):
                    if left:
                        self.say(f"{meter.name}: {done:,}/{meter.total:,} {unit}, {rate}, {left:,.0f} s left")

            with _polled(show_lines):
                yield


Rate = Callable[[ShardCount, float], str]
"""What was done in so many seconds, in words."""


def _meters(
    verb: str, counters: Counters, totals: Sequence[int], counted: str, rate: Rate | None = None
) -> "list[_Meter]":
    """One meter a shard, or a single one where there are many; `totals`: what each shard has to do."""
    if len(totals) > MOST_BARS:
        return [_Meter(f"{verb} {len(totals)} shards", counters, range(len(totals)), sum(totals), counted, rate)]
    return [
        _Meter(f"{verb} shard {shard:02d}", counters, range(shard, shard + 1), total, counted, rate)
        for shard, total in enumerate(totals)
    ]


@dataclass
class _Meter:
    """The counters of some shards over time. Its rate counts from when it first moved: shards wait for their turn, and
    what a run before has finished is counted at once.

    `counted`: the counter that `total` is of; `rate`: how fast it goes, in words, by default documents a second.
    """

    name: str
    counters: Counters
    shards: range
    total: int
    counted: str
    rate: Rate | None = None
    _moved: tuple[float, ShardCount] | None = None

    def read(self) -> tuple[int, str, float]:
        """How far the shards are, how fast, and how many seconds are left at this speed."""
        count = self.counters.read(self.shards)
        done: int = getattr(count, self.counted)
        if not done:
            return 0, "starting", 0.0
        now = time.monotonic()
        began, before = self._moved = self._moved or (now, count)
        seconds = now - began
        fresh = done - getattr(before, self.counted)
        if not fresh:
            return done, "", 0.0
        rate = self.rate(_since(before, count), seconds) if self.rate else f"{fresh / seconds:,.0f} documents/s"
        return done, rate, seconds * max(self.total - done, 0) / fresh


def _since(before: ShardCount, now: ShardCount) -> ShardCount:
    """What came after `before`; rejected rows are those of the whole shard."""
    return replace(now, rows=now.rows - before.rows, tokens=now.tokens - before.tokens)


@contextmanager
def _polled(show: Callable[[], None]) -> Iterator[None]:
    """Calls `show` every `POLL_SECONDS` while the block runs, and once more at its end."""
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(POLL_SECONDS):
            show()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        show()
