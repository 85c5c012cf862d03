"""Files of records at a place: a local file or folder as it is, objects staged.

In: a place as text, the endings that count. Out: a local path.
"""

from pathlib import Path

from spanloom.errors import StorageError
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import find, list_objects, safe_name, stage_file
from spanloom.storage.stores.objects import StoredObject
from spanloom.storage.uri import is_uri, parse_uri


def staged_records(scratch: Scratch, place: str, suffixes: tuple[str, ...]) -> Path:
    """A file of one of these kinds, or all such files of a folder. Raises StorageError where there is none."""
    path = scratch.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    for name, entry in objects_of_records(place, suffixes).items():
        stage_file(entry.uri, path if entry.uri == uri else path / name)
    return path


def objects_of_records(place: str, suffixes: tuple[str, ...]) -> dict[str, StoredObject]:
    """The object at a URI, or all objects below it, that are of one of these kinds, by the names below the URI.

    One object at the URI itself has its own name. Raises StorageError where there is none.
    """
    uri = parse_uri(place)
    if uri.key.endswith(suffixes) and (stored := find(uri)):
        return {uri.name: stored}
    below = [entry for entry in list_objects(uri) if entry.uri.key.endswith(suffixes)]
    if not below:
        kinds = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise StorageError(f"there is no {kinds} object below this URI", where=str(uri), remedy="fix the URI")
    return {safe_name(entry.uri.key.removeprefix(uri.key).strip("/"), uri): entry for entry in below}
