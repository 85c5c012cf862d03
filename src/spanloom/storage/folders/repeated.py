"""A folder that a command has filled (`filling`) and is to fill again: the same is kept, another replaced on request.

In: the folder, the identity of what is to be in it, a function that fills a folder. Out: whether it was there already.
A filled folder has a record of its own, written with its last file: the identity, and all files with their sha256.

    OUT/.spanloom-made.json        identity and files
    OUT/.spanloom-new/             with `overwrite`: the new content is made here, while the old one stays usable
    OUT/.spanloom-replaced.json    the commit: the old record, renamed. From here on the new content counts: the files
                                   that the old record lists are removed, the new ones moved up, the last file last

A run that is killed before the commit leaves the old content; after it, the next run of any command moves the rest.
Files that the record does not list are never removed: they are a conflict.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.errors import ConflictError, OptionError
from spanloom.provenance import canonical_json, readable_json
from spanloom.storage.folders.filling import locked_record
from spanloom.storage.local import (
    fsync_directory,
    is_regular,
    path_below,
    remove_files,
    remove_if_empty,
    sha256_file,
    write_atomically,
)
from spanloom.storage.locks import lock_names
from spanloom.storage.small_files import read_json
from spanloom.storage.temporaries import clear_temporaries_of
from spanloom.storage.uri import is_uri

MADE_JSON = ".spanloom-made.json"
_NEW, _REPLACED = ".spanloom-new", ".spanloom-replaced.json"
_LAST, _LOCK = ".spanloom-last", ".spanloom-replacing"

Identity = Mapping[str, Any]
"""What the content is made of, as JSON. Its keys name what differs: `input`, `options`."""


OnSame = Callable[[], None]
"""Called if the same content was there already."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command writes into a folder. `last`: its last file; `record_name`: that of `filling`."""

    identity: Identity
    last: str
    record_name: str


def already_there(out: object) -> str:
    """What a command says that was run before."""
    return f"{out} is there already, of the same input and options; nothing was written"


def check_overwritable(out: str, overwrite: bool) -> None:
    """Raises OptionError if a URI is to be overwritten: objects are only created."""
    if overwrite and is_uri(out):
        raise OptionError(f"--overwrite replaces folders on this machine, not {out}", remedy="give another --out")


def finish(out: Path, output: Output, data: bytes) -> None:
    """Writes the record of all files in `out`, then `data` as the last file."""
    write_record(out, output)
    write_atomically(out / output.last, data)


def write_record(out: Path, output: Output) -> None:
    """Writes the record of all files in `out`, before the last file is written."""
    files = {
        name: sha256_file(out / name)
        for name in sorted(_names(out))
        if name not in (*lock_names(output.record_name), output.last)
    }
    record = {"identity": json.loads(canonical_json(output.identity)), "last": output.last, "files": files}
    write_atomically(out / MADE_JSON, readable_json(record))


def made_or_same(
    out: Path,
    output: Output,
    make: Callable[[Path], object],
    *,
    overwrite: bool = False,
    on_same: OnSame | None = None,
) -> bool:
    """Fills `out` by `make(folder)`, which calls `finish`. Returns whether the same was there already, whole; then
    `on_same` is called.

    Raises ConflictError if `out` has anything else, unless it is of this command and `overwrite` is set: then it is
    replaced as a whole, after the new content is complete. Nothing is written if nothing is to be replaced.
    """
    same = False
    if any(os.path.lexists(out / name) for name in (_REPLACED, _LOCK)):  # a run was killed, or is at work
        with _lock(out):
            if os.path.lexists(out / _REPLACED):
                _move_new(out)
    if not _is_finished(out, output):
        make(out)
    elif (difference := _difference(out, output)) is None:
        same = True
    elif overwrite:
        with _lock(out):
            _replace(out, output, make)
    else:
        raise ConflictError(
            f"this folder has another result of this command: {difference}",
            where=str(out),
            remedy="replace it with --overwrite, or give another --out",
        )
    if same and on_same is not None:
        on_same()
    return same


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    with locked_record(out / _LOCK):
        try:
            yield
        finally:
            (out / _LOCK).unlink(missing_ok=True)


