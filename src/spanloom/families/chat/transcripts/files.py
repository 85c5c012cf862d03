r"""Transcripts in files: Parquet with a column `text`, JSONL of {"text": …}, and .txt with one transcript per line.

In: transcripts, a path. Out: a complete file or none; and the transcripts of a file.

In .txt, the generator writes a new line within a text as the two characters \n. Reading leaves them as they are, since
a backslash and an n in the original text look the same. Parquet and JSONL hold any text unchanged. A .txt file from
elsewhere may separate records by EOS, or be one record: see `Records`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import ChatError, RecordError, SourceError
from spanloom.families.chat import defaults
from spanloom.families.chat.blocks.markers import ASSISTANT_STRING, CONTROL_STRINGS, END_STRING, EOS_STRING, PAD_STRING
from spanloom.records.files import OnUnreadable, find_files, stop
from spanloom.records.json_lines import json_lines, lines
from spanloom.records.json_values import is_text
from spanloom.records.parquet import abandon, open_parquet, parquet_rows, parquet_schema
from spanloom.storage import discard, fsync_file, sha256_file, temporary_beside
from spanloom.storage.folders.repeated import OnSame
from spanloom.storage.folders.repeated_files import put_once

COLUMN = "text"
OnError = Literal["raise", "skip"]
Records = Literal["line", "eos", "file"]
"""The records of a .txt file: each line; the text between two EOS, over any number of lines; the whole file."""

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".txt")
WRITTEN_SUFFIXES = (".parquet", ".jsonl", ".txt")
GROUP_ROWS = 4096
GROUP_CHARACTERS = 16 << 20
_SCHEMA = pa.schema([pa.field(COLUMN, pa.string(), nullable=False)])
_MARKERS = "|".join(re.escape(text) for text in CONTROL_STRINGS if text != PAD_STRING)
_MARKER = re.compile(_MARKERS)
_LAYOUT = re.compile(rf"(\A|{re.escape(END_STRING)}|{re.escape(EOS_STRING)})\s+(?={_MARKERS}|\Z)")
"""White space around spans."""


def is_line_based(path: Path) -> bool:
    """Whether the format needs a new line within a text as two characters."""
    return path.suffix == ".txt"


class TranscriptWriter:
    """Writes transcripts under a temporary name beside `path`; `publish` renames it, create-only.

    Without `publish`, or after an exception, it leaves no file behind.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in WRITTEN_SUFFIXES:
            raise ChatError(
                "transcripts are written as " + ", ".join(WRITTEN_SUFFIXES),
                where=str(path),
                remedy="give the file one of these endings",
            )
        self.path = path
        self._buffer: list[str] = []
        self._characters = 0
        self._temporary = temporary_beside(path)
        self._file: Any = (
            pq.ParquetWriter(self._temporary, _SCHEMA, compression="zstd", write_statistics=False)
            if path.suffix == ".parquet"
            else self._temporary.open("wb")
        )
        self.transcripts = 0

    def write(self, text: str) -> None:
        if self.path.suffix == ".txt" and ("\n" in text or "\r" in text):
            raise ChatError("a transcript of more than one line does not go into a .txt file", where=str(self.path))
        self._buffer.append(text)
        self._characters += len(text)
        self.transcripts += 1
        if len(self._buffer) == GROUP_ROWS or self._characters > GROUP_CHARACTERS:
            self._flush()

    def publish(self, *, overwrite: bool = False, on_same: OnSame | None = None) -> dict[str, Any]:
        """Gives the file its final name. Returns its name, number of transcripts, bytes and sha256.

        If a file with these bytes has that name, calls `on_same`. Raises ConflictError if it has other bytes, unless
        `overwrite` is set.
        """
        self._flush()
        self._file.close()
        fsync_file(self._temporary)
        size, sha256 = self._temporary.stat().st_size, sha256_file(self._temporary)
        put_once((self._temporary, self.path, sha256), overwrite=overwrite, on_same=on_same)
        return {"path": self.path.name, "transcripts": self.transcripts, "bytes": size, "sha256": sha256}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.path.suffix == ".parquet":
            abandon(self._file)
        else:
            with suppress(OSError):  # a full disk fails here
                self._file.close()
        discard(self._temporary)

    def _flush(self) -> None:
        if not self._buffer:
            return
        if self.path.suffix == ".parquet":
            table = pa.table({COLUMN: pa.array(self._buffer, pa.string())}, schema=_SCHEMA)
            self._file.write_table(table, row_group_size=len(self._buffer))
        elif self.path.suffix == ".jsonl":
            self._file.write(b"".join(orjson.dumps({COLUMN: text}) + b"\n" for text in self._buffer))
        else:
            self._file.write("".join(f"{text}\n" for text in self._buffer).encode())
        self._buffer, self._characters = [], 0


def read_transcripts(
    source: Path, *, unreadable: OnUnreadable = stop, records: Records = defaults.RECORDS
) -> Iterator[tuple[str, str | None]]:
    """Place and text of each transcript of a file or a folder, streamed; None if the text is null.

    In .txt, each line is a transcript, an empty line an empty one. With another value of `records`, lines are joined by
    LF, white space around spans is removed as layout, and empty records are skipped. Unreadable records go to
    `unreadable`.
    Raises SourceError for files that are missing or cannot be opened, or a Parquet file without the column.
    """
    for path in find_files(source, SUFFIXES):
        if path.suffix == ".parquet":
            yield from _parquet(path, unreadable)
        elif path.suffix == ".txt":
            yield from _text(path, unreadable) if records == "line" else _records(path, unreadable, records)
        else:
            yield from _jsonl(path, unreadable)


