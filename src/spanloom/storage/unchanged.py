"""Detects that a file changed between its hash and the end of reading it.

In: a path. Out: the state of the file (`FileState`), taken before the hash; an error if it differs after the last
read. Every write, rename and replacement sets the ctime, which no program can set back: if the states are equal,
nobody wrote in between. Writes through a memory map that was opened before the hash are not detected.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import SourceError
from spanloom.storage.local import sha256_file

CLOCK_TICK = 0.02
"""Seconds; longer than a tick of the kernel's clock for file times. Two writes in one tick get the same time."""


@dataclass(frozen=True, kw_only=True)
class FileState:
    """The identity of a file (`device`, `inode`), and what a write changes (`bytes`, times in nanoseconds)."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    @property
    def written(self) -> tuple[int, int, int]:
        return self.bytes, self.mtime_ns, self.ctime_ns


def file_state(path: Path) -> FileState:
    """The state of the file now. Call it before the file is hashed; it waits a tick if the file was just written."""
    status = path.stat()
    if abs(time.time() - status.st_ctime) < CLOCK_TICK:
        time.sleep(CLOCK_TICK)
        status = path.stat()
    return FileState(
        device=status.st_dev,
        inode=status.st_ino,
        bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
    )


def check_unchanged(path: Path, before: FileState, *, sha256: str | None = None, where: str | None = None) -> None:
    """Raises SourceError if the state of the file differs from `before`, its state before it was hashed.

    A network file system may renumber its files: if only device or inode differ, equal bytes (`sha256`) are enough. If
    a time differs, they are not: the bytes may have changed while they were read, and been restored.
    """
    try:
        state = file_state(path)
        if state == before:
            return
        if state.written == before.written and sha256 is not None and sha256_file(path) == sha256:
            return
    except OSError as fault:
        what = f"the file was there when the run began, and now cannot be read: {fault.strerror}"
    else:
        what = "the file was changed, replaced or touched while it was read"
    raise SourceError(
        what,
        where=where or str(path),
        remedy="run again when nobody writes to the source",
    )


def check_loaded(same: bool, what: str, where: str) -> None:
    """Raises SourceError if what a worker loaded is not what the build began with. `what`: "the tokenizer"."""
    if not same:
        message = f"{what} was changed while the dataset was built"
        raise SourceError(message, where=where, remedy="run again when nobody writes to it")
