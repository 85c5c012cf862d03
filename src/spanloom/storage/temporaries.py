"""Temporary files: a file that is being written is beside its final name, and is held while its process lives.

In: the path that a file is to have. Out: a fresh file in the same folder, with a lock that the kernel drops when the
process ends, however it ends. So the next writer of the same path recognises what a killed process left: its name
fits, and its lock is free.

    .out.jsonl.spanloom-tmp-1f0c9a3e_k2v8d0qa    held; 1f0c9a3e is made of this machine and this mount
    .out.jsonl.spanloom-tmp-k2v8d0qa             where the file system has no locks: no writer removes it
    .out.jsonl.spanloom-tmp-0123456789abcdef     a download that goes on where it ended (`staging`)

A lock of another machine may be invisible here. So a writer looks only at names that this machine made, below this
mount, and leaves all others alone. A command that holds a whole folder (`filling`, a build) removes all of its names.
"""

import fcntl
import hashlib
import logging
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

TEMPORARY_MARK = ".spanloom-tmp-"
"""Part of every temporary name, so that what a killed process left behind is recognised and cleared."""

_TEMPORARY_NAME = re.compile(rf"\.(.+){re.escape(TEMPORARY_MARK)}\w+")
# SQLite makes files of its own beside a store that is being made.
_HELD_NAME = re.compile(rf"(\.(.+){re.escape(TEMPORARY_MARK)}([0-9a-f]{{8}})_\w+)(-wal|-shm|-journal)?")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TRIES = 100

_log = logging.getLogger(__name__)
_held: dict[Path, int] = {}
"""The temporary files of this process, and the open descriptor that has the lock of each."""


def temporary_beside(path: Path) -> Path:
    """A fresh empty file in the directory of `path` (created when missing), held until `discard`.

    What processes that have ended left under temporary names of `path` is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = _machine(path.parent)
    if machine is not None:
        _clear_left(path, machine)
    for _ in range(_TRIES if machine is not None else 0):
        descriptor, temporary = _make(path, f"{machine}_")
        try:
            _lock(descriptor, fcntl.F_WRLCK)
            ours = _is_named(descriptor, temporary)
        except BlockingIOError:
            ours = False  # another writer saw it before it had its lock, and is removing it
        except OSError:
            _remove_made(descriptor, temporary)
            break  # no locks here
        if ours:
            _held[temporary] = descriptor
            return temporary
        _remove_made(descriptor, temporary)
    descriptor, temporary = _make(path, "")
    os.close(descriptor)
    return temporary


def discard(temporary: Path) -> None:
    """Removes a temporary file, where it has not become another one, and no longer holds it."""
    try:
        temporary.unlink(missing_ok=True)
    finally:
        if (descriptor := _held.pop(temporary, None)) is not None:
            os.close(descriptor)


def clear_temporaries(folder: Path) -> None:
    """Removes what killed processes left under temporary names below a folder that is ours with all that is in it.

    The caller holds the folder: locks of files are not looked at. Links are not followed.
    """
    for directory, _, names in os.walk(folder):
        for name in names:
            if _TEMPORARY_NAME.fullmatch(name):
                discard(Path(directory, name))


def clear_temporaries_of(paths: Iterable[Path], *, spare_held: bool = False) -> None:
    """Removes the temporary files that killed processes left of these files, and of no others beside them.

    The caller holds the folder. `spare_held`: other commands may write these files at the same time, and what one of
    them holds on this machine stays.
    """
    names: dict[Path, set[str]] = {}
    for path in paths:
        names.setdefault(path.parent, set()).add(path.name)
    for folder, expected in names.items():
        if folder.is_symlink() or not folder.is_dir():
            continue
        for path in list(folder.iterdir()):
            match = _TEMPORARY_NAME.fullmatch(path.name)
            if match and match[1] in expected and stat.S_ISREG(_mode(path)):
                with _kept_free(path) as free:
                    if free or not spare_held:
                        discard(path)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _make(path: Path, beginning: str) -> tuple[int, Path]:
    """A new file of a random name, open for reading and writing."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}{TEMPORARY_MARK}{beginning}", dir=path.parent)
    temporary = Path(name)
    try:
        # mkstemp makes files that nobody else can read; a dataset is read by other users and pods.
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(descriptor, 0o666 & ~umask)  # not by its name: another writer may be removing it
    except BaseException:
        _remove_made(descriptor, temporary)
        raise
    return descriptor, temporary


def _remove_made(descriptor: int, temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _clear_left(path: Path, machine: str) -> None:
    """Removes the temporary files of `path` that this machine made and no process holds.

    One that cannot be opened may be held. One that cannot be removed is named in the log: the file itself can be
    written all the same.
    """
    ours = {held.name for held in list(_held)}  # a copy: other threads write, too
    for temporary, beside in _temporaries_of(path, machine):
        if temporary.name in ours:
            continue
        try:
            with _kept_free(temporary) as free:
                if free:
                    for left in (*beside, temporary):
                        left.unlink(missing_ok=True)
        except OSError as refusal:
            _log.warning("%s was left by a killed process and cannot be removed: %s", temporary, refusal.strerror)


def _temporaries_of(path: Path, machine: str) -> Iterator[tuple[Path, list[Path]]]:
    """The temporary files of `path` that this machine made, each with those that SQLite made beside it."""
    names: dict[str, list[Path]] = {}
    # A folder may be written to and not be listed.
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            match = _HELD_NAME.fullmatch(entry.name) if TEMPORARY_MARK in entry.name else None
            if match and (match[2], match[3]) == (path.name, machine):
                beside = names.setdefault(match[1], [])
                if match[4]:
                    beside.append(path.parent / entry.name)
    for name, beside in names.items():
        yield path.parent / name, beside


@contextmanager
def _kept_free(temporary: Path) -> Iterator[bool]:
    """Whether no process holds a temporary file, and none takes hold of it while the block runs.

    False, too, where that cannot be known: the file system has no locks, or the file cannot be opened.
    """
    try:
        # For reading: on NFS a lock needs a file open for what it excludes, and a shared one is enough here.
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as refusal:
        yield isinstance(refusal, FileNotFoundError)  # what SQLite made beside it may still be there
        return
    try:
        try:
            _lock(descriptor, fcntl.F_RDLCK)
            free = _is_named(descriptor, temporary)
        except OSError:
            free = False
        yield free
    finally:
        os.close(descriptor)


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether an open file is a regular file and still has this name."""
    opened = os.fstat(descriptor)
    try:
        return stat.S_ISREG(opened.st_mode) and os.path.samestat(opened, path.lstat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, kind: int) -> None:
    """Locks an open file without waiting; it belongs to the open file, and goes when its last descriptor is closed.

    One byte far behind the end of any file: where locks keep others from writing (SMB), and where SQLite has its own,
    nothing else touches it. Raises BlockingIOError where another process has it, OSError where there are no locks.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", kind, os.SEEK_SET, 1 << 62, 1, 0))


def _machine(folder: Path) -> str | None:
    """Eight hex digits for the running kernel and the mount that `folder` is on: what has them was locked by this
    kernel, so its lock is seen. None where the system does not say, or has no such locks (macOS)."""
    boot = _boot_id()
    if boot is None or not hasattr(fcntl, "F_OFD_SETLK"):
        return None
    return hashlib.sha256(f"{boot} {folder.stat().st_dev}".encode()).hexdigest()[:8]


@cache
def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None
