"""Files on this machine: hashed, written whole or not at all, published create-only.

In: bytes or a finished temporary file. Out: a file that is either complete under its name or does not exist.
Every write goes to a temporary name in the same directory, is fsynced, then renamed; then the directory is fsynced.
A device, a FIFO or an open descriptor cannot be replaced by a rename: it is written to directly.
"""

import errno
import fcntl
import hashlib
import os
import pwd
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from spanloom.errors import ConflictError, StorageError
from spanloom.storage.locks import REFUSED, note_missing
from spanloom.storage.temporaries import discard, temporary_beside

# EXDEV: a folder below the root may be a separate mount.
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV)


def cache_folder() -> Path:
    """This package's folder in the user's cache: $XDG_CACHE_HOME/spanloom, or ~/.cache/spanloom. It may be missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the XDG specification says to ignore such a path
        home = os.path.expanduser("~")  # noqa: PTH111  # Path.home raises where a user has no home
        cache = Path(home, ".cache")
    return cache / "spanloom"


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes replace `path` when the block ends, and are discarded if it raises.

    A device, a FIFO, /dev/stdout and the like are not replaced: the bytes go there as they are written.
    Raises StorageError for a path that cannot be written to: a folder, a disk, a socket, a FIFO without a reader.
    """
    if (through := _no_regular_file(path)) is not None:
        with naming(path), through as stream:
            yield stream
        return
    temporary = temporary_beside(path)
    try:
        # Not "wb": with it NumPy bypasses Python's stream, and does not notice a full disk.
        with naming(path), temporary.open("w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        fsync_directory(path.parent)
    finally:
        discard(temporary)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file name to errors of a write; the system gives it only for errors of `open`."""
    try:
        yield
    except BrokenPipeError:
        raise StorageError("the reader left before the end", where=str(path), remedy="run again") from None
    except OSError as fault:
        if fault.filename is None and fault.errno is not None:
            raise OSError(fault.errno, os.strerror(fault.errno), str(path)) from None
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file at `path` with `data`, whole or not at all; see `written_atomically`."""
    with written_atomically(path) as stream:
        stream.write(data)


def _no_regular_file(path: Path) -> BinaryIO | None:
    """Opens a device, FIFO or descriptor at `path` for direct writing; None for a regular or missing file."""
    if (descriptor := _descriptor(path)) is not None:
        if descriptor == 1 and sys.stdout is not None:
            sys.stdout.flush()  # keeps the order: text printed earlier is written first
        try:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(errno.EBADF, "it is open for reading")
            # dup, not open: opening the file again would begin at its start.
            return os.fdopen(os.dup(descriptor), "wb")
        except OSError as refusal:
            raise StorageError(
                f"this descriptor cannot be written to: {refusal.strerror}", where=str(path), remedy=_ELSEWHERE
            ) from None
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(kind):
        return None
    if not (stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)):
        raise StorageError(f"{kind_of(kind)} is where a file is to be written", where=str(path), remedy=_ELSEWHERE)
    try:
        opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # otherwise a FIFO without a reader blocks forever
    except OSError as refusal:
        if refusal.errno != errno.ENXIO:
            raise
        raise StorageError(
            "nobody reads from this FIFO or device", where=str(path), remedy="start its reader first"
        ) from None
    os.set_blocking(opened, True)
    return os.fdopen(opened, "wb")


_ELSEWHERE = "give the name of a file"


def _descriptor(path: Path) -> int | None:
    """The descriptor of this process that a path refers to: /dev/stdout, /dev/fd/63 of a shell's `>(…)`; else None."""
    ours = {os.path.realpath("/proc/self/fd"), "/dev/fd"}
    for _ in range(40):  # Linux follows at most 40 links
        parent = os.path.realpath(path.parent)
        if parent in ours and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(parent) / path.readlink()
    return None


def kind_of(mode: int) -> str:
    """The name of a file type other than a regular file, by its mode: "a folder"."""
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return names.get(stat.S_IFMT(mode), "a device")


def refused_access(path: Path) -> tuple[str, str] | None:
    """What this user may not do at a path, with the owner, and the remedy; None if the mode bits do not refuse it.

    A file that is there is taken as one to read, a missing one as one to write into the nearest folder that is there.
    """
    refused = (False, path)
    for folder in reversed(path.absolute().parents):
        try:
            kind = folder.stat().st_mode
        except OSError:
            break
        if stat.S_ISDIR(kind) and not os.access(folder, os.X_OK):
            return _refused(folder, "enter it", "x")
        refused = (not os.access(folder, os.W_OK), folder)
    try:
        path.stat()
    except OSError:
        return _refused(refused[1], "write into it", "w") if refused[0] else None
    if not os.access(path, os.R_OK):
        return _refused(path, "read it", "r")
    if path.is_dir() and not os.access(path, os.W_OK):
        return _refused(path, "write into it", "w")
    return _refused(refused[1], "write into it", "w") if refused[0] else None


