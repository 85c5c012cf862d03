"""Progress: live bars on a terminal, otherwise an occasional plain line, nothing when silent.

In: counters that workers write to. Out: progress on stderr. stdout stays free for results.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from spanloom.options.shared import OnStage
from spanloom.presentable import presentable
from spanloom.text import visible
from spanloom.workers import Counters, ShardCount

MOST_BARS = 16
"""With more shards, one bar counts all of them: a terminal has some 24 lines."""

POLL_SECONDS = 0.2
LINE_SECONDS = 10.0


class Mode(Enum):
    LIVE = "live"
    LINES = "lines"
    SILENT = "silent"
    CALLED = "called"


class Progress:
    """Reports progress in one of three modes, and records the seconds of each stage in `timings`."""

    def __init__(self, console: Console | None = None, mode: Mode | None = None, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self.console = console or Console(stderr=True)
        self.mode = mode or (Mode.LIVE if self.console.is_terminal else Mode.LINES)
        self.timings: dict[str, float] = {}
        self.on_stage: OnStage | None = None

    @classmethod
    def given(cls, progress: bool | OnStage) -> "Progress":
        """The progress of a function of the Python API: True prints to stderr, False nothing, a function is called."""
        if isinstance(progress, bool):
            return cls(mode=None if progress else Mode.SILENT)
        made = cls(mode=Mode.CALLED)
        made.on_stage = progress
        return made

    def say(self, line: str) -> None:
        if self.mode in (Mode.LIVE, Mode.LINES):
            self.console.print(Text(visible(presentable(line))), soft_wrap=True)

    def detail(self, line: str) -> None:
        """Prints a line only with `--verbose`."""
        if self.verbose:
            self.say(line)

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Times a stage and reports its end."""
        began = time.monotonic()
        if self.mode is Mode.LINES:
            self.say(f"{name} …")
        yield
        self.timings[name] = round(time.monotonic() - began, 3)
        self.say(f"{name} done in {self.timings[name]:.1f} s{detail and ': ' + detail}")

    def rendering(
        self, counters: Counters, rows: Sequence[int], *, verb: str = "render"
    ) -> AbstractContextManager[None]:
        """Shows rows, tokens/s, rejects and time left of every shard. `rows`: number of rows of each shard."""

        def rate(count: ShardCount, seconds: float) -> str:
            return f"{count.tokens / seconds / 1e3:,.0f}k tokens/s  {count.rejects} rejects"

        return self._watched("rows", _meters(verb, counters, rows, "rows", rate))

    def writing(self, counters: Counters, documents: Sequence[int]) -> AbstractContextManager[None]:
        """Shows the documents written, per shard."""
        return self._watched("documents", _meters("write", counters, documents, "written"))

    def checking(self, counters: Counters, documents: int, unit: str = "documents") -> AbstractContextManager[None]:
        """Shows the documents validated; they are counted in shard 0."""
        return self._watched(unit, [_Meter("validate", counters, range(1), documents, "checked")])

    @contextmanager
    def counting(self, verb: str, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Yields a callback `(done, total)` for work that runs in this process."""
        if self.on_stage is not None:
            yield partial(self.on_stage, verb)
            return
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
        """Reads the meters from its own thread while the block runs."""
        if self.mode is Mode.SILENT:
            yield
        elif (on_stage := self.on_stage) is not None:

            def call() -> None:
                for meter in meters:
                    on_stage(meter.name, meter.read()[0], meter.total)

            with _polled(call):
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
"""Formats the work done in a number of seconds."""


def _meters(
    verb: str, counters: Counters, totals: Sequence[int], counted: str, rate: Rate | None = None
) -> "list[_Meter]":
    """One meter per shard, or a single one if there are more than MOST_BARS; `totals`: the work of each shard."""
    if len(totals) > MOST_BARS:
        return [_Meter(f"{verb} {len(totals)} shards", counters, range(len(totals)), sum(totals), counted, rate)]
    return [
        _Meter(f"{verb} shard {shard:02d}", counters, range(shard, shard + 1), total, counted, rate)
        for shard, total in enumerate(totals)
    ]


@dataclass
class _Meter:
    """The counters of some shards over time. The rate is measured from the first change: shards wait for their turn,
    and the work of an earlier run is counted at once.

    `counted`: the counter that counts up to `total`; `rate`: formats the speed, by default documents per second.
    """

    name: str
    counters: Counters
    shards: range
    total: int
    counted: str
    rate: Rate | None = None
    _moved: tuple[float, ShardCount] | None = None

    def read(self) -> tuple[int, str, float]:
        """How much is done, the speed, and the seconds left at this speed."""
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
    """The counts since `before`; rejects stay those of the whole shard."""
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
