"""Holds a dataset root for one build at a time on this machine, and records which files belong to that build.

In: the root. Out: `ROOT/.work`, the folder of intermediates, while the block runs. `build.json` in it names the build
that has begun, and every file that it may write. Only files that this record or a manifest names, by exact name, are
ever removed from a root, and nothing through a link.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from spanloom.dataset.manifest import MANIFEST_NAME, PENDING_NAME
from spanloom.dataset.root.layout import REJECTS, VIEW_NAMES, array_prefix, rejects_file, rows_file
from spanloom.errors import ConflictError, StorageError
from spanloom.provenance import readable_json
from spanloom.split import SPLITS
from spanloom.storage import (
    clear_temporaries,
    clear_temporaries_of,
    held,
    is_regular,
    lock_names,
    path_below,
    read_json,
    remove_files,
    remove_if_empty,
    special_file_conflict,
    write_atomically,
)
from spanloom.storage.local import refused_access

WORK_NAME = ".work"
LOCK_NAME = "lock"
BUILD_JSON = "build.json"
NEW_NAME = "new"
"""Below `.work`: the new dataset that will replace the one at the root."""

REPLACED_JSON = "replaced.json"
"""Below `.work`: the manifest of a dataset that is being replaced."""

_BUILD_FORMAT = "spanloom_build_v1"
_NAMES_SAID = 3


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """The build that has begun at a root. `identity`: what decides the bytes, as JSON.

    `files`: all files that it may write below the root, relative, without the manifest and the views. `work`: all names
    that it may create in `.work`, without the record and the lock.
    """

    identity: dict[str, Any]
    files: tuple[str, ...]
    work: tuple[str, ...] = ()


def data_names(*, shards: int, splits: Sequence[str], arrays: Mapping[str, str], rejects: bool) -> tuple[str, ...]:
    """All files that a build of `shards` shards may write, relative to its root: the pending manifest and the data."""
    names = []
    for shard in range(shards):
        for split in splits:
            prefixes = [array_prefix(Path(), split, shard, array).as_posix() for array in arrays]
            names += [f"{prefix}{suffix}" for prefix in prefixes for suffix in (".idx", ".bin")]
            names.append(rows_file(Path(), split, shard).as_posix())
        if rejects:
            names.append(rejects_file(Path(), shard).as_posix())
    return (PENDING_NAME, *names)


def check_apart(source: Path, root: Path) -> None:
    """Raises ConflictError if the dataset's root is inside its source or contains it: their files would mix."""
    origin, other = source.resolve(), root.resolve()
    if origin == other or origin in other.parents or other in origin.parents:
        raise ConflictError(
            "the output root and the source contain one another",
            where=f"{root} and {source}",
            remedy="give another --out",
        )


def check_root(root: Path) -> None:
    """Raises ConflictError for a root with files that belong to no dataset and no build of Spanloom, or with links or
    special files among its folders. Hidden files and `lost+found` are ignored.
    """
    work = root / WORK_NAME
    for folder in (work, *(root / name for name in (*SPLITS, REJECTS))):
        if folder.is_symlink():
            raise special_file_conflict(folder)
    for directory, folders, files in os.walk(work):
        for path in (Path(directory, name) for name in (*folders, *files)):
            try:
                kind = path.lstat().st_mode
            except FileNotFoundError:
                continue  # another build is running here, and its lock will refuse this build
            if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
                raise special_file_conflict(path)
    if not root.is_dir() or (work / BUILD_JSON).exists():
        return
    foreign = [
        f"{WORK_NAME}/{path.name}"
        for path in _entries(work)  # without a record, a build has just begun or was killed at once
        if path.name not in (*lock_names(LOCK_NAME), BUILD_JSON) and not path.name.startswith(f".{BUILD_JSON}.")
    ]
    if not os.path.lexists(root / MANIFEST_NAME):
        foreign += [path.name for path in _entries(root) if not path.name.startswith(".") and path.name != "lost+found"]
    if foreign:
        more = f" and {len(foreign) - _NAMES_SAID} more" if len(foreign) > _NAMES_SAID else ""
        raise ConflictError(
            f"the output root holds what no build of Spanloom made: {', '.join(foreign[:_NAMES_SAID])}{more}",
            where=str(root),
            remedy="give an --out that is new or empty, or move away what is there",
        )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def held_root(root: Path) -> Iterator[Path]:
    """The folder of intermediates, held by one build at a time. Raises ConflictError for a root with foreign files
    (`check_root`) or a running build, StorageError for a root that cannot be written."""
    check_root(root)
    work = root / WORK_NAME
    while True:
        try:
            work.mkdir(parents=True, exist_ok=True)
            lock = (work / LOCK_NAME).open("a")
        except FileNotFoundError as refusal:
            if root.is_dir():
                continue  # a build that has just ended removed the folder in between
            raise StorageError(
                "the output root cannot be made", where=str(root), remedy="give an --out that you may write to"
            ) from refusal
        except OSError as refusal:
            why, remedy = refusal.strerror, "give an --out that you may write to"
            if refusal.errno == errno.EACCES and (refused := refused_access(work)) is not None:
                why, remedy = refused
            raise StorageError(f"the output root cannot be written: {why}", where=str(root), remedy=remedy) from refusal
        what, remedy = "another build is running into this root", "wait for it, or give another --out"
        with lock, held(lock, work / LOCK_NAME, ConflictError(what, where=str(root), remedy=remedy)):
            if not _same_file(lock, work / LOCK_NAME):
                continue  # the folder was removed after the lock was opened: this lock protects nothing
            try:
                yield work
            except BaseException:
                if {path.name for path in work.iterdir()} <= {*lock_names(LOCK_NAME)}:  # refused before any work
                    _release(work)
                    remove_if_empty(root)
                raise
            return


