"""Opens the inputs of trace datasets: files of records, a store, the manifest of a dataset.

In: local paths or URIs; for a store also the URL of a database. Out: the opened files, store or manifest. A store file
in object storage is copied to this machine and read there; writes to the copy are lost.
"""

import glob
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import SpanloomError
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.manifest import TraceManifest, load_manifest
from spanloom.families.traces.store.opening import file_url, open_store
from spanloom.records.arrow import saved_files
from spanloom.records.files import passed_over
from spanloom.records.record_files import SUFFIXES, find_record_files
from spanloom.records.staging import staged_records
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import find
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.uri import is_uri, parse_uri

STDIN = "-"
_STDIN_NAME = "stdin"
_MAGIC = {b"\x1f\x8b": ".jsonl.gz", b"\x28\xb5\x2f\xfd": ".jsonl.zst", b"PAR1": ".parquet"}
"""First bytes of the formats accepted on stdin → the suffix of the format; anything else is JSON Lines."""


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """A file of records. `called`: as the user named it, for messages."""

    path: Path
    called: str


@contextmanager
def trace_files(scratch: Scratch, places: Sequence[str], unread: list[str] | None = None) -> Iterator[list[TraceFile]]:
    """The files of all places, in order. A place is a file of any name, a folder of record files, a pattern, a folder
    of `save_to_disk`, a URI of any of these, or `-` for stdin. Raises SpanloomError for a place without files.

    `unread` receives the names of other files in folders.
    """
    # A killed command leaves this folder behind, so it is created only for stdin.
    made = temporary_folder("spanloom-stdin-") if STDIN in places else nullcontext("")
    with made as spool:
        yield [file for place in places for file in _files_at(scratch, place, Path(spool), unread)]


def _files_at(scratch: Scratch, place: str, spool: Path, unread: list[str] | None) -> Iterator[TraceFile]:
    if place == STDIN:
        yield TraceFile(path=_stdin_file(spool), called=_STDIN_NAME)
        return
    if is_uri(place) and not find(parse_uri(place)):
        path = staged_records(scratch, place, SUFFIXES)
    else:
        path = scratch.file(place)
    if path.is_file():
        yield TraceFile(path=path, called=place)
        return
    if not path.is_dir() and (path.exists() or not glob.has_magic(place)):
        raise SpanloomError(
            "the path is not a file" if path.exists() else "JSONL file not found",
            where=place,
            remedy="give the path of a file or a folder of files, or a gs:// or s3:// URI of one",
        )
    files = find_record_files([path])
    if unread is not None and saved_files(path) is None:
        unread += passed_over(path, {file.path for file in files})
    for file in files:
        yield TraceFile(path=file.path, called=f"{place}/{file.name}" if path.is_dir() else str(file.path))


def _stdin_file(spool: Path) -> Path:
    """Copies stdin to a file whose suffix names the format."""
    stream = sys.stdin.buffer
    begin = stream.read(4)
    suffix = next((suffix for magic, suffix in _MAGIC.items() if begin.startswith(magic)), ".jsonl")
    path = spool / f"{_STDIN_NAME}{suffix}"
    with path.open("wb") as file:
        file.write(begin)
        shutil.copyfileobj(stream, file, 1 << 20)
    return path


@contextmanager
def opened_store(scratch: Scratch, place: str) -> Iterator[Store]:
    """The store at a database URL, in a local file, or in an object that is copied here first."""
    is_database = place.startswith(("sqlite:", "postgres:", "postgresql:"))
    store = open_store(place if is_database else file_url(scratch.file(place)))
    try:
        yield store
    finally:
        store.close()


def staged_manifest(scratch: Scratch, place: str) -> tuple[TraceManifest, str]:
    """The manifest in a file, and the sha256 of its bytes."""
    path = scratch.file(place)
    return load_manifest(path, place), sha256_file(path)
