"""A source folder: Parquet shards and a manifest, opened, checked and read.

In: a directory. Out: `Source` (the manifest, checked against the files) and batches of rows. The manifest's
`schema_version` names one of the `FORMATS`. A fault in the manifest, a file or a column raises `SourceError` and always
stops; faults in rows are found later.
"""

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from spanloom.conversations.source.format import FORMATS, SourceFormat, format_named
from spanloom.errors import SourceError
from spanloom.records.json_values import is_text, plain_batch
from spanloom.records.parquet import byte_lengths, column_values, one_line, open_parquet
from spanloom.storage import parse_json, read_small, sha256_file
from spanloom.storage.unchanged import FileState, check_unchanged, file_state

MANIFEST_NAME = "manifest.json"
RECORD_FILES = (
    ".jsonl",
    ".jsonl.gz",
    ".jsonl.zst",
    ".json",
    ".json.gz",
    ".json.zst",
    ".parquet",
    ".arrow",
    ".csv",
    ".tsv",
)
"""Suffixes of record files, which are not yet a source."""

BATCH_ROWS = 256
BATCH_BYTES = 8 << 20
"""JSON of conversations in one batch, unless a single row is larger. This limits memory, whatever the size of rows."""
ROWS_PER_PART = 4096

Only = int | tuple[int, ...] | None
"""Number or numbers of the shards to open; None means all."""


