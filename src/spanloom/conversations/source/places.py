"""Source folders of conversations, local or at a URI.

In: a path or URI as text, the accepted formats. Out: a local path. A local folder is not copied.
"""

from collections.abc import Sequence
from pathlib import Path

from spanloom.conversations.source.folder import (
    MANIFEST_NAME,
    RECORD_FILES,
    Only,
    is_wanted,
    not_converted,
    read_listing,
)
from spanloom.conversations.source.format import SourceFormat
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import Download, safe_name, stage_file, stage_files
from spanloom.storage.uri import is_uri, parse_uri


def staged_source(scratch: Scratch, place: str, formats: Sequence[SourceFormat], *, only: Only = None) -> Path:
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
            for shard in read_listing(path, formats).shards
            if is_wanted(shard.index, only)
        ]
    )
    return path
