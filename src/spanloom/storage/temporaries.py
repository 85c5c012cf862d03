"""Temporary files: a file is written beside its final name, and is locked while its process lives.

In: the final path of a file. Out: a new file in the same folder, with a lock that the kernel releases when the process
ends, in whatever way. So the next writer of the same path recognises the file of a killed process: its name matches,
and its lock is free.

    .out.jsonl.spanloom-tmp-1f0c9a3e_k2v8d0qa    locked; 1f0c9a3e is a hash of this machine and this mount
    .out.jsonl.spanloom-tmp-k2v8d0qa             on a file system without locks: no writer removes it
    .out.jsonl.spanloom-tmp-0123456789abcdef     a download that can be resumed (`staging`)

A lock of another machine may be invisible here. So a writer considers only names that this machine made on this mount,
and leaves all others alone. A command that holds a whole folder (`filling`, a build) removes all temporary files in it.
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

from spanloom.errors import StorageError
from spanloom.storage.locks import REFUSED, note_missing

TEMPORARY_MARK = ".spanloom-tmp-"
"""Part of every temporary name, so that files of killed processes are recognised and removed."""

_TEMPORARY_NAME = re.compile(rf"\.(.+){re.escape(TEMPORARY_MARK)}\w+")
# SQLite creates files of its own beside a database that is being written.
_HELD_NAME = re.compile(rf"(\.(.+){re.escape(TEMPORARY_MARK)}([0-9a-f]{{8}})_\w+)(-wal|-shm|-journal)?")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TRIES = 100

_log = logging.getLogger(__name__)
_held: dict[Path, int] = {}
"""The temporary files of this process, each with the open descriptor that holds its lock."""


def temporary_beside(path: Path) -> Path:
    """Creates an empty file in the directory of `path` (created if missing), locked until `discard`.

    Temporary files of `path` that ended processes left are removed.
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
            ours = False  # another writer found it before it was locked, and is removing it
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
    """Removes a temporary file, if it was not renamed, and releases its lock."""
    try:
        temporary.unlink(missing_ok=True)
    finally:
        if (descriptor := _held.pop(temporary, None)) is not None:
            os.close(descriptor)


def clear_temporaries(folder: Path) -> None:
    """Removes all temporary files below a folder that belongs to the caller with all its content.

    The caller holds the folder: locks of files are not checked. Links are not followed.
    """
    for directory, _, names in os.walk(folder):
        for name in names:
            if _TEMPORARY_NAME.fullmatch(name):
                discard(Path(directory, name))


def clear_temporaries_of(paths: Iterable[Path], *, spare_held: bool = False) -> None:
    """Removes the temporary files of these paths that killed processes left; other files in the folder stay.

    The caller holds the folder. `spare_held`: other commands may write these files at the same time; temporary files
    that they have locked on this machine stay.
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


def temporary_folder(prefix: str = "spanloom-", folder: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """A temporary folder for a `with` block, in `folder` or where $TMPDIR says. Raises StorageError if there is no
    place for it."""
    if folder is None:
        check_temporary_folder()
    return tempfile.TemporaryDirectory(prefix=prefix, dir=folder)


def check_temporary_folder() -> None:
    """Raises StorageError if no folder for temporary files can be written: Python raises FileNotFoundError, as if the
    file that is read did not exist. Raises OSError if no file can be opened at all (`ulimit -n`)."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise StorageError(
            "no folder for temporary files can be written",
            remedy="set TMPDIR to a folder that you may write to, with room for what is unpacked and compared",
        ) from None


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _make(path: Path, beginning: str) -> tuple[int, Path]:
    """A new file with a random name, open for reading and writing."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}{TEMPORARY_MARK}{beginning}", dir=path.parent)
    temporary = Path(name)
    try:
        # mkstemp makes files that only their owner can read; other users and pods read a dataset.
        umask = os.umask(0)
        os.umask(umask)
        _set_mode(descriptor, 0o666 & ~umask, path)
    except BaseException:
        _remove_made(descriptor, temporary)
        raise
    return descriptor, temporary


def _set_mode(descriptor: int, mode: int, path: Path) -> None:
    """Sets the mode of an open file; its name may be gone. Where chmod is refused (SMB), the mode that is there
    stays."""
    try:
        os.fchmod(descriptor, mode)
    except OSError as fault:
        if fault.errno not in REFUSED:
            raise
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & mode != mode:
            note_missing(
                "chmod", path.parent, "files keep the mode that it gives, so others may not be able to read them"
            )


def _remove_made(descriptor: int, temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _clear_left(path: Path, machine: str) -> None:
    """Removes the temporary files of `path` that this machine made and no process holds.

    A file that cannot be opened may be locked: it stays. A file that cannot be removed is logged: `path` can still be
    written.
    """
    ours = {held.name for held in list(_held)}  # a copy: other threads change `_held`
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
    """The temporary files of `path` that this machine made, each with the files that SQLite made beside it."""
    names: dict[str, list[Path]] = {}
    # A folder may be writable but not listable.
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
    """Yields whether no process has a temporary file locked; none can lock it while the block runs.

    False also if that is unknown: the file system has no locks, or the file cannot be opened.
    """
    try:
        # For reading: on NFS, a file opened for reading takes only a shared lock, which is enough here.
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as refusal:
        yield isinstance(refusal, FileNotFoundError)  # SQLite's files beside it may still exist
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
    """Whether an open file is a regular file and still has the name `path`."""
    opened = os.fstat(descriptor)
    try:
        return stat.S_ISREG(opened.st_mode) and os.path.samestat(opened, path.lstat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, kind: int) -> None:
    """Locks an open file without waiting. The lock ends when the last descriptor of the open file is closed.

    It covers one byte far beyond the end of any file: mandatory locks (SMB) then block no writes, and SQLite's own
    locks do not collide. Raises BlockingIOError if another process has the lock, OSError if there are no locks.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", kind, os.SEEK_SET, 1 << 62, 1, 0))


def _machine(folder: Path) -> str | None:
    """Eight hex digits for the running kernel and the mount of `folder`: a file with these digits in its name was
    locked by this kernel, so its lock is visible. None if the boot id is unknown, or without such locks (macOS)."""
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
