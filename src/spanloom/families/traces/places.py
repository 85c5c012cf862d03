"""What datasets of traces are made from, at places: a store, the manifest of a dataset.

In: places as text, local or at URIs; a store may be a database's URL too. Out: what was opened. A store in an object
store is staged and read here: writes to the copy go nowhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from spanloom.families.traces.store.database import Store, file_url, open_store
from spanloom.families.traces.store.manifest import TraceManifest, load_manifest
from spanloom.storage import sha256_file
from spanloom.storage.scratch import Scratch


@contextmanager
def opened_store(scratch: Scratch, place: str) -> Iterator[Store]:
    """The store at a database's URL, in a local file, or in an object, which is staged."""
    is_database = place.startswith(("sqlite:", "postgres:", "postgresql:"))
    store = open_store(place if is_database else file_url(scratch.file(place)))
    try:
        yield store
    finally:
        store.close()


def staged_manifest(scratch: Scratch, place: str) -> tuple[TraceManifest, str]:
    """The manifest in a file, and the sha256 of its bytes."""
    path = scratch.file(place)
    return load_manifest(path, place), sha256_file(path)
