"""What traces are made from, at places: a store, the manifest of a dataset, files of records.

In: places as text, local or at URIs; a store may be a database's URL too. Out: what was opened. A store in an object
store is staged and read here: writes to the copy go nowhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanloom.families.traces.store.database import Store, file_url, open_store
from spanloom.families.traces.store.manifest import TraceManifest, load_manifest
from spanloom.families.traces.trace import SUFFIXES
from spanloom.records.staging import staged_records
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch


@contextmanager
def opened_store(scratch: Scratch, place: str) -> Iterator[Store]:
    """The store at a database's URL, in a local file, or in an object, which is staged."""
    url = place if is_database(place) else file_url(scratch.file(place))
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def is_database(place: str) -> bool:
    """Whether a place is the URL of a database, and no file."""
    return place.startswith(("sqlite:", "postgres:", "postgresql:"))


def staged_manifest(scratch: Scratch, place: str) -> tuple[TraceManifest, str]:
    """The manifest in a file, and the sha256 of its bytes."""
    path = scratch.file(place)
    return load_manifest(path, place), sha256_file(path)


def staged_lines(scratch: Scratch, place: str) -> Path:
    """A file of JSON Lines, or a folder of such files."""
    return staged_records(scratch, place, SUFFIXES)
