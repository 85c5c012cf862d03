"""Raw SYNTH Parquet → a `synth_harmony_v1` directory: one Harmony conversation per row, and a manifest.

In: a Parquet file, or a directory of them, with the columns of PleIAs/SYNTH. Out: shards, then `manifest.json` last.

    raw column             becomes
    query                  the user message (with_seed_text: a blank line and query_seed_text after it)
    synthetic_reasoning    the assistant message on `analysis`
    synthetic_answer       the assistant message on `final`
    synth_id, language, …  metadata_json, and columns of the same names

Rows are streamed: memory holds one batch of the input and at most one row group of each shard. There is no clock and no
randomness, so the same input and options give the same bytes (under one version of pyarrow).
"""

import json
import shutil
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.conversations.source.folder import MANIFEST_NAME
from spanloom.conversations.source.writer import OutputRow, ShardWriter
from spanloom.errors import SourceError, SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.messages import SystemFields, effort_of
from spanloom.families.harmony.contract.messages import system_message as system_message_of
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.provenance import part_identity, readable_json
from spanloom.records.json_values import is_text
from spanloom.records.parquet import column_values, open_parquet, parquet_batches
from spanloom.records.staging import staged_records
from spanloom.storage import sha256_file
from spanloom.storage.folders.filling import filling
from spanloom.storage.folders.repeated import MADE_JSON, OnSame, Output, check_overwritable, finish, made_or_same
from spanloom.storage.hub import pinned
from spanloom.storage.scratch import scratch_for
from spanloom.storage.unchanged import FileState, check_unchanged, file_state
from spanloom.storage.uri import is_hub, is_uri
from spanloom.text import is_utf8
from spanloom.workers import OnProgress

Assignment = Literal["round-robin", "contiguous"]

SEED_TEXT = "query_seed_text"
KEPT_COLUMNS = ("language", "exercise", "model", "constraints", "seed_license", "query_seed_url")
"""Optional raw columns that are kept with a row; a column that a file lacks is null in all its rows."""

SHARD_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("messages_json", "metadata_json", "synth_id", *KEPT_COLUMNS)]
)
FEW_VALUES = ["language", "exercise", "model", "constraints", "seed_license"]
"""Columns that dictionary encoding makes small; the others differ in every row."""

RECORD_NAME = ".spanloom-convert-unfinished"
"""A file in a folder whose conversion is unfinished."""


class Skip(StrEnum):
    """Why a raw row is skipped. A row is counted once, under the first reason that applies."""

    QUERY_MISSING = "query_missing"
    REASONING_MISSING = "reasoning_missing"
    ANSWER_MISSING = "answer_missing"
    SYNTH_ID_MISSING = "synth_id_missing"
    NOT_UTF8 = "not_utf8"


REQUIRED_COLUMNS = {
    "query": Skip.QUERY_MISSING,
    "synthetic_reasoning": Skip.REASONING_MISSING,
    "synthetic_answer": Skip.ANSWER_MISSING,
    "synth_id": Skip.SYNTH_ID_MISSING,
}
"""Required column → the reason for which a row is skipped if the column is null or empty."""

