"""Files of records at a local path (used in place) or at a URI (downloaded).

In: a path or URI as text, the accepted file name endings. Out: a local path.
"""

from pathlib import Path

from spanloom.errors import StorageError
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import check_no_slash, find, list_objects, safe_name, stage_file
from spanloom.storage.stores.objects import StoredObject
from spanloom.storage.uri import is_uri, parse_uri


def staged_records(scratch: Scratch, place: str, suffixes: tuple[str, ...]) -> Path:
    """The local path of a file with one of these endings, or of a folder with all such files below a URI.

    A local path is returned unchecked. Raises StorageError if there is no such object at or below the URI.
    """
    path = scratch.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    for name, entry in objects_of_records(place, suffixes).items():
        stage_file(entry.uri, path if entry.uri == uri else path / name)
    return path


def objects_of_records(place: str, suffixes: tuple[str, ...]) -> dict[str, StoredObject]:
    """The object at a URI, or all objects below it, with one of these endings, by their names relative to the URI.

    An object at the URI itself is keyed by its base name. Raises StorageError if there is no such object.
    """
    uri = parse_uri(place)
    if uri.key.endswith(suffixes) and (stored := find(uri)):
        return {uri.name: stored}
    below = [entry for entry in list_objects(uri) if entry.uri.key.endswith(suffixes)]
    if not below:
        check_no_slash(uri)
        kinds = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise StorageError(f"there is no {kinds} object below this URI", where=str(uri), remedy="fix the URI")
    return {safe_name(entry.uri.key.removeprefix(uri.key).strip("/"), uri): entry for entry in below}