def _parquet(path: Path, unreadable: OnUnreadable) -> Iterator[tuple[str, str | None]]:
    schema = parquet_schema(path)
    if COLUMN not in schema.names:
        raise SourceError(
            f"there is no column {COLUMN}; there are {', '.join(schema.names)}",
            where=str(path),
            remedy="name the column of transcripts",
        )
    kind = schema.field(COLUMN).type
    if not (is_text(kind) or kind == pa.null()):
        raise SourceError(f"the column {COLUMN} is {kind}, not text", where=str(path), remedy="give transcripts")
    for where, (text,) in parquet_rows(path, [COLUMN], unreadable):
        yield where, text


def _text(path: Path, unreadable: OnUnreadable) -> Iterator[tuple[str, str | None]]:
    for where, line in lines(path):
        try:
            text = line.decode()
        except UnicodeDecodeError as fault:
            unreadable(ChatError(f"the line is not UTF-8: {fault.reason} at byte {fault.start}", where=where))
            continue
        yield where, text


def _records(path: Path, unreadable: OnUnreadable, records: Records) -> Iterator[tuple[str, str]]:
    """Records of several lines, each with the place of its first; one with a line that is not UTF-8 is unreadable."""
    pieces: list[str] = []
    at, torn = "", False

    def ended() -> Iterator[tuple[str, str]]:
        whole = _LAYOUT.sub(r"\1", "\n".join(pieces))
        if whole and not torn:
            yield at, whole

    for where, line in lines(path):
        for number, piece in enumerate(line.split(EOS_STRING.encode()) if records == "eos" else [line]):
            if number:
                yield from ended()
                pieces, torn = [], False
            if not any(pieces):
                at = where
            try:
                pieces.append(piece.decode())
            except UnicodeDecodeError as fault:
                unreadable(ChatError(f"the line is not UTF-8: {fault.reason} at byte {fault.start}", where=where))
                torn = True
    yield from ended()


def _jsonl(path: Path, unreadable: OnUnreadable) -> Iterator[tuple[str, str | None]]:
    for where, value in json_lines(path, unreadable):
        if not isinstance(value, dict) or COLUMN not in value:
            unreadable(ChatError(f"the line is no object with {COLUMN}", where=where, remedy=_SHAPE))
        elif not isinstance(value[COLUMN], str | None):
            unreadable(ChatError(f"{COLUMN} is {type(value[COLUMN]).__name__}, not text", where=where, remedy=_SHAPE))
        else:
            yield where, value[COLUMN]


_SHAPE = 'give lines such as {"text": "<|USER|>…<|END|>"}'


def transcript_files(place: Path) -> list[Path]:
    """The transcript files at `place`, a file or a folder, in the order in which they are read."""
    return find_files(place, SUFFIXES)


def text_bytes(file: Path) -> int:
    """An estimate of a file's bytes of text without reading it, for progress and disk space."""
    if file.suffix != ".parquet":
        return file.stat().st_size
    with open_parquet(file) as opened:
        groups = (opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups))
        return sum(group.total_byte_size for group in groups)


def read_records(
    file: Path,
    *,
    on_error: OnError = "raise",
    first: int = 0,
    records: Records = defaults.RECORDS,
    closed: bool = False,
    refused: Callable[[RecordError], object] = lambda _: None,
) -> Iterator[str | None]:
    """The records of a file; the first has number `first` in the stream.

    Raises RecordError, with file and line, for a record that is null or unreadable or, with `closed`, leaves a span
    open. With `on_error` "skip" it yields None instead, after `refused` got the error.
    """
    number = first
    missed: list[RecordError] = []

    def skipped() -> Iterator[None]:
        nonlocal number
        for fault in missed:
            if on_error == "raise":
                raise fault
            refused(fault)
            number += 1
            yield None
        missed.clear()

    for where, text in read_transcripts(file, unreadable=missed.append, records=records):
        yield from skipped()
        opened = open_span(text) if closed and text is not None else None
        if text is None:
            missed.append(
                ChatError(
                    f"record {number} is null, not text",
                    where=where,
                    remedy='fix it, or skip and count such records (--on-error skip, on_error="skip")',
                )
            )
        elif opened is not None:
            missed.append(
                ChatError(
                    f"record {number} opens a span with {opened} and does not close it with {END_STRING}",
                    where=where,
                    remedy=f"a record is a whole conversation: {SAY_RECORDS}, or skip and count such records with "
                    "--on-error skip",
                )
            )
        else:
            yield text
            number += 1
        yield from skipped()
    yield from skipped()


SAY_RECORDS = (
    "of a .txt file --records line|eos|file says what a record is (a line, the text between two <|EOS|>, the file)"
)


def open_span(text: str) -> str | None:
    """The marker of the first span of a record that is not closed before the next marker or the end, or None."""
    opened: str | None = None
    for match in _MARKER.finditer(text):
        marker = str(match[0])
        if opened is not None and marker != END_STRING:
            return opened
        opened = None if marker in (END_STRING, EOS_STRING) else marker
    return opened


def are_marked(source: Path, records: Records = defaults.RECORDS) -> bool:
    """Whether one of the first transcripts has an assistant marker."""
    read = read_transcripts(source, unreadable=lambda _: None, records=records)
    return any(ASSISTANT_STRING in (text or "") for _, text in islice(read, 100))
