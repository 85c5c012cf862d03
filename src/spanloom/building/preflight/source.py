"""The shards of a source folder, looked at without a download: are they there, and how much scratch do they need?

In: the place of a source, the number of tasks of each stage. Out: the bytes of scratch space of the largest task, or a
SourceError. Of a shard at a URI, its first bytes and its footer are read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from spanloom.building.disk import BYTES_PER_DOCUMENT, PART_BYTES_PER_TOKEN, Size
from spanloom.building.parts.packs import pack_bytes
from spanloom.building.preflight.places import read_range
from spanloom.conversations.source.folder import (
    MANIFEST_NAME,
    Source,
    SourceShard,
    open_source_shard,
    read_listing,
    text_bytes,
)
from spanloom.errors import SourceError
from spanloom.storage.staging import list_objects, read_object
from spanloom.storage.stores.objects import StoredObject
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.uri import is_uri, parse_uri

LOOKED_INTO = 16
"""Shards whose footer is read: the largest."""

ARRAY_BYTES = 6
"""Of a token in the files of a dataset: int32, and a byte each for mask and span."""

_CONVERT = "run `spanloom convert` or `convert-synth` again, or copy the whole folder"


def check_source(place: str, shards: int | None, *, by_shard: bool = True) -> int:
    """The bytes of scratch space that the largest task of a pipeline over this source needs, estimated.

    `shards`: the number of tasks, which must be that of the source; None does not compare. `by_shard`: one task for
    each shard, otherwise one for all. Conversations that are cut into several documents need more than this says.
    Raises SourceError for a manifest that cannot be read, another number of shards, and shards that are missing or not
    as long as the manifest says.
    """
    with _listed(place) as (listing, stored):
        if shards is not None and len(listing.shards) != shards:
            raise SourceError(
                f"the source has {len(listing.shards)} shards, the pipeline has {shards} tasks for them",
                where=place,
                remedy="compile the pipeline with as many (`--shards`), or convert the source into as many",
            )
        _check_lengths(place, listing, stored)
        largest = sorted(listing.shards, key=lambda shard: shard.bytes, reverse=True)
        if by_shard:
            return max(task_scratch(shard, _text_bytes(shard, stored)) for shard in largest[:LOOKED_INTO])
        looked = largest[:LOOKED_INTO]
        text = sum(_text_bytes(shard, stored) for shard in looked)
        size = sum(shard.bytes for shard in listing.shards)
        rows = sum(shard.rows for shard in listing.shards)
        of_all = Size.of_text(text * size / max(1, sum(shard.bytes for shard in looked)), rows)
        return int(size + of_all.tokens * (ARRAY_BYTES + PART_BYTES_PER_TOKEN) + rows * BYTES_PER_DOCUMENT)


def task_scratch(shard: SourceShard, text: int) -> int:
    """Of the tasks of one shard, the most: rendering holds the shard and three packs of parts, writing the files of the
    shard and two packs, validation its files and the shard."""
    pack = pack_bytes(shard.bytes)
    files = Size.of_text(text, shard.rows).tokens * ARRAY_BYTES + shard.rows * BYTES_PER_DOCUMENT
    return int(max(shard.bytes + 3 * pack, files + 2 * pack, files + shard.bytes))


@contextmanager
def _listed(place: str) -> Iterator[tuple[Source, dict[str, StoredObject]]]:
    """The manifest, and for a URI the objects beside it by name."""
    if not is_uri(place):
        yield read_listing(Path(place)), {}
        return
    uri = parse_uri(place)
    data = read_object(uri / MANIFEST_NAME)
    if data is None:
        raise SourceError(f"the source has no {MANIFEST_NAME}", where=place, remedy=_CONVERT)
    prefix = f"{uri.key}/" if uri.key else ""
    stored = {entry.uri.key.removeprefix(prefix): entry for entry in list_objects(uri)}
    with temporary_folder("spanloom-preflight-") as folder:
        Path(folder, MANIFEST_NAME).write_bytes(data)
        yield read_listing(Path(folder)), stored


def _check_lengths(place: str, listing: Source, stored: dict[str, StoredObject]) -> None:
    faults = []
    for shard in listing.shards:
        name = shard.path.relative_to(listing.directory).as_posix()
        if is_uri(place):
            length = stored[name].bytes if name in stored else None
        else:
            length = shard.path.stat().st_size if shard.path.is_file() else None
        if length is None:
            faults.append(f"{name} is missing")
        elif length != shard.bytes:
            faults.append(f"{name} has {length:,} bytes, not {shard.bytes:,}")
    if faults:
        more = f", and {len(faults) - 3} more shards" if len(faults) > 3 else ""
        raise SourceError(
            f"shards are not as the manifest says: {', '.join(faults[:3])}{more}", where=place, remedy=_CONVERT
        )


def _text_bytes(shard: SourceShard, stored: dict[str, StoredObject]) -> int:
    """Bytes of the shard's conversations. Opening the file checks its columns, too."""
    if not stored:
        return text_bytes(shard)
    # A file of the right length that holds nothing but the first bytes and the footer: pyarrow needs no more.
    entry = stored[shard.path.name]
    tail = read_range(entry, max(0, entry.bytes - 8), entry.bytes)
    footer = int.from_bytes(tail[:4], "little") + 8 if tail[4:] == b"PAR1" else 8
    first = max(0, entry.bytes - footer)
    with shard.path.open("wb") as stream:
        stream.write(read_range(entry, 0, 4))
        stream.seek(first)
        stream.write(read_range(entry, first, entry.bytes))
    try:
        open_source_shard(shard).close()
        return text_bytes(replace(shard, state=None))
    except SourceError as fault:
        raise SourceError(fault.what, where=str(entry.uri), remedy=fault.remedy) from None
