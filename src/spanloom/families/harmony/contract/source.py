"""The source folders that Harmony datasets are made from, SYNTH's and those of any conversations, opened and staged.

In: a directory, or a place as text. Out: what `spanloom.conversations.source` makes of it, by the formats of the
profiles.
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


def staged_source(scratch: Scratch, place: str, *, only: folder.Only = None) -> Path:
    """`places.staged_source` for these formats."""
    return places.staged_source(scratch, place, FORMATS, only=only)


def staged_listing(scratch: Scratch, place: str) -> Source:
    """What the manifest of a source says. No shard is staged or looked at."""
    return folder.read_listing(places.staged_source(scratch, place, FORMATS, only=-1), FORMATS)


@contextmanager
def local_source(source: str, scratch: Path | None = None) -> Iterator[Path]:
    """The whole of a source folder on this machine, while the block runs."""
    with scratch_for("source", [source], scratch) as staging:
        yield staged_source(staging, source)
