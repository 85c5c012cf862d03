"""Locks of folders, also on file systems without `flock`; what a file system lacks is logged once.

In: an open lock file. Out: the lock is held while a block runs, or a ConflictError says who holds it.

    lock          held by `flock`: the kernel releases it when the process ends, in whatever way
    lock.claim    only where `flock` is refused (Lustre and NFS mounted without locks, some FUSE): created create-only,
                  with its owner; rewritten every 20 s (heartbeat), removed at the end

A claim is taken over if its owner has ended, which is seen on its own machine alone, or if its heartbeat is older than
five minutes by the clock of the file system, or if `SPANLOOM_TAKE_OVER` is 1.
"""

import errno
import fcntl
import json
import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any
from uuid import uuid4

from spanloom.errors import ConflictError, StorageError

CLAIM_ENDING, GUARD_ENDING = ".claim", ".claim.taken"
TAKE_OVER_VARIABLE = "SPANLOOM_TAKE_OVER"
BEAT_SECONDS = 20.0
OLD_SECONDS = 300.0

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EPERM, errno.ENOTTY)
REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""How file systems refuse what they do not have, such as chmod, or fsync of a folder."""

_log = logging.getLogger(__name__)
_noted: set[str] = set()


def note_missing(what: str, path: Path, then: str) -> None:
    """Logs once a process that the file system of `path` lacks `what`, and what is not protected `then`. Workers are
    silent: the process that started them writes to the same place."""
    if what in _noted or multiprocessing.parent_process() is not None:
        return
    _noted.add(what)
    _log.warning("the file system of %s has no %s: %s", path, what, then)


def lock_names(name: str) -> tuple[str, ...]:
    """The names of the files that a lock of this name may have."""
    return name, name + CLAIM_ENDING, name + GUARD_ENDING


@contextmanager
def held(lock: IO[Any], path: Path, refusal: ConflictError) -> Iterator[None]:
    """Holds the open file at `path` as a lock, until it is closed. Raises `refusal` if another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise refusal from None
        if fault.errno not in NO_LOCKS:
            raise OSError(fault.errno, fault.strerror, str(path)) from None
        note_missing(
            "locks (flock)", path.parent, f"{path.name}{CLAIM_ENDING} stands in for one; never remove it during a run"
        )
        with _Claim(path, refusal).held():
            yield
        return
    # This mount has locks; another machine may have mounted the same folder without them.
    if (claim := _Claim(path, refusal)).exists():
        claim.clear()
    yield


class _Claim:
    """The claim beside a lock file. `refusal`: raised if it is another's."""

    def __init__(self, lock: Path, refusal: ConflictError) -> None:
        self._lock, self._refusal = lock, refusal
        self._path, self._guard = lock.with_name(lock.name + CLAIM_ENDING), lock.with_name(lock.name + GUARD_ENDING)
        self._ours = json.dumps({**_this_process(), "token": uuid4().hex}).encode()

    def exists(self) -> bool:
        return self._path.exists()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises StorageError at the end if another run took the claim over: both may have written."""
        descriptor = self._create()
        stop = Event()
        beating = Thread(target=_beat, args=(descriptor, self._ours, stop), daemon=True)
        beating.start()
        try:
            yield
        finally:
            stop.set()
            beating.join()
            os.close(descriptor)
            present = _content(self._path)
            if present == self._ours:
                self._path.unlink(missing_ok=True)
        if present not in (self._ours, None):
            raise StorageError(
                f"another run has taken this folder over: {_named(present)}",
                where=str(self._lock.parent),
                remedy="let one of the two end, then run the same command again",
            )

    def _create(self) -> int:
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            except FileExistsError:
                self.clear()
                continue
            try:
                os.pwrite(descriptor, self._ours, 0)
                os.fsync(descriptor)
            except BaseException:
                self._path.unlink(missing_ok=True)
                os.close(descriptor)
                raise
            return descriptor

    def clear(self) -> None:
        """Removes a claim whose owner has ended, or which is old. Raises `refusal` for any other."""
        seen = _content(self._path)
        if seen is None:
            return
        if not self._may_be_taken(seen):
            raise self._refused(seen) from None
        # Two that take it over at once: only the one that made the guard removes the claim, if it is still the same.
        try:
            os.close(os.open(self._guard, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        except FileExistsError:
            if self._age(self._guard) > OLD_SECONDS:
                self._guard.unlink(missing_ok=True)
            raise self._refused(seen) from None
        try:
            if _content(self._path) == seen:
                _log.warning("taken over: the claim of %s, %s", self._lock.parent, _named(seen))
                self._path.unlink(missing_ok=True)
        finally:
            self._guard.unlink(missing_ok=True)

    def _may_be_taken(self, content: bytes) -> bool:
        if os.environ.get(TAKE_OVER_VARIABLE) == "1" or _has_ended(content):
            return True
        return self._age(self._path) > OLD_SECONDS

    def _age(self, path: Path) -> float:
        """Seconds since a file was written, by the clock of the file system."""
        now = time.time()
        with suppress(OSError):
            os.utime(self._lock)
            now = self._lock.stat().st_mtime
        with suppress(FileNotFoundError):
            return now - path.stat().st_mtime
        return 0.0

    def _refused(self, content: bytes) -> ConflictError:
        age = f"{self._age(self._path):.0f} s ago"
        return ConflictError(
            f"{self._refusal.what}: {_named(content)}, last seen {age}",
            where=self._refusal.where,
            remedy=f"{self._refusal.remedy}; if it is dead, its claim is taken over {OLD_SECONDS / 60:.0f} minutes "
            "after it was last seen, or at once by `spanloom --take-over …`",
        )


def _beat(descriptor: int, content: bytes, stop: Event) -> None:
    """Rewrites the claim from time to time: its time of writing tells others that its process lives."""
    while not stop.wait(BEAT_SECONDS):
        with suppress(OSError):
            os.pwrite(descriptor, content, 0)
            os.fsync(descriptor)


def _content(path: Path) -> bytes | None:
    """The bytes of a claim; None if it is gone. Empty if it cannot be read: its owner is unknown."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 12)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _owner(content: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _named(content: bytes) -> str:
    owner = _owner(content)
    host, process = str(owner.get("host", "unknown"))[:80], str(owner.get("process", "unknown"))[:20]
    return f"process {process} on {host}"


def _has_ended(content: bytes) -> bool:
    """Whether the owner ran on this machine, in this namespace of processes, and has ended."""
    owner, here = _owner(content), _this_process()
    machine = ("host", "boot", "namespace")
    if here["boot"] is None or any(owner.get(name) != here[name] for name in machine):
        return False
    process = owner.get("process")
    return isinstance(process, int) and _started(process) != owner.get("started")


def _this_process() -> dict[str, Any]:
    return {**_this_machine(), "process": os.getpid(), "started": _started(os.getpid())}


@cache
def _this_machine() -> dict[str, str | None]:
    return {
        "host": socket.gethostname(),
        "boot": _read(Path("/proc/sys/kernel/random/boot_id")),
        "namespace": _link("/proc/self/ns/pid"),
    }


def _started(process: int) -> str | None:
    """When a process started, in ticks since the machine did; None if there is no such process."""
    about = _read(Path(f"/proc/{process}/stat"))
    # The name of the program, in brackets, may hold anything; the 22nd field is the 20th after it.
    return about.rpartition(")")[2].split()[19] if about else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None
