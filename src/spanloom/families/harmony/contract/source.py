"""Opens and stages the source folders of Harmony datasets: SYNTH and conversations.

In: a directory, or a path or URI as text. Out: a `Source` or a staged directory, in one of the formats of the profiles.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanloom.conversations.source import folder, places
from spanloom.conversations.source.folder import Source
from spanloom.families.harmony.contract.profile import PROFILES
from spanloom.storage.scratch import Scratch, scratch_for

FORMATS = tuple(profile.source for profile in PROFILES)


def open_source(directory: Path, *, shards: int | None = None, only: folder.Only = None) -> Source:
    """`folder.open_source` for these formats."""
    return folder.open_source(directory, FORMATS, shards=shards, only=only)


def staged_source(scratch: Scratch, place: str, only: folder.Only = None) -> Path:
    """`places.staged_source` for these formats."""
    return places.staged_source(scratch, place, FORMATS, only=only)


def staged_listing(scratch: Scratch, place: str) -> Source:
    """The listing in the manifest of a source. No shard is staged or read."""
    return folder.read_listing(places.staged_source(scratch, place, FORMATS, only=-1), FORMATS)


@contextmanager
def local_source(source: str, scratch: Path | None = None) -> Iterator[Path]:
    """A local copy of a whole source folder, while the block runs."""
    with scratch_for("source", [source], scratch) as staging:
        yield staged_source(staging, source)
