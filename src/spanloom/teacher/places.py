"""Signals at a path or a URI: staged for reading, published file by file, and kept while they are made.

In: places as text, the scratch folder of a command. Out: local paths. A run whose signals go to a bucket keeps its
finished parts there, with the record of them, so that another machine goes on with it. Signals are published with their
manifest last; then the parts are removed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from spanloom.storage.publishing import publish_file, remove_if_allowed
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import Download, find, list_objects, safe_name, stage_files
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.teacher.format import TEACHER_JSON
from spanloom.teacher.score import PARTS, RECORD_NAME

TASKS = ".tasks"
"""The folder below signals where tasks of some shards each work."""


def task_place(signals: str, number: int, count: int) -> str:
    """Where task `number` of `count` works: a folder or URI below the signals."""
    return f"{signals.rstrip('/')}/{TASKS}/{number:02d}-of-{count:02d}"


def begun_signals(scratch: Scratch, place: str) -> Path:
    """The local path of signals that are made: with those that are finished, or with the parts of a run before.

    What this machine has of an unfinished run is kept: it is as new as the bucket, or newer.
    """
    path = scratch.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    if find(uri / TEACHER_JSON) is not None:
        return scratch.folder(place)
    if not (path / RECORD_NAME).is_file() and find(uri / RECORD_NAME) is not None:
        parts = list_objects(uri / PARTS)
        names = [f"{PARTS}/{safe_name(part.uri.name, uri)}" for part in parts]
        path.mkdir(parents=True, exist_ok=True)
        stage_files([Download(uri=uri / name, path=path / name) for name in (*names, RECORD_NAME)])
    return path


def keeping_parts(scratch: Scratch, place: str) -> Callable[[Sequence[str]], None] | None:
    """What `score` calls with the files of each finished step: they are uploaded. None for a local place."""
    if not is_uri(place):
        return None
    path, uri = scratch.path(place), parse_uri(place)

    def keep(names: Sequence[str]) -> None:
        for name in names:
            publish_file(path / name, uri / name, replace=True)

    return keep


def publish_signals(scratch: Scratch, place: str) -> None:
    """Publishes finished signals, and removes what the run kept. Does nothing for a local place."""
    if not is_uri(place):
        return
    scratch.publish_folder(place, last=TEACHER_JSON)
    uri = parse_uri(place)
    for part in list_objects(uri / PARTS):
        remove_if_allowed(part.uri)
    if find(uri / RECORD_NAME) is not None:
        remove_if_allowed(uri / RECORD_NAME)
