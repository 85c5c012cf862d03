"""The o200k asset at a path or URI: a local path is returned as given, an object is staged and its hash checked."""

from pathlib import Path

from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import find, require, stage_file
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.tokenizers.o200k.asset import ASSET_BYTES, ASSET_NAME, ASSET_SHA256


def staged_asset(scratch: Scratch, place: str | None) -> Path | None:
    """The local path of the asset or its folder; None without `place`, which means the default locations."""
    if not place:
        return None
    if not is_uri(place):
        return Path(place)
    uri = parse_uri(place)
    if uri.name != ASSET_NAME and find(uri) is None:
        uri = uri / ASSET_NAME  # a folder, as on a disk
    require(uri, remedy="name the asset or its folder, or leave --tokenizer out if the image contains it")
    return stage_file(uri, scratch.path(str(uri)), bytes=ASSET_BYTES, sha256=ASSET_SHA256)
