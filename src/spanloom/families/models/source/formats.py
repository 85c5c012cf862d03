"""The formats of source folders that a dataset of any model is made from; folders opened and staged.

In: a directory, or a path or URI as text. Out: a `Source`, or a folder on this machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from spanloom.conversations.source import folder, places
from spanloom.conversations.source.folder import Only, Source
from spanloom.conversations.source.format import ANY_MODEL, CONVERSATIONS, SourceFormat
from spanloom.storage.scratch import Scratch, scratch_for

SYNTH: Final = replace(
    CONVERSATIONS,
    schema_version="synth_harmony_v1",
    converter="spanloom convert-synth",
    manifest=None,
    shard_glob="synth_harmony_shard_*.parquet",
    id_column="synth_id",
    id_is_demanded=False,
    roles=("system", "developer", "user", "assistant"),
    strict=False,
)
"""`synth_harmony_v1`, as docs/format.md describes it."""

FORMATS = (ANY_MODEL, CONVERSATIONS, SYNTH)


def format_named(schema_version: str) -> SourceFormat | None:
    """The format with this `schema_version`; None if it is not one of `FORMATS`."""
    return next((each for each in FORMATS if each.schema_version == schema_version), None)


def open_source(directory: Path, *, only: Only = None) -> Source:
    """`folder.open_source` for these formats. Raises SourceError."""
    return folder.open_source(directory, FORMATS, only=only)


def staged_source(scratch: Scratch, place: str, only: Only = None) -> Path:
    """`places.staged_source` for these formats."""
    return places.staged_source(scratch, place, FORMATS, only=only)


@contextmanager
def local_source(source: str, scratch: Path | None = None) -> Iterator[Path]:
    """A whole source folder on this machine, while the block runs."""
    with scratch_for("source", [source], scratch) as staging:
        yield staged_source(staging, source)
