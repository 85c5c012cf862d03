"""Finds digests that occur more than once, in memory that does not grow with their number.

In: digests of ids or of documents' tokens, uint64, in any order, or files of sorted digests. Out: those that occur more
than once, ascending.

Up to `at_once` digests are sorted in memory, and nothing is written. More digests are written to a temporary folder in
sorted runs of that length, 8 bytes a digest. Then one range of values after the other is read from all runs. A range
with more than `at_once` digests is halved until each part fits.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from spanloom.storage.temporaries import temporary_folder

Digests = npt.NDArray[np.uint64]

AT_ONCE = 1 << 26
"""Digests held at once: 512 MiB. Twice that is used while a range is searched for equal neighbours."""
CANDIDATES = 1 << 20
"""Digests that `repeated` yields at once: bounds the memory of the caller if many ids are equal."""
_HIGHEST = (1 << 64) - 1
_STORED = np.dtype("<u8")


class _Run(Sequence[int]):
    """Sorted digests in a file, from number `first` up to `last`. Read, not memory-mapped: mapped pages would count as
    memory of the process."""

    def __init__(self, path: Path, first: int = 0, last: int | None = None) -> None:
        self._path, self._first = path, first
        self._size = (path.stat().st_size // _STORED.itemsize if last is None else last) - first

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: Any) -> Any:
        return int(self.read(at, at + 1)[0])

    def place(self, digest: int) -> int:
        """The number of digests in the run that are below `digest`."""
        return bisect_left(self, digest)

    def read(self, first: int, last: int) -> Digests:
        """The digests from number `first` up to `last`, uint64 [last - first]."""
        return np.fromfile(self._path, _STORED, last - first, offset=(self._first + first) * _STORED.itemsize)


class DigestRuns:
    """A collection of digests; several threads may add to it. Use it in a `with` block, which removes its files.

    expected    estimated number of digests; decides the memory that is allocated, not the result
    folder      parent of the temporary folder; None: the system's default
    at_once     the most digests in memory, see the module
    """

    def __init__(self, expected: int, folder: Path | None = None, at_once: int = AT_ONCE) -> None:
        self._at_once, self._folder = at_once, folder
        self._held: Digests = np.empty(max(1, min(expected, at_once)), dtype=np.uint64)
        self._count = 0
        self._runs: list[_Run] = []
        self._made: Path | None = None
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def __enter__(self) -> "DigestRuns":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def add(self, digests: Digests) -> None:
        """Adds digests, uint64 [N], in any order."""
        with self._lock:
            while digests.size:
                if self._count == self._held.size:
                    self._write_run()
                part = digests[: self._held.size - self._count]
                self._held[self._count : self._count + part.size] = part
                self._count += part.size
                digests = digests[part.size :]

    def add_file(self, path: Path, first: int = 0, last: int | None = None) -> None:
        """Adds digests from a file that `write` wrote, from number `first` up to `last`. The file is not copied."""
        self._runs.append(_Run(path, first, last))

    def write(self, stream: BinaryIO) -> int:
        """Writes all digests to a file, ascending: 8 bytes each, little-endian. Returns their number."""
        written = 0
        for digests in self._ranges():
            digests.astype(_STORED, copy=False).tofile(stream)
            written += digests.size
        return written

    def repeated(self) -> Iterator[Digests]:
        """The digests that occur more than once, ascending, each once, at most `CANDIDATES` at a time.

        `at_once` does not change the result.
        """
        waiting: Digests = np.empty(0, dtype=np.uint64)
        for again in self._again():
            repeats = np.unique(again)
            waiting = np.concatenate([waiting, repeats[np.isin(repeats, waiting[-1:], invert=True)]])
            while waiting.size > CANDIDATES:  # the last digest stays: the next range may repeat it
                yield waiting[:CANDIDATES]
                waiting = waiting[CANDIDATES:]
        if waiting.size:
            yield waiting

    def surplus(self) -> int:
        """The number of digests that equal an earlier one."""
        return sum(again.size for again in self._again())

    def _again(self) -> Iterator[Digests]:
        """Every digest that equals the digest before it, ascending."""
        before: Digests = np.empty(0, dtype=np.uint64)
        for digests in self._ranges():
            if before.size and digests[0] == before[0]:
                yield before
            if (equal := digests[1:] == digests[:-1]).any():
                yield digests[1:][equal]
            before = digests[-1:].copy()

    def _write_run(self) -> None:
        if self._made is None:
            self._made = Path(self._stack.enter_context(temporary_folder("spanloom-", self._folder)))
        held = self._held[: self._count]
        held.sort()
        path = self._made / f"{len(self._runs)}"
        held.astype(_STORED, copy=False).tofile(path)
        self._runs.append(_Run(path))
        self._count = 0

    def _ranges(self) -> Iterator[Digests]:
        """All digests, ascending, at most `at_once` at a time. An array is valid until the next one is requested."""
        if not self._runs:
            held = self._held[: self._count]
            held.sort()
            if held.size:
                yield held
            return
        if self._count:
            self._write_run()
        if self._held.size < (room := min(self._at_once, sum(map(len, self._runs)))):
            self._held = np.empty(room, dtype=np.uint64)
        yield from self._range(self._runs, 0, _HIGHEST)

    def _range(self, runs: list[_Run], low: int, high: int) -> Iterator[Digests]:
        """The digests from `low` to `high`, both inclusive."""
        edges = [(run, run.place(low), run.place(high + 1)) for run in runs]
        count = sum(last - first for _, first, last in edges)
        if not count:
            return
        if count <= self._held.size:
            at = 0
            for run, first, last in edges:
                self._held[at : at + last - first] = run.read(first, last)
                at += last - first
            self._held[:count].sort()
            yield self._held[:count]
        elif low == high:  # one digest, repeated more than `at_once` times
            for first in range(0, count, self._held.size):
                some = self._held[: min(self._held.size, count - first)]
                some[:] = low
                yield some
        else:
            middle = (low + high) // 2
            yield from self._range(runs, low, middle)
            yield from self._range(runs, middle + 1, high)