def _is_finished(out: Path, output: Output) -> bool:
    """Whether a command has filled the folder, and no run of it is unfinished."""
    return all(is_regular(out / name) for name in (MADE_JSON, output.last)) and not os.path.lexists(
        out / output.record_name
    )


def _replace(out: Path, output: Output, make: Callable[[Path], object]) -> None:
    """Makes the new content in `out`, then puts it into the place of the old one."""
    known = {*_record(out / MADE_JSON)["files"], output.last}
    if foreign := sorted(name for name in _names(out) if name not in known and not name.startswith(f"{_NEW}/")):
        raise ConflictError(
            f"a file that the command did not write is here: {foreign[0]}",
            where=str(out),
            remedy="move it away, or give another --out",
        )
    new = out / _NEW
    if _is_finished(new, output) and _difference(new, output) is not None:
        _remove(new, _record(new / MADE_JSON))
    if not _is_finished(new, output):
        make(new)
    (out / MADE_JSON).replace(out / _REPLACED)
    fsync_directory(out)
    _move_new(out)


def _difference(out: Path, output: Output) -> str | None:
    """How the content of a folder differs from what is wanted; None if it is the same, and no file was changed."""
    record, wanted = _record(out / MADE_JSON), json.loads(canonical_json(output.identity))
    if record["identity"] != wanted:
        keys = sorted({*record["identity"], *wanted})
        return f"other {', '.join(key for key in keys if record['identity'].get(key) != wanted.get(key))}"
    for name, sha256 in record["files"].items():
        path = path_below(out, name)
        if not is_regular(path) or sha256_file(path) != sha256:
            return f"{name} is missing or was changed"
    return None


def _move_new(out: Path) -> None:
    """Does the steps after the commit, also those that a killed run has left."""
    new, old = out / _NEW, _record(out / _REPLACED)
    record = _record((new if is_regular(new / MADE_JSON) else out) / MADE_JSON)
    last, names = record["last"], [*record["files"], MADE_JSON]
    if is_regular(new / last):  # beside it, all that it lists must be there
        (new / last).replace(out / _LAST)
    moved = {name for name in names if not os.path.lexists(path_below(new, name))}
    if not os.path.lexists(out / _LAST):
        moved.add(last)
    remove_files(out, [name for name in (old["last"], *old["files"]) if name not in moved])
    for name in names:
        if name not in moved:
            path_below(out, name).parent.mkdir(parents=True, exist_ok=True)
            path_below(new, name).replace(path_below(out, name))
    for folder in sorted({(out / name).parent for name in names}):
        fsync_directory(folder)
    if os.path.lexists(out / _LAST):
        (out / _LAST).replace(out / last)
    clear_temporaries_of(path_below(new, name) for name in (*names, last))
    for folder in sorted({new, *((new / name).parent for name in names)}, reverse=True):
        if folder.is_dir():
            folder.rmdir()
    (out / _REPLACED).unlink()


def _remove(folder: Path, record: Mapping[str, Any]) -> None:
    """Removes the files of a record, the last one first, and their folders if nothing else is in them."""
    names = [record["last"], MADE_JSON, *record["files"]]
    clear_temporaries_of(path_below(folder, name) for name in names)
    remove_files(folder, names)
    for below in sorted({(folder / name).parent for name in names}, reverse=True):
        remove_if_empty(below)


def _record(path: Path) -> dict[str, Any]:
    remedy = "give another --out, or remove the folder"
    record = read_json(path, ConflictError, "the record of what is in this folder", remedy)
    shape = {"identity": dict, "last": str, "files": dict}
    if not isinstance(record, dict) or not all(isinstance(record.get(key), kind) for key, kind in shape.items()):
        raise ConflictError("this is no record of what a command wrote", where=str(path), remedy=remedy)
    return record


def _names(folder: Path) -> Iterator[str]:
    """The files below a folder, relative, but for those of this module."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name not in (MADE_JSON, _REPLACED, _LAST, *lock_names(_LOCK)):
            yield name
