"""A folder that one command fills from empty: what a killed run leaves does not block the next run.

In: the folder, the files that the command may write into it. Out: while the block runs, a folder that holds only a
record. The record names these files, is held as a lock, and is removed last. If a killed run left its record, the files
that it names are removed, by exact name, and the command starts over; any other file in the folder is a conflict.
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
    """Holds the folder `out` for one run. Yields True if a run with the same `identity` finished it and was killed
    before its record was removed: then everything is complete, and there is nothing to do.

    `files`: all files that may be written, relative. The last one is written last: it marks the folder as finished.
    The caller has checked that `out` is new, or holds only a record. Raises ConflictError if another run fills it.
    If the block raises, the block must remove the files that already have their final names.
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
    """Whether a run was killed here, so that its files may be removed."""
    return is_regular(out / record_name)


def check_unused(out: Path, record_name: str, what: str) -> None:
    """Raises ConflictError if `out` holds anything except a record, or is not a folder. `what`: names the output in
    the message, such as "the export"."""
    if (os.path.lexists(out) and not out.is_dir()) or (
        out.is_dir() and any(path.name != record_name for path in out.iterdir())
    ):
        raise ConflictError(
            f"something is where {what} goes", where=str(out), remedy="give another --out, or remove it first"
        )


@contextmanager
def locked(record: Path) -> Iterator[IO[bytes]]:
    """The record of a folder, opened and held as a lock. Raises ConflictError if another run holds it."""
    while True:
        if os.path.lexists(record) and not is_regular(record):
            raise special_file_conflict(record)
        with record.open("a+b") as stream:
            what, remedy = "another run of this command fills this folder", "wait for it, or give another --out"
            hold_lock(stream, ConflictError(what, where=str(record.parent), remedy=remedy))
            if not is_regular(record) or not os.path.samestat(os.fstat(stream.fileno()), record.lstat()):
                continue  # another run finished meanwhile, and removed the record that was opened
            yield stream
            return


def _clear(out: Path, stream: IO[bytes], identity: Any, files: Sequence[str]) -> bool:
    """Removes what a killed run left, then writes the record of this run. True if that run had finished the folder."""
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
    """The record of a run; None if it is incomplete: then the run wrote nothing else."""
    try:
        kept = json.loads(stream.read(RECORD_LIMIT))
        return {"identity": kept["identity"], "files": [str(name) for name in kept["files"]]} if kept["files"] else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
