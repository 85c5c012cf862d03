"""Progress: live bars on a terminal, a plain line now and then elsewhere, nothing when silent.

In: counters that workers write to. Out: what a person sees on stderr. stdout stays free for results.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from spanloom.workers import Counters

LIVE_SECONDS = 0.2
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
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

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

    @contextmanager
    def rendering(self, counters: Counters, rows: Sequence[int]) -> Iterator[None]:
        """Rows, tokens/s, rejects and time left of every shard; `rows` are the rows that each will read."""
        with self._watched(
            "render", counters, rows, lambda shard: counters.read(shard).rows, unit="rows", with_tokens=True
        ):
            yield

    @contextmanager
    def writing(self, counters: Counters, documents: Sequence[int]) -> Iterator[None]:
        """Documents written of every shard."""
        with self._watched("write", counters, documents, lambda shard: counters.read(shard).written, unit="documents"):
            yield

    @contextmanager
    def counting(self, verb: str, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Gives a callback `(done, total)` for work that runs in this process."""
        if self.mode is Mode.LIVE:
            with self._bars() as bars:
                task = bars.add_task(verb, total=None, rate="")
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
    def _watched(
        self,
        verb: str,
        counters: Counters,
        totals: Sequence[int],
        done: Callable[[int], int],
        *,
        unit: str,
        with_tokens: bool = False,
    ) -> Iterator[None]:
        """Polls the counters from a thread of its own while the block runs."""
        if self.mode is Mode.SILENT:
            yield
            return
        began = time.monotonic()

        def rate(shard: int) -> str:
            if not with_tokens:
                return ""
            count = counters.read(shard)
            per_second = count.tokens / max(time.monotonic() - began, 1e-9)
            return f"{per_second / 1e3:,.0f}k tokens/s  {count.rejects} rejects"

        ended = threading.Event()
        if self.mode is Mode.LIVE:
            with self._bars() as bars:
                tasks = [
                    bars.add_task(f"{verb} shard {shard:02d}", total=total, rate="")
                    for shard, total in enumerate(totals)
                ]

                def show() -> None:
                    for shard, task in enumerate(tasks):
                        bars.update(task, completed=done(shard), rate=rate(shard))

                with _polled(show, LIVE_SECONDS, ended):
                    yield
                show()
            return

        def lines() -> None:
            for shard, total in enumerate(totals):
                so_far = done(shard)
                if 0 < so_far < total:
                    left = (time.monotonic() - began) * (total - so_far) / so_far
                    extra = ", ".join(part for part in (rate(shard), f"{left:,.0f} s left") if part)
                    self.say(f"{verb} shard {shard:02d}: {so_far:,}/{total:,} {unit}, {extra}")

        with _polled(lines, LINE_SECONDS, ended):
            yield


@contextmanager
def _polled(show: Callable[[], None], seconds: float, ended: threading.Event) -> Iterator[None]:
    def poll() -> None:
        while not ended.wait(seconds):
            show()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
