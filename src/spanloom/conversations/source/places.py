"""Source folders of conversations, local or at a URI.

In: a path or URI as text. Out: a local path. A local folder is not copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanloom.conversations.source.folder import (
    MANIFEST_NAME,
    RECORD_FILES,
    Only,
    Source,
    is_wanted,
    not_converted,
    read_listing,
)
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import Download, safe_name, stage_file, stage_files
from spanloom.storage.uri import is_uri, parse_uri


def staged_source(scratch: Scratch, place: str, only: Only = None) -> Path:
    """The manifest of a source and its shards, or `only` some of them, each with the expected size and sha256."""
    path = scratch.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    if uri.name.endswith(RECORD_FILES):
        raise not_converted(place)
    stage_file(uri / MANIFEST_NAME, path / MANIFEST_NAME)
    stage_files(
        [
            Download(
                uri=uri / safe_name(shard.path.relative_to(path).as_posix(), uri),
                path=shard.path,
                bytes=shard.bytes,
                sha256=shard.sha256,
            )
            for shard in read_listing(path).shards
            if is_wanted(shard.index, only)
        ]
    )
    return path


def staged_listing(scratch: Scratch, place: str) -> Source:
    """The listing in the manifest of a source. No shard is staged or read."""
    return read_listing(staged_source(scratch, place, only=-1))


@contextmanager
def local_source(source: str, scratch: Path | None = None) -> Iterator[Path]:
    """A whole source folder on this machine, while the block runs."""
    with scratch_for("source", [source], scratch) as staging:
        yield staged_source(staging, source)