def read_record(work: Path) -> BuildRecord | None:
    """The record of the build that has begun in this folder of intermediates, or None. Raises ConflictError if the
    record cannot be read: then the owner of the files is unknown."""
    path = work / BUILD_JSON
    what = "the record of the build that has begun here"
    remedy = f"give another --out, or move {work} away, and what an unfinished build left beside it"
    try:
        recorded = read_json(path, ConflictError, what, remedy)
    except FileNotFoundError:
        return None
    try:
        if path.is_symlink() or recorded["format"] != _BUILD_FORMAT:
            raise ValueError
        record = BuildRecord(
            identity=dict(recorded["identity"]),
            files=tuple(map(str, recorded["files"])),
            work=tuple(map(str, recorded["work"])),
        )
        for name in record.files:
            path_below(work.parent, name)
        if any("/" in name or not path_below(work, name).name for name in record.work):
            raise ValueError
    except (ValueError, KeyError, TypeError, ConflictError):
        raise ConflictError(
            f"{what} is damaged, or of another version of Spanloom", where=str(path), remedy=remedy
        ) from None
    return record


def is_work_of(work: Path, record: BuildRecord) -> bool:
    """Whether the folder of intermediates belongs to this build, not to another unfinished one."""
    begun = read_record(work)
    return begun is None or begun.identity == record.identity


def claim(root: Path, work: Path, record: BuildRecord) -> None:
    """Claims the held folder for this build: clears leftovers, then writes its record."""
    clear_leftovers(root, work, record)
    recorded = {"format": _BUILD_FORMAT, "identity": record.identity, "files": record.files, "work": record.work}
    write_atomically(work / BUILD_JSON, readable_json(recorded))


def claim_or_discard(
    root: Path,
    work: Path,
    record: BuildRecord,
    *,
    made_by: Callable[[dict[str, Any]], bool] | None,
    resume: bool,
    remove_views: Callable[[Path], object],
) -> None:
    """`claim` if no other build has begun. Without `resume`, first discards the files of any unfinished build, this one
    included.

    `made_by`: whether the finished dataset at the root, which is to be replaced, has a given identity; None if there is
    no such dataset. Its files are not touched. With `resume`, raises ConflictError if another build has begun, unless
    it made this dataset.
    """
    begun = read_record(work)
    if begun is not None and (not resume or begun.identity != record.identity):
        if resume and not (made_by is not None and made_by(begun.identity)):
            raise unfinished(root, "discard it with --no-resume")
        remove_intermediates(work, begun)
        if made_by is None:
            remove_files(root, begun.files)
            remove_views(root)
    claim(root, work, record)


def clear_leftovers(root: Path, work: Path, record: BuildRecord) -> None:
    """Removes temporary files of killed processes: all in `.work`, and those of this build's files at the root."""
    clear_temporaries(work)
    clear_temporaries_of(root / name for name in (*record.files, MANIFEST_NAME))
    clear_temporaries_of((root / name for name in VIEW_NAMES), spare_held=True)  # `validate` may be writing one now


def release_if_unused(root: Path, work: Path, record: BuildRecord) -> None:
    """Removes the claim if the build, whose temporary files are cleared, has no file and no intermediate yet.

    Also removes the empty folders of its files; `held_root` then removes `.work`.
    """
    if any(
        os.path.lexists(path) for path in (*(root / name for name in record.files), *(work / n for n in record.work))
    ):
        return
    remove_files(root, record.files)  # there are no files: this removes only the empty folders
    (work / BUILD_JSON).unlink(missing_ok=True)


def unfinished(root: Path, remedy: str) -> ConflictError:
    """The error for a root in which another build has begun."""
    return ConflictError(
        "the root holds an unfinished build with other options or another source",
        where=str(root),
        remedy=f"run that one again to finish it, {remedy}, or give another --out",
    )


def _same_file(stream: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


def remove_intermediates(work: Path, record: BuildRecord) -> None:
    """Removes this build's files in `.work`; the record and the lock stay."""
    clear_temporaries(work)
    for name in record.work:
        path = work / name
        if name == NEW_NAME:
            remove_new(work, record)
        elif path.is_dir():
            shutil.rmtree(path)
        elif is_regular(path):
            path.unlink()


def remove_new(work: Path, record: BuildRecord) -> None:
    """Removes the dataset in `.work/new`, its manifest first: a manifest never exists without its files."""
    new = work / NEW_NAME
    if new.is_dir():
        clear_temporaries(new)
        remove_files(new, (MANIFEST_NAME, *record.files, *VIEW_NAMES))
        remove_if_empty(new)


def remove_work(root: Path) -> list[str]:
    """Removes the folder of intermediates and its build's files. Returns the paths of foreign files, which stay."""
    work = root / WORK_NAME
    if (record := read_record(work)) is not None:
        remove_intermediates(work, record)
        (work / BUILD_JSON).unlink()
    clear_temporaries(work)
    kept = [str(path) for path in _entries(work) if path.name not in lock_names(LOCK_NAME)]
    _release(work)
    return kept


def _release(work: Path) -> None:
    """Removes the lock, then the folder. A process that opened the lock meanwhile notices its removal; a process that
    creates a new lock keeps the folder."""
    for name in lock_names(LOCK_NAME):
        (work / name).unlink(missing_ok=True)
    try:
        work.rmdir()
    except OSError as refusal:
        if refusal.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
