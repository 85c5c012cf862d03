"""Checks of places: inputs are read, outputs take a file create-only and let it be removed.

In: a place, a path or URI. Out: what was found, or a SpanloomError that says what the tasks would run into.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spanloom.errors import SpanloomError, StorageError
from spanloom.provenance import built_by
from spanloom.storage.claim import check_same_code, overwriting_fault
from spanloom.storage.staging import check_no_slash, find, list_objects
from spanloom.storage.stores.objects import Sending, StoredObject
from spanloom.storage.stores.retry import keep_trying
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.transfer import open_store
from spanloom.storage.uri import Uri, is_uri, parse_uri

Each = TypeVar("Each")

READ_FROM = 16
"""Files of an input of which a byte is read: the first and last, and others between them at equal distances."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A file that the check could create and not remove."""

    where: str
    why: str


def check_reads(place: str) -> dict[str, Any]:
    """Lists an input, and reads the first byte of up to `READ_FROM` of its files. Returns `files` and `bytes`.

    Raises StorageError if there is nothing, and if a file may be listed but not read.
    """
    if is_uri(place):
        objects = _objects(parse_uri(place))
        for entry in _some(objects):
            read_range(entry, 0, 1)
        return {"files": len(objects), "bytes": sum(entry.bytes for entry in objects)}
    files = [*_files(Path(place))]
    if not files:
        raise StorageError("there is no file to read", where=place, remedy="fix the path, or mount it in every task")
    for path in _some(files):
        with path.open("rb") as stream:
            stream.read(1)
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def _objects(uri: Uri) -> list[StoredObject]:
    if uri.key and (stored := find(uri)) is not None:
        return [stored]
    if objects := list_objects(uri):
        return objects
    check_no_slash(uri)
    raise StorageError("there is no object to read", where=str(uri), remedy="fix the URI, or copy the data there")


def _files(path: Path) -> Iterator[Path]:
    """A file itself, or all files below a folder, sorted. Links to files count; hidden folders do not."""

    def refused(fault: OSError) -> None:
        raise fault

    if stat.S_ISREG(path.stat().st_mode):
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=refused):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (file for name in sorted(names) if (file := Path(folder, name)).is_file())


def _some(files: list[Each]) -> list[Each]:
    if len(files) <= READ_FROM:
        return files
    return [files[number * (len(files) - 1) // (READ_FROM - 1)] for number in range(READ_FROM)]


def read_range(stored: StoredObject, first: int, end: int) -> bytes:
    """The bytes of an object from `first` up to `end`, or to its own end."""
    end, store, data = min(end, stored.bytes), open_store(stored.uri), bytearray()
    if first >= end:
        return b""

    def attempt() -> None:
        data.clear()
        store.read(stored, first, data.extend, end)

    keep_trying(attempt, store=store, uri=stored.uri)
    return bytes(data[: end - first])


def check_writes(place: str) -> Kept | None:
    """Creates a small file at an output place, tries to create it again, and removes it.

    Returns the file if it may not be removed: not every step needs that right. Raises StorageError if the file cannot
    be created, or can be created twice; ConflictError if other code has claimed the place.
    """
    name = f".spanloom-preflight-{secrets.token_hex(8)}"
    if not is_uri(place):
        return _writes_here(Path(place), name)
    root = parse_uri(place)
    check_same_code(root)
    uri, store = root / name, open_store(root)
    with temporary_folder("spanloom-preflight-") as folder:
        path = Path(folder) / "probe"
        path.write_text(f"{built_by()}\n")
        store.create(path, uri, Sending())
        fault = overwriting_fault(path, uri)
    kept = _removed(uri)
    if fault is not None:
        raise fault
    return kept


def _removed(uri: Uri) -> Kept | None:
    store = open_store(uri)
    try:
        if (stored := find(uri)) is not None:
            keep_trying(lambda: store.delete(stored), store=store, uri=uri)
    except StorageError as refusal:
        return Kept(where=str(uri), why=refusal.what)
    return None


def _writes_here(root: Path, name: str) -> Kept | None:
    """In the folder or, if it is not there yet, in the nearest one above it. Nothing else is created."""
    folder = root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise StorageError("a file is where a folder is to be made", where=str(folder), remedy="give another place")
    path, flags = folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError as fault:
        raise OSError(fault.errno, f"no file can be made in {folder}: {fault.strerror}", str(root)) from None
    try:
        os.close(os.open(path, flags, 0o600))
        twice = True
    except FileExistsError:
        twice = False
    kept = None
    try:
        path.unlink()
    except OSError as refusal:
        kept = Kept(where=str(path), why=refusal.strerror or str(refusal))
    if twice:
        raise StorageError(
            "this file system creates a file that exists, so two builds could mix in one place",
            where=str(folder),
            remedy="give a place on another file system, or in a bucket",
        )
    return kept


def as_error(fault: Exception, place: str) -> SpanloomError | None:
    """A fault of a check as a message; None if it is a fault of this program."""
    if isinstance(fault, SpanloomError):
        return fault
    if isinstance(fault, OSError):
        where = os.fsdecode(fault.filename) if isinstance(fault.filename, str | bytes) else place
        return StorageError(fault.strerror or str(fault), where=where, remedy="check the place and its rights")
    return None
