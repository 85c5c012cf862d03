"""A file that is hashed first and read afterwards: is what was read what was hashed?

In: a path. Out: the state of the file (`FileState`), taken before the hash; an error where it differs after the
last read. Every write, rename and replacement sets the time of change (ctime), which no program can set back: where the
states are equal, nobody wrote in between. Not seen are writes through a memory map that is open since before the hash.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import SourceError
from spanloom.storage.local import sha256_file

CLOCK_TICK = 0.02
"""Seconds, more than the tick of the clock that a kernel takes the times of files from: two writes in one tick look
like one."""


@dataclass(frozen=True, kw_only=True)
class FileState:
    """Which file it is (`device`, `inode`), and what changes with each write (`bytes`, times in nanoseconds)."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    @property
    def written(self) -> tuple[int, int, int]:
        return self.bytes, self.mtime_ns, self.ctime_ns


def file_state(path: Path) -> FileState:
    """The state of the file now. Take it before the file is hashed; one that was written just now is waited for."""
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
    """Raises SourceError when the file differs from its state `before` its hash was taken.

    A network file system may number its files again: where only device or inode differ, equal bytes (`sha256`) are
    enough. Where a time differs they are not: the bytes may have been others while they were read, and put back.
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