RawRow = dict[str, str | bytes | None]
"""One raw row, by column; a string that is not UTF-8 is bytes."""


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Texts for every row, and the assignment of rows to shards.

    Fields of the system message with the value None are not rendered; `reasoning_effort` is Low, Medium or High, in any
    case. `with_seed_text` puts a row's seed text after its query. Round-robin assigns source rows to the shards
    in turn; contiguous gives each shard one range of rows. Raises SpanloomError for an invalid value.
    """

    model_identity: str | None = defaults.MODEL_IDENTITY
    reasoning_effort: str = defaults.REASONING_EFFORT
    start_date: str | None = defaults.START_DATE
    knowledge_cutoff: str | None = defaults.KNOWLEDGE_CUTOFF
    developer_instructions: str | None = None
    with_seed_text: bool = False
    shards: int = defaults.SHARDS
    assignment: Assignment = defaults.ASSIGNMENT
    dataset: str | None = None
    license: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasoning_effort", effort_of(self.reasoning_effort))
        if self.assignment not in get_args(Assignment):
            raise SpanloomError(
                f"there is no assignment {self.assignment!r}", remedy=f"use one of: {', '.join(get_args(Assignment))}"
            )
        if self.shards < 1:
            raise SpanloomError(f"there cannot be {self.shards} shards", remedy="give --shards 1 or more")
        for name, value in vars(self).items():
            # A command line can have bytes that are not UTF-8: reported now, not at the first row or the manifest.
            if isinstance(value, str) and not is_utf8(value):
                raise SpanloomError(f"the option {name} is not UTF-8: {value!r}")

    def shard_of(self, row: int, rows: int) -> int:
        """The shard of a source row out of `rows`. 7 rows over 3: 0 1 2 0 1 2 0, or contiguous 0 0 0 1 1 2 2."""
        return row % self.shards if self.assignment == "round-robin" else row * self.shards // rows


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """One raw Parquet file whose columns were checked; `state`: its state before its rows were read.

    `name`: its path relative to the given directory, with slashes; `group_rows`: the rows of each row group.
    """

    path: Path
    name: str
    columns: tuple[str, ...]
    group_rows: tuple[int, ...]
    state: FileState

    @property
    def rows(self) -> int:
        return sum(self.group_rows)


def convert_synth(
    *,
    raw: Path,
    out: Path,
    conversion: Conversion = Conversion(),
    max_rows: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    on_same: OnSame | None = None,
    place: str | None = None,
) -> dict[str, Any]:
    """Converts `raw` into the new directory `out` and returns the manifest that was written there.

    Files of a directory are read in the order of their relative paths; `max_rows` stops after that many source rows.
    Unusable rows are counted by reason, never repaired. `on_progress` is called regularly with the rows read so far and
    the rows to read. `overwrite`: replaces another conversion in `out`, once the new one is complete. `place`: what
    `raw` is a copy of, with its commit, for the manifest. Raises SourceError for an invalid file or column,
    ConflictError if `out` has anything else. After any exception the files of this run are removed, also those of an
    earlier killed run.
    """
    if max_rows is not None and max_rows < 1:
        raise SpanloomError(f"a conversion of {max_rows} rows makes no dataset", remedy="use 1 or more for max_rows")
    files = find_raw_files(raw, with_seed_text=conversion.with_seed_text)
    total = sum(file.rows for file in files)
    if max_rows is not None:
        total = min(max_rows, total)
    names = [*map(SYNTH_KD.source.shard_name, range(conversion.shards)), MADE_JSON, MANIFEST_NAME]
    identity = {
        "conversion": asdict(conversion),
        "max_rows": max_rows,
        "raw": [[file.name, file.rows, *file.state.written] for file in files],
    }
    output = Output(
        identity={
            "input": [[file.name, file.rows, sha256_file(file.path)] for file in _files_read(files, total)],
            "options": {**asdict(conversion), "max_rows": max_rows},
            "code": part_identity("harmony", "pyarrow"),
        },
        last=MANIFEST_NAME,
        record_name=RECORD_NAME,
    )

    def make(folder: Path) -> None:
        with filling(folder, record_name=RECORD_NAME, identity=identity, files=names) as finished:
            if not finished:
                _convert(files, total, folder, output, conversion, max_rows, on_progress, place)

    made_or_same(out, output, make, overwrite=overwrite, on_same=on_same)
    return dict(json.loads((out / MANIFEST_NAME).read_bytes()))


def _files_read(files: Sequence[RawFile], total: int) -> Iterator[RawFile]:
    """The files that hold the first `total` rows."""
    before = 0
    for file in files:
        if before < total:
            yield file
        before += file.rows


def _convert(
    files: list[RawFile],
    total: int,
    out: Path,
    output: Output,
    conversion: Conversion,
    max_rows: int | None,
    on_progress: OnProgress | None,
    place: str | None,
) -> None:
    skipped: Counter[Skip] = Counter()
    with ExitStack() as undo:
        shards = [
            ShardWriter(out / SYNTH_KD.source.shard_name(index), SHARD_SCHEMA, undo, few_values=FEW_VALUES)
            for index in range(conversion.shards)
        ]
        for first_row, rows in _batches(files, total):
            for index, row in enumerate(rows, start=first_row):
                if reason := skip_reason(row):
                    skipped[reason] += 1
                else:
                    shards[conversion.shard_of(index, total)].append(output_row(row, conversion))
            if on_progress is not None:
                on_progress(first_row + len(rows), total)
        for file in files:
            check_unchanged(file.path, file.state)
        entries = [shard.finish() for shard in shards]
        sources = [{"path": file.name, "rows": file.rows, "bytes": file.state.bytes} for file in files]
        manifest = source_manifest(conversion, sources, total, max_rows, skipped, entries, place)
        for name in (MADE_JSON, MANIFEST_NAME):
            undo.callback((out / name).unlink, missing_ok=True)
        finish(out, output, readable_json(manifest))
        undo.pop_all()  # it is complete: keep everything


def skip_reason(row: RawRow) -> Skip | None:
    """Why a row is skipped, or None if it is usable."""
    for column, reason in REQUIRED_COLUMNS.items():
        if not row[column]:
            return reason
    if any(isinstance(value, bytes) for value in row.values()):
        return Skip.NOT_UTF8
    return None


def output_row(row: RawRow, conversion: Conversion) -> OutputRow:
    """A usable raw row → the columns of `SHARD_SCHEMA`; `messages_json` as UTF-8 bytes, because their size matters."""
    kept = {name: row.get(name) for name in ("synth_id", *KEPT_COLUMNS)}
    query, seed_text = row["query"], row.get(SEED_TEXT)
    if conversion.with_seed_text and seed_text:
        query = f"{query}\n\n{seed_text}"  # type: ignore[str-bytes-safe]  # a usable row holds no bytes
    texts = map(orjson.dumps, (query, row["synthetic_reasoning"], row["synthetic_answer"]))
    written = chain.from_iterable(zip(_around_texts(conversion), (*texts, b""), strict=True))
    return {"messages_json": b"".join(written), "metadata_json": _as_json(kept), **kept}


_as_json = json.JSONEncoder(ensure_ascii=False).encode
"""With blanks behind commas and colons, which orjson leaves away; a single text is the same in both."""


@lru_cache(maxsize=1)
def _around_texts(conversion: Conversion) -> list[bytes]:
    """What is before, between and behind the texts in the JSON of every row: the rows differ in the texts alone."""
    texts = ("\0query", "\0reasoning", "\0answer")
    rest, pieces = _as_json({"messages": messages(conversion, *texts)}).encode(), deque[bytes]()
    for text in reversed(texts):  # from the end, so that an option with such a text is none of them
        rest, _, piece = rest.rpartition(orjson.dumps(text))
        pieces.appendleft(piece)
    return [rest, *pieces]


def messages(conversion: Conversion, query: str, reasoning: str, answer: str) -> list[dict[str, Any]]:
    """The Harmony messages of a usable row: system, developer (if configured), user, analysis, final."""
    context = [system_message(conversion)]
    if conversion.developer_instructions is not None:
        content = {"type": "developer_content", "instructions": conversion.developer_instructions}
        context.append({"role": "developer", "content": [content]})
    return [
        *context,
        {"role": "user", "content": [{"type": "text", "text": query}]},
        {"role": "assistant", "content": [{"type": "text", "text": reasoning}], "channel": "analysis"},
        {"role": "assistant", "content": [{"type": "text", "text": answer}], "channel": "final"},
    ]


def system_message(conversion: Conversion) -> dict[str, Any]:
    """The system message of every row."""
    return system_message_of(
        SystemFields(
            model_identity=conversion.model_identity,
            reasoning_effort=effort_of(conversion.reasoning_effort),
            start_date=conversion.start_date,
            knowledge_cutoff=conversion.knowledge_cutoff,
        )
    )


def find_raw_files(raw: Path, *, with_seed_text: bool) -> list[RawFile]:
    """The file `raw`, or every `*.parquet` below the directory `raw` by relative path, each opened and checked."""
    if raw.is_dir():
        # A folder may be named x.parquet too; a dangling link stays in the list and fails when it is opened.
        files = {path.relative_to(raw).as_posix(): path for path in raw.rglob("*.parquet") if not path.is_dir()}
        if not files:
            raise SourceError(
                "the directory holds no *.parquet file", where=str(raw), remedy="give the raw SYNTH Parquet files"
            )
    elif raw.exists():
        files = {raw.name: raw}
    else:
        raise SourceError("the raw data does not exist", where=str(raw), remedy="give a Parquet file or a directory")
    return [check_raw_file(files[name], name, with_seed_text=with_seed_text) for name in sorted(files)]


_RAW_COLUMNS = (
    f"raw SYNTH has {', '.join(REQUIRED_COLUMNS)} as strings, and may have {', '.join((*KEPT_COLUMNS, SEED_TEXT))}"
)


def check_raw_file(path: Path, name: str, *, with_seed_text: bool) -> RawFile:
    """Opens and checks the file `path`. Raises SourceError unless it is Parquet with the columns of raw SYNTH."""
    if not is_utf8(name):
        raise SourceError(
            "the file's name is not UTF-8, so the manifest cannot hold it", where=repr(name), remedy="rename the file"
        )
    if path.exists() and not path.is_file():
        raise SourceError("not a regular file", where=str(path), remedy="give Parquet files")
    with open_parquet(path) as file:
        schema, group_rows, state = file.schema_arrow, rows_of_groups(file.metadata), file_state(path)
    required = (*REQUIRED_COLUMNS, SEED_TEXT) if with_seed_text else tuple(REQUIRED_COLUMNS)
    columns = []
    for column in (*required, *KEPT_COLUMNS):
        times = schema.names.count(column)
        if times == 0 and column in required:
            request = ", but the seed text was requested" if column == SEED_TEXT else ""
            raise SourceError(f"the column {column} is missing{request}", where=str(path), remedy=_RAW_COLUMNS)
        if times > 1:
            raise SourceError(f"the column {column} occurs {times} times", where=str(path), remedy=_RAW_COLUMNS)
        if times == 0:
            continue
        kind = schema.field(column).type
        # A column with only null values may have lost its type on the way to Parquet; it is harmless.
        untyped = column in KEPT_COLUMNS and kind == pa.null()
        if not is_text(kind) and not untyped:
            raise SourceError(f"the column {column} is {kind}, not text", where=str(path), remedy=_RAW_COLUMNS)
        columns.append(column)
    return RawFile(path=path, name=name, columns=tuple(columns), group_rows=group_rows, state=state)


def rows_of_groups(footer: pq.FileMetaData) -> tuple[int, ...]:
    """The rows of each row group of a Parquet file."""
    return tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))


def _batches(files: list[RawFile], total: int) -> Iterator[tuple[int, list[RawRow]]]:
    """The first `total` rows over all files, in batches, each with the number of its first row."""
    row = 0
    for file in files:
        for rows in file_batches(file):
            if row >= total:
                return
            yield row, rows[: total - row]
            row += len(rows)


def file_batches(raw: RawFile, row_groups: Sequence[int] | None = None) -> Iterator[list[RawRow]]:
    """The rows of a file in batches, of these row groups or of all. Raises SourceError if they cannot be read."""
    with open_parquet(raw.path) as file:
        if file.metadata.num_rows != raw.rows:
            raise SourceError(
                f"the file had {raw.rows} rows when the conversion began and has {file.metadata.num_rows} now",
                where=str(raw.path),
                remedy="convert data that nobody is writing to",
            )
        for _, batch in parquet_batches(file, raw.path, raw.columns, row_groups):
            columns = [
                column_values(batch.column(name), lambda _, value: value.as_buffer().to_pybytes())
                for name in raw.columns
            ]
            yield [dict(zip(raw.columns, values, strict=True)) for values in zip(*columns, strict=True)]


def source_manifest(
    conversion: Conversion,
    sources: list[dict[str, Any]],
    total: int,
    max_rows: int | None,
    skipped: Mapping[Skip, int],
    shards: list[dict[str, Any]],
    place: str | None = None,
) -> dict[str, Any]:
    """The manifest of a source. `sources`: path, rows and bytes of each raw file; `shards`: their writers' entries;
    `place`: raw data at `hf://`, with its commit."""
    return {
        "schema_version": SYNTH_KD.source.schema_version,
        "conversion": {
            "dataset": conversion.dataset,
            "license": conversion.license,
            "system_message": system_message(conversion),
            "developer_instructions": conversion.developer_instructions,
            "with_seed_text": conversion.with_seed_text,
            "assignment": conversion.assignment,
            "shards": conversion.shards,
            "max_rows": max_rows,
            "spanloom": version("spanloom"),
            "sources": sources,
            **({"places": [place]} if place is not None else {}),
            "rows_read": total,
            "rows_written": sum(shard["rows"] for shard in shards),
            "skipped": {reason.value: skipped[reason] for reason in Skip if skipped.get(reason)},
        },
        "storage": SYNTH_KD.source.storage(shards),
    }


def run(
    *,
    raw: str,
    out: str,
    conversion: Conversion,
    max_rows: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    on_same: OnSame | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The conversion over paths or URIs: raw SYNTH (Parquet file or folder of them) → a `synth_harmony_v1` folder."""
    check_overwritable(out, overwrite)
    with scratch_for("convert-synth", [raw, out], scratch) as staging:
        local_raw = staged_records(staging, raw, (".parquet",))
        local_out = staging.path(out)
        if is_uri(out):
            shutil.rmtree(local_out, ignore_errors=True)  # left by a run that was killed while it published
        result = convert_synth(
            raw=local_raw,
            out=local_out,
            conversion=conversion,
            max_rows=max_rows,
            overwrite=overwrite,
            on_progress=on_progress,
            on_same=on_same,
            place=pinned(raw) if is_hub(raw) else None,
        )
        staging.publish_folder(out, last=MANIFEST_NAME)
    return result
