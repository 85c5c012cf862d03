"""Staging of folders of Parquet files and of prepared games, local or at URIs.

In: paths or URIs as text. Out: local paths. Local files are not copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spanloom.dataset.root.places import staged_root
from spanloom.families.chess import manifest
from spanloom.families.chess.errors import NoFilesError
from spanloom.families.chess.reading.source import parquet_files
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import Download, list_objects, safe_name, stage_files
from spanloom.storage.uri import is_uri, parse_uri


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A Parquet file of a folder: its number in the order of names, its name, its size, and its local path."""

    number: int
    name: str
    bytes: int
    path: Path


def found_files(scratch: Scratch, place: str) -> list[FoundFile]:
    """The Parquet files of a folder, sorted by name. Remote files are only listed. Raises NoFilesError if none."""
    if not is_uri(place):
        named = [(path.name, path.stat().st_size) for path in parquet_files(Path(place))]
    else:
        uri = parse_uri(place)
        prefix = f"{uri.key}/" if uri.key else ""
        objects = [(entry.uri.key.removeprefix(prefix), entry.bytes) for entry in list_objects(uri)]
        named = [(name, size) for name, size in objects if name.endswith(".parquet") and "/" not in name]
        if not named:
            raise NoFilesError("there is no *.parquet below this URI", where=place, remedy="fix the URI")
    folder = scratch.path(place)
    return [
        FoundFile(number=number, name=name, bytes=size, path=folder / name)
        for number, (name, size) in enumerate(sorted(named))
    ]


def stage_sources(files: list[FoundFile], place: str) -> None:
    """Downloads these files of a remote folder. Does nothing for a local one."""
    if is_uri(place):
        uri = parse_uri(place)
        stage_files([Download(uri=uri / safe_name(file.name, uri), path=file.path, bytes=file.bytes) for file in files])


def staged_folder(scratch: Scratch, place: str | None) -> Path | None:
    """Stages a folder of Parquet files. Returns its local path, or None if no place is given."""
    if place is not None and is_uri(place):
        stage_sources(found_files(scratch, place), place)
    return None if place is None else scratch.path(place)


def staged_games(scratch: Scratch, place: str) -> Path:
    """Stages prepared games with their manifest, or a folder of Parquet files. Returns the local path."""
    if is_uri(place) and manifest.is_prepared(place):
        return staged_root(scratch, place, manifest.check)
    return staged_folder(scratch, place) or Path(place)


@contextmanager
def local_folders(
    games: str | None, thinking: str | None, scratch: Path | None = None
) -> Iterator[tuple[Path | None, Path | None]]:
    """Context manager: the local paths of a folder of games and one of thinking rows, staged while the block runs."""
    with scratch_for("games", [games, thinking], scratch) as staging:
        yield staged_folder(staging, games), staged_folder(staging, thinking)


@contextmanager
def local_games(place: str, scratch: Path | None = None) -> Iterator[Path]:
    """Context manager: the local path of prepared games or a folder of Parquet files, staged while the block runs."""
    with scratch_for("root", [place], scratch) as staging:
        yield staged_games(staging, place)