def _refused(path: Path, what: str, bit: str) -> tuple[str, str]:
    status, user = path.stat(), _user_name(os.geteuid())
    owner, mode = _user_name(status.st_uid), stat.filemode(status.st_mode)
    message = f"{path} belongs to {owner} ({mode}), and {user} may not {what}"
    if owner == user:
        return message, f"run `chmod u+{bit} {shlex.quote(str(path))}`, or give another place"
    return message, f"ask {owner} or an administrator for `setfacl -m u:{user}:{bit}`, or give another place"


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def publish(temporary: Path, path: Path, sha256: str) -> None:
    """Moves a finished, fsynced temporary file to its final name, create-only.

    An existing file with the same bytes counts as written, so a retry succeeds. Raises ConflictError if the existing
    file holds other bytes; it is left alone, and the temporary file is removed.
    """
    try:
        os.link(temporary, path)  # fails if the name is taken; rename would overwrite
    except FileExistsError:
        _check_same(path, sha256)
    except OSError as refusal:
        if refusal.errno not in _NO_HARD_LINKS:
            raise
        # No hard links on this file system (some network mounts): a check and then a rename is the best available.
        if path.exists():
            _check_same(path, sha256)
        else:
            temporary.rename(path)
    finally:
        discard(temporary)
    fsync_directory(path.parent)


def _check_same(path: Path, sha256: str) -> None:
    check_writable(path)
    digest = sha256_file(path)
    if digest != sha256:
        raise ConflictError(
            f"refusing to overwrite a file that holds other bytes (there: sha256 {digest}; new: {sha256})",
            where=str(path),
            remedy="build into another --out, or remove that dataset first",
        ) from None


def check_writable(path: Path) -> None:
    """Raises ConflictError if `path` exists and is not a regular file: nothing is published over it."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        if not path.is_symlink():
            return
        kind = stat.S_IFLNK  # a broken link
    if not stat.S_ISREG(kind):
        raise ConflictError(
            f"{kind_of(kind)} is where a file is to be written", where=str(path), remedy=_ELSEWHERE
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
        discard(temporary)


def link_file(file: Path, path: Path) -> None:
    """Gives the finished, fsynced `file` the second name `path`, create-only.

    Makes a hard link or, on a file system without links, a copy (whole or not at all). Raises ConflictError if `path`
    holds other bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, path)
    except FileExistsError:
        if not path.samefile(file):
            _check_same(path, sha256_file(file))
    except OSError as refusal:
        if refusal.errno not in _NO_HARD_LINKS:
            raise
        temporary = temporary_beside(path)
        try:
            with file.open("rb") as source, temporary.open("wb") as stream:
                shutil.copyfileobj(source, stream)
                stream.flush()
                os.fsync(stream.fileno())
            publish(temporary, path, sha256_file(temporary))
        finally:
            discard(temporary)


def fsync_file(path: Path) -> None:
    """Flushes a file that a library wrote and closed to disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def fsync_directory(directory: Path) -> None:
    """Makes a rename in `directory` durable after a power failure, where the file system can (CIFS, FUSE often
    cannot)."""
    try:
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as fault:
        if fault.errno not in REFUSED:
            raise
        note_missing(
            "fsync of folders", directory, "the bytes of files are on disk, but a power failure may lose their names"
        )


def is_regular(path: Path) -> bool:
    """Whether `path` is a regular file; a link is not, whatever its target."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def remove_files(root: Path, names: Iterable[str]) -> None:
    """Removes the regular files `names` (relative, with slashes) below `root`, then their folders if they are empty.
    Missing files are ignored; anything that is not a regular file stays.

    Raises ConflictError for a name that is not below `root`, or whose folders include a link.
    """
    folders: set[Path] = set()
    for name in names:
        path = path_below(root, name)
        if is_regular(path):
            path.unlink(missing_ok=True)
        folders |= {folder for folder in path.parents if root in folder.parents}
    for folder in sorted(folders, reverse=True):
        remove_if_empty(folder)


def path_below(root: Path, name: str) -> Path:
    """The path of the file `name` (relative, with slashes) below `root`.

    Raises ConflictError for a name that leads outside `root`, by itself or through a link in place of a folder.
    """
    if not is_name_below(name):
        raise ConflictError(f"{name!r} is not a valid name for a file below a folder", where=str(root))
    *folders, last = name.split("/")
    folder = root
    for part in folders:
        folder /= part
        if folder.is_symlink():
            raise special_file_conflict(folder)
    return folder / last


def is_name_below(name: str) -> bool:
    """Whether `name` is a relative path, with slashes, that cannot leave the folder it is joined to."""
    parts = name.split("/")
    return all(parts) and not {".", ".."} & set(parts) and "\\" not in name and "\0" not in name


def special_file_conflict(path: Path) -> ConflictError:
    """The error for a link or a special file where only our own folders and files may be."""
    return ConflictError(
        "this path is neither a file nor a folder: nothing is written or removed through it",
        where=str(path),
        remedy="move it away, or give another place for the output",
    )


def remove_if_empty(directory: Path) -> None:
    """Removes an empty folder; leaves any other alone."""
    with suppress(OSError):
        directory.rmdir()


def open_lock(path: Path) -> BinaryIO:
    """Opens a lock file, created if missing. Raises ConflictError for a link, a FIFO and the like."""
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as refusal:
        if refusal.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise special_file_conflict(path) from None
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise special_file_conflict(path)
    return os.fdopen(opened, "r+b")


def free_bytes(path: Path) -> int:
    """Free space for this user on the file system that `path` is on, or will be on."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
