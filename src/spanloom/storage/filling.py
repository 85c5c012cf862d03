"""A folder that one command fills from empty: a run that was killed leaves nothing that blocks the next.

In: the folder, the files that the command may write into it. Out: the folder, empty but for a record, while the block
runs; the record names these files, is held as a lock, and goes last. Where a killed run left its record, what it names
is removed, by exact name, and the command starts over; anything else that is there is a conflict.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spanloom.errors import ConflictError
from spanloom.provenance import readable_json
from spanloom.storage.local import (
    hold_lock,
    is_regular,
    path_below,
    remove_files,
    remove_if_empty,
    special_file_conflict,
)
from spanloom.storage.temporaries import clear_temporaries_of

RECORD_LIMIT = 1 << 28


@contextmanager
def filling(out: Path, *, record_name: str, identity: Any, files: Sequence[str]) -> Iterator[bool]:
    """Holds the folder `out` for one run. Yields whether a run with the same `identity` had finished it, and was killed
    before its record was gone: then all is complete, and there is nothing to do.

    `files`: all that may be written, relative, the last of them last: it says that the folder is finished. The caller
    has made sure that `out` is new or empty but for a record. Raises ConflictError where another run fills it.
    When the block raises, what it gave its final name is the block's to remove.
    """
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    record = out / record_name
    try:
        with locked(record) as stream:
            try:
                yield _clear(out, stream, identity, files)
            except BaseException:
                clear_temporaries_of(path_below(out, name) for name in files)
                record.unlink(missing_ok=True)
                raise
            record.unlink()
    except BaseException:
        if new:
            remove_if_empty(out)
        raise


def has_begun_run(out: Path, record_name: str) -> bool:
    """Whether a run was killed here, so that what it left may be cleared."""
    return is_regular(out / record_name)


def check_unused(out: Path, record_name: str, what: str) -> None:
    """Raises ConflictError where something is in `out` but a record. `what` goes there: "the export"."""
    if (os.path.lexists(out) and not out.is_dir()) or (
        out.is_dir() and any(path.name != record_name for path in out.iterdir())
    ):
        raise ConflictError(
            f"something is where {what} goes", where=str(out), remedy="give another --out, or remove it first"
        )


@contextmanager
def locked(record: Path) -> Iterator[IO[bytes]]:
    """The record of a folder, opened and held as a lock. Raises ConflictError where another run holds it."""
    while True:
        if os.path.lexists(record) and not is_regular(record):
            raise special_file_conflict(record)
        with record.open("a+b") as stream:
            what, remedy = "another run of this command fills this folder", "wait for it, or give another --out"
            hold_lock(stream, ConflictError(what, where=str(record.parent), remedy=remedy))
            if not is_regular(record) or not os.path.samestat(os.fstat(stream.fileno()), record.lstat()):
                continue  # another run has ended, and taken away the record that was opened
            yield stream
            return


def _clear(out: Path, stream: IO[bytes], identity: Any, files: Sequence[str]) -> bool:
    """Clears what a killed run left and writes the record of this one, before anything else is written."""
    stream.seek(0)
    if (left := _read(stream)) is not None:
        clear_temporaries_of(path_below(out, name) for name in left["files"])
        if left["identity"] == identity and is_regular(path_below(out, left["files"][-1])):
            return True
        remove_files(out, reversed(left["files"]))
    stream.truncate(0)
    stream.write(readable_json({"identity": identity, "files": list(files)}))
    stream.flush()
    os.fsync(stream.fileno())
    return False


def _read(stream: IO[bytes]) -> dict[str, Any] | None:
    """The record of a run; None where it is torn: nothing else was written then."""
    try:
        kept = json.loads(stream.read(RECORD_LIMIT))
        return {"identity": kept["identity"], "files": [str(name) for name in kept["files"]]} if kept["files"] else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
