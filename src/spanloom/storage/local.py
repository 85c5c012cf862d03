"""Files: hashed, written whole or not at all, published create-only.

In: bytes or a finished temporary file. Out: a file that either stands complete under its name or does not stand there.
Every write goes to a temporary name in the same directory, is fsynced, then renamed; the directory is fsynced after.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from spanloom.errors import ConflictError

TEMPORARY_MARK = ".spanloom-tmp-"
"""Part of every temporary name, so that what a killed process left behind is recognised and cleared."""


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def temporary_beside(path: Path) -> Path:
    """A fresh empty file in the directory of `path` (created when missing)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}{TEMPORARY_MARK}", dir=path.parent)
    os.close(handle)
    # mkstemp makes files that nobody else can read; a dataset is read by other users and pods.
    umask = os.umask(0)
    os.umask(umask)
    temporary = Path(name)
    temporary.chmod(0o666 & ~umask)
    return temporary


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes replace `path` when the block ends, and vanish when it raises."""
    temporary = temporary_beside(path)
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        fsync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file at `path` by `data`, whole or not at all."""
    with written_atomically(path) as stream:
        stream.write(data)


def publish(temporary: Path, path: Path, sha256: str) -> None:
    """Moves a finished, fsynced temporary file to its final name, which must not hold other bytes.

    A file that is there already with the same bytes counts as written, so a retry succeeds.
    Raises ConflictError when it holds other bytes; the temporary file is removed and the standing one left alone.
    """
    try:
        os.link(temporary, path)  # fails when the name is taken, where rename would overwrite
    except FileExistsError:
        _check_same(path, sha256)
    except OSError as refusal:
        if refusal.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        # No hard links on this file system (some network mounts): a rename after looking is the best there is.
        if path.exists():
            _check_same(path, sha256)
        else:
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def _check_same(path: Path, sha256: str) -> None:
    standing = sha256_file(path)
    if standing != sha256:
        raise ConflictError(
            f"refusing to overwrite a file that holds other bytes (there: sha256 {standing}; new: {sha256})",
            where=str(path),
            remedy="build into another --out, or remove that dataset first",
        ) from None


def publish_bytes(data: bytes, path: Path) -> None:
    """`publish` for small files held in memory."""
    temporary = temporary_beside(path)
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        publish(temporary, path, hashlib.sha256(data).hexdigest())
    finally:
        temporary.unlink(missing_ok=True)


def fsync_file(path: Path) -> None:
    """Brings a file that a library wrote and closed to the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def fsync_directory(directory: Path) -> None:
    """Makes a rename in `directory` survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clear_temporaries(root: Path) -> None:
    """Removes what killed processes left under temporary names below `root`."""
    for leftover in list(root.rglob(f".*{TEMPORARY_MARK}*")):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def remove_if_empty(directory: Path) -> None:
    """Removes a folder in which nothing stands; leaves any other alone."""
    with suppress(OSError):
        directory.rmdir()


def free_bytes(path: Path) -> int:
    """Free space for this user on the file system that `path` lies on, or will lie on."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
