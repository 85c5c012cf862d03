"""The record files at a path, and the place of a record in a file.

In: a local file or folder, and the accepted file name endings. Out: paths in the order in which they are read.

A record that cannot be read is passed to `unreadable`, as a RecordError that names file and line or row; `stop`, the
default, raises it. A file that cannot be opened always raises.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from spanloom.errors import RecordError, SourceError
from spanloom.records.unpacked import COMPRESSED
from spanloom.text import is_utf8


class RecordPlace(str):
    """The place of a record: `chat.jsonl, line 17`, with 17 as `number`."""

    number: int

    @classmethod
    def of(cls, path: Path, unit: str, number: int) -> "RecordPlace":
        place = cls(f"{path}, {unit} {number}")
        place.number = number
        return place


OnUnreadable = Callable[[RecordError], None]


def stop(error: RecordError) -> None:
    """Raises `error`: the default treatment of a record that cannot be read."""
    raise error


def find_files(place: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The file `place`, or a folder's files with these endings, by relative path. Raises SourceError for none."""
    wanted = _in_words(suffixes)
    if place.is_dir():
        # Names that begin with a dot are not data but caches, or temporary files of a killed run.
        files = sorted(
            path.relative_to(place).as_posix()
            for path in place.rglob("*")
            if path.name.endswith(suffixes) and path.is_file() and not path.name.startswith(".")
        )
        if not files:
            raise SourceError("the folder holds none of " + wanted, where=str(place), remedy="give such files")
        check_names(files)
        return [place / name for name in files]
    if not place.exists():
        raise SourceError("the source does not exist", where=str(place), remedy=f"give a file ({wanted}) or a folder")
    if not place.is_file():
        remedy = f"give a file ({wanted}) or a folder"
        raise SourceError("the source is not a regular file", where=str(place), remedy=remedy)
    if not place.name.endswith(suffixes):
        raise SourceError("unsupported file type", where=str(place), remedy=f"give one of {wanted}")
    return [place]


def passed_over(place: Path, read: Collection[Path]) -> list[str]:
    """What a folder holds besides the files that are read: names below it, sorted, links that are not followed as such.

    Empty for a file. Names that begin with a dot are not data.
    """
    names = []
    for path in place.rglob("*") if place.is_dir() else ():
        if path in read or path.name.startswith("."):
            continue
        name = path.relative_to(place).as_posix()
        name = name if is_utf8(name) else repr(name)
        if path.is_dir():
            if path.is_symlink():
                names.append(f"{name} (a link to a folder)")
        else:
            names.append(name if path.exists() else f"{name} (a link to nothing)")
    return sorted(names)


NAMED = 20


def passed_over_line(names: Sequence[str]) -> str:
    """A line for the user that counts the files that are not read, and names the first `NAMED`."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    noun = "file" if len(names) == 1 else "files"
    return f"not read: {len(names):,} {noun} ({', '.join(names[:NAMED])}{more})"


def _in_words(suffixes: tuple[str, ...]) -> str:
    """`*.jsonl, *.csv, each also .gz or .zst`"""
    plain = [suffix for suffix in suffixes if not suffix.endswith(COMPRESSED)]
    compressed = {suffix + ending for suffix in plain for ending in COMPRESSED}
    if set(suffixes) == {*plain, *compressed}:
        return ", ".join(f"*{suffix}" for suffix in plain) + f", each also {' or '.join(COMPRESSED)}"
    return ", ".join(f"*{suffix}" for suffix in suffixes)


def check_names(names: Iterable[str]) -> None:
    """Raises SourceError for a name that is not UTF-8: reports and manifests cannot hold it."""
    for name in names:
        if not is_utf8(name):
            raise SourceError("the file's name is not UTF-8", where=repr(name), remedy="rename the file")


def name_below(file: Path, place: Path) -> str:
    """A file's name in a manifest: its path below the folder `place`, or its base name if `place` is the file."""
    return file.name if file == place else file.relative_to(place).as_posix()