@dataclass(frozen=True, kw_only=True)
class SourceShard:
    """One Parquet file and its entry in the manifest. `state`: its state before it was hashed; None until then."""

    format: SourceFormat
    index: int
    path: Path
    rows: int
    bytes: int
    sha256: str
    state: FileState | None = None

    @property
    def where(self) -> str:
        return f"shard {self.index:02d}, {self.path}"

    @property
    def entry(self) -> dict[str, Any]:
        """The shard as the manifest of a dataset lists it: path, rows, bytes, sha256."""
        return {"path": self.path.name, "rows": self.rows, "bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A checked directory."""

    format: SourceFormat
    directory: Path
    manifest: dict[str, Any]
    manifest_sha256: str
    shards: tuple[SourceShard, ...]

    @property
    def origin(self) -> dict[str, str]:
        """The source as the manifest of a dataset names it; with the name and licence of the text, if it has them."""
        conversion = self.manifest.get("conversion")
        of_text = conversion if isinstance(conversion, dict) else {}
        named = {name: text for name in ("dataset", "license") if isinstance(text := of_text.get(name), str) and text}
        return {"schema_version": self.format.schema_version, "manifest_sha256": self.manifest_sha256, **named}


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive whole row groups, the unit of parallel work and of resume. A row cap may cut the last group."""

    index: int
    row_groups: tuple[int, ...]
    first_row: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class SourceRows:
    """A batch of consecutive rows; `first_row` counts from 0 in the shard.

    `messages_json`: the bytes in the file, UTF-8 or not; they are most of a batch, and the parser takes bytes.
    `columns`: the other columns. `undecodable`: rows in which one of the other columns is not UTF-8.
    """

    first_row: int
    messages_json: pa.LargeBinaryArray
    columns: dict[str, list[str | None]]
    undecodable: frozenset[int]

    def __len__(self) -> int:
        return len(self.messages_json)


def open_source(directory: Path, *, shards: int | None = None, only: Only = None) -> Source:
    """Reads the manifest and checks the files against it: names, number, sizes, rows and columns (not yet hashes).

    `shards`: the required number; None means the format's number, or as many as the manifest lists. `only`: numbers of
    the shards to check; the others need not exist. Raises SourceError.
    """
    source = read_listing(directory)
    listed = source.shards
    _check_names(source, shards or source.format.shards or len(listed), only)
    for number in (only,) if isinstance(only, int) else only or ():
        if not 0 <= number < len(listed):
            raise SourceError(f"there is no shard {number}: the source has {len(listed)}", where=str(directory))
    total, rows = source.manifest["storage"].get("total_rows"), sum(shard.rows for shard in listed)
    if total not in (None, rows):
        message = f"total_rows is {total}, but the shards' rows add up to {rows}"
        raise _disagreeing(message, directory / MANIFEST_NAME)
    for shard in listed:
        if is_wanted(shard.index, only):
            _check_file(shard)
    return source


def is_wanted(index: int, only: Only) -> bool:
    """Whether a shard is one of `only`."""
    return only is None or (index == only if isinstance(only, int) else index in only)


def not_converted(place: str) -> SourceError:
    """The error for a source that is a file or folder of records. It names the two commands that make a dataset."""
    name = place.rstrip("/").rpartition("/")[2]
    folder = f"{name.partition('.')[0] or 'conversations'}_conversations"
    convert = f"spanloom convert {shlex.quote(place)} --out {shlex.quote(folder)}"
    build = f"spanloom build --source {shlex.quote(folder)} --out {shlex.quote(f'{folder}_dataset')}"
    return SourceError(
        "the source holds records, not conversations that were converted",
        where=place,
        remedy=f"convert first, then build:  {convert} && {build}",
    )


def read_listing(directory: Path) -> Source:
    """The manifest and the shards that it lists, whether or not their files exist."""
    path = directory / MANIFEST_NAME
    if directory.is_file() and directory.name.endswith(RECORD_FILES):
        raise not_converted(str(directory))
    if not directory.is_dir():
        fault = "is not a directory" if directory.exists() else "does not exist"
        raise SourceError(f"the source {fault}", where=str(directory), remedy=f"give a folder of {_SCHEMA_VERSIONS}")
    try:
        raw = read_small(path, SourceError, "the source manifest", _DISAGREE)
    except FileNotFoundError:
        for file in directory.iterdir():
            is_shard = any(file.match(each.shard_glob) for each in FORMATS)  # the shards of a source without a manifest
            if file.name.endswith(RECORD_FILES) and not is_shard:
                raise not_converted(str(directory)) from None
        raise SourceError(
            f"the source has no {MANIFEST_NAME}",
            where=str(directory),
            remedy=f"a folder of {_SCHEMA_VERSIONS} always has one; {_CONVERTERS} writes it",
        ) from None
    manifest, source_format = _read_manifest(raw, path)
    entries = enumerate(manifest["storage"]["shards"])
    return Source(
        format=source_format,
        directory=directory,
        manifest=manifest,
        manifest_sha256=hashlib.sha256(raw).hexdigest(),
        shards=tuple(_shard(entry, index, directory, path, source_format) for index, entry in entries),
    )


_DISAGREE = "the manifest and the shards do not belong together: fetch or convert them again"


def _disagreeing(what: str, where: Path | str) -> SourceError:
    return SourceError(what, where=str(where), remedy=_DISAGREE)


_SCHEMA_VERSIONS = " or ".join(each.schema_version for each in FORMATS)
_CONVERTERS = " or ".join(dict.fromkeys(f"`{each.converter}`" for each in FORMATS))


def _read_manifest(raw: bytes, path: Path) -> tuple[dict[str, Any], SourceFormat]:
    manifest = parse_json(raw, SourceError, "the source manifest", str(path), _DISAGREE)
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    source_format = format_named(version)
    if source_format is None:
        raise SourceError(
            f"the source manifest has schema_version {repr(version)[:200]}, not {_SCHEMA_VERSIONS}",
            where=str(path),
            remedy=f"convert the raw data with {_CONVERTERS} of this release",
        )
    storage = manifest.get("storage")
    if not isinstance(storage, dict) or not isinstance(storage.get("shards"), list):
        raise _disagreeing("the source manifest has no list storage.shards", path)
    if source_format.manifest is not None:
        try:
            source_format.manifest.model_validate(manifest)
        except ValidationError as fault:
            first = fault.errors()[0]
            raise SourceError(
                f"the source manifest does not follow {version} at {'.'.join(map(str, first['loc']))[:200]}: "
                f"{first['msg'][:300]}",
                where=str(path),
                remedy=f"convert the raw data with {_CONVERTERS} of this release",
            ) from None
    return dict(manifest), source_format


def _shard(entry: object, index: int, directory: Path, path: Path, source_format: SourceFormat) -> SourceShard:
    for key, kind in {"path": str, "rows": int, "bytes": int, "sha256": str}.items():
        if not isinstance(entry, dict) or not isinstance(entry.get(key), kind):
            raise _disagreeing(f"storage.shards[{index}] has no {key} ({kind.__name__})", path)
    assert isinstance(entry, dict)
    return SourceShard(
        format=source_format,
        index=index,
        path=directory / entry["path"],
        rows=entry["rows"],
        bytes=entry["bytes"],
        sha256=entry["sha256"],
    )


def _check_names(source: Source, shards: int, only: Only) -> None:
    directory, paths = source.directory, [shard.path for shard in source.shards]
    if len(paths) != shards:
        raise SourceError(
            f"the manifest lists {len(paths)} shards, {shards} are expected",
            where=str(directory),
            remedy=f"pass --shards {len(paths)} if that is what you mean, or bring the missing shards",
        )
    names = [path.relative_to(directory).as_posix() if path.is_relative_to(directory) else str(path) for path in paths]
    wanted = [source.format.shard_name(index) for index in range(shards)]
    if names != wanted:
        message = f"the manifest must list {wanted[0]} … {wanted[-1]} in order, it lists {', '.join(names)}"
        raise _disagreeing(message, directory / MANIFEST_NAME)
    on_disk = sorted(file.name for file in directory.glob(source.format.shard_glob))
    needed = [name for index, name in enumerate(names) if is_wanted(index, only)]
    if missing := [name for name in needed if name not in on_disk]:
        raise _disagreeing(f"missing shards: {', '.join(missing)}", directory)
    if extra := [name for name in on_disk if name not in names]:
        raise _disagreeing(f"shards that the manifest does not list: {', '.join(extra)}", directory)


def _check_file(shard: SourceShard) -> None:
    size = shard.path.stat().st_size
    if size != shard.bytes:
        truncated = ": truncated?" if size < shard.bytes else ""
        message = f"the shard has {size} bytes, the manifest says {shard.bytes}{truncated}"
        raise _disagreeing(message, shard.where)
    with open_source_shard(shard) as file:
        rows = file.metadata.num_rows
    if rows != shard.rows:
        raise _disagreeing(f"the shard holds {rows} rows, the manifest says {shard.rows}", shard.where)


def verify_hash(shard: SourceShard) -> SourceShard:
    """The shard with its `state`. Raises SourceError if the hash of its bytes differs from the manifest."""
    state = file_state(shard.path)
    digest = sha256_file(shard.path)
    if digest != shard.sha256:
        raise _disagreeing(f"the shard has sha256 {digest}, the manifest says {shard.sha256}", shard.where)
    return replace(shard, state=state)


def check_still_hashed(shard: SourceShard) -> None:
    """Call after the last read. Raises SourceError if the shard has changed since `verify_hash`."""
    if shard.state is not None:
        check_unchanged(shard.path, shard.state, sha256=shard.sha256, where=shard.where)


def open_source_shard(shard: SourceShard, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Opens the shard's Parquet file and checks its columns. Small read buffers keep memory independent of file size.

    `footer`: the file's footer, if it was read before.
    """
    try:
        file = open_parquet(shard.path, footer)
    except SourceError as fault:
        check_still_hashed(shard)
        raise _disagreeing(f"the shard cannot be read: {fault.what}", shard.where) from None
    if fault_of_columns := next(_wrong_columns(file.schema_arrow, shard.format), None):
        remedy = f"the columns of {shard.format.schema_version} are described in docs/format.md"
        raise SourceError(fault_of_columns, where=shard.where, remedy=remedy)
    return file


def _wrong_columns(schema: pa.Schema, source_format: SourceFormat) -> Iterator[str]:
    present, ids = set(schema.names), {source_format.id_column, "metadata_json"}
    if "messages_json" not in present:
        yield "the column messages_json is missing"
    if not present & ids:
        yield f"neither {source_format.id_column} nor metadata_json is a column"
    if source_format.id_is_demanded and (missing := ids - present):
        yield f"the column {', '.join(missing)} is missing"
    for name in _columns(schema, source_format):
        kind = schema.field(name).type if schema.names.count(name) == 1 else None
        if kind is None:
            yield f"the column {name} is there twice"
        elif not is_text(kind):
            yield f"the column {name} is {kind}, not text"


def _columns(schema: pa.Schema, source_format: SourceFormat) -> list[str]:
    wanted = ("messages_json", "metadata_json", source_format.id_column, *source_format.metadata_columns)
    return [name for name in wanted if name in schema.names]


def runs_within(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of runs of items whose sum is at most `most`; a larger item is a run of its own.

    [3, 3, 9, 1] with 6 gives (0, 2), (2, 3), (3, 4).
    """
    first = held = 0
    for index, size in enumerate(sizes):
        if index > first and held + size > most:
            yield first, index
            first, held = index, 0
        held += size
    if first < len(sizes):
        yield first, len(sizes)


def plan_parts(row_group_rows: Sequence[int], *, max_rows: int | None = None) -> list[Part]:
    """Cuts a shard into parts of at least `ROWS_PER_PART` rows, at boundaries of row groups.

    The plan depends only on the file, never on the number of workers; so do the bytes of the parts.
    """
    parts: list[Part] = []
    groups: list[int] = []
    first_row = rows = 0
    left = sum(row_group_rows) if max_rows is None else min(max_rows, sum(row_group_rows))
    for group, size in enumerate(row_group_rows):
        if left == 0:
            break
        take = min(size, left)
        groups.append(group)
        rows, left = rows + take, left - take
        if rows >= ROWS_PER_PART or left == 0:
            parts.append(Part(index=len(parts), row_groups=tuple(groups), first_row=first_row, rows=rows))
            groups, first_row, rows = [], first_row + rows, 0
    return parts


def group_rows(shard: SourceShard) -> list[int]:
    """The number of rows of each row group."""
    with open_source_shard(shard) as file:
        return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]


def parts_of(shard: SourceShard, max_rows: int | None = None) -> list[Part]:
    """The parts of a shard, or of its first `max_rows` rows: see `plan_parts`."""
    return plan_parts(group_rows(shard), max_rows=max_rows)


def first_rows(shard: SourceShard, max_rows: int | None = None, *, first: int = 0) -> Iterator[SourceRows]:
    """All rows of a shard, or its first `max_rows`, in batches; without those below `first`: see `read_rows`."""
    for part in parts_of(shard, max_rows):
        if first < part.first_row + part.rows:
            yield from read_rows(shard, part, first=first)


def read_rows(shard: SourceShard, part: Part, *, first: int = 0) -> Iterator[SourceRows]:
    """The rows of a part from `first` on, in batches of up to `BATCH_ROWS` rows and `BATCH_BYTES`. Raises SourceError
    if the file cannot be decoded."""
    with open_source_shard(shard, _footer(shard)) as file:
        columns = _columns(file.schema_arrow, shard.format)
        row, end = part.first_row, part.first_row + part.rows
        for batch in source_batches(file, shard, part.row_groups, columns, first_row=row):
            if row >= end:
                break
            batch, skipped = batch.slice(0, end - row), min(max(first - row, 0), batch.num_rows)
            batch, row = batch.slice(skipped), row + skipped
            for begin, last in runs_within(byte_lengths(batch.column("messages_json")), BATCH_BYTES):
                yield _source_rows(batch.slice(begin, last - begin), row)
                row += last - begin


def source_batches(
    file: pq.ParquetFile,
    shard: SourceShard,
    row_groups: Sequence[int] | None,
    columns: Sequence[str],
    *,
    first_row: int = 0,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Batches of these row groups, or of all; text is string or large_string. `first_row`: number of the first row.

    Raises SourceError if a row group is damaged, or the file has changed since it was hashed.
    """
    row = first_row
    try:
        for batch in file.iter_batches(batch_rows, row_groups=row_groups, columns=columns, use_threads=False):
            yield plain_batch(batch)
            row += batch.num_rows
    except (pa.ArrowException, OSError) as fault:
        check_still_hashed(shard)
        raise _disagreeing(f"the shard cannot be read after row {row}: {one_line(fault)}", shard.where) from None


@lru_cache(maxsize=1)
def _footer(shard: SourceShard) -> pq.FileMetaData:
    """The footer of a shard, cached while a worker stays with it. It lists every row group, thousands in long shards,
    and takes a tenth as long to read as a part takes to render. Only one is cached, to limit memory."""
    with open_source_shard(shard) as file:
        return file.metadata


def _source_rows(batch: pa.RecordBatch, first_row: int) -> SourceRows:
    undecodable: set[int] = set()
    columns = {
        name: column_values(batch.column(name), lambda index, _: undecodable.add(index))
        for name in batch.schema.names
        if name != "messages_json"
    }
    messages_json = batch.column("messages_json").cast(pa.large_binary())
    return SourceRows(
        first_row=first_row, messages_json=messages_json, columns=columns, undecodable=frozenset(undecodable)
    )


def text_bytes(shard: SourceShard) -> int:
    """Uncompressed bytes of the shard's conversations, from the footer alone; used to estimate disk space."""
    with open_source_shard(shard) as file:
        leaves = [file.schema.column(leaf).path for leaf in range(len(file.schema))]  # nested columns have several
        column = leaves.index("messages_json")
        return sum(
            file.metadata.row_group(group).column(column).total_uncompressed_size
            for group in range(file.metadata.num_row_groups)
        )
