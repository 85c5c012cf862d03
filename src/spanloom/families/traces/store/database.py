"""The store of traces: one table, in SQLite or PostgreSQL, read and written through SQLAlchemy Core.

In: an engine (`opening`), rows. Out: rows, newest first or by id; the same on both databases.

    id           UUID, lower case                         created_at   UTC, `timestamps.stored`, indexed with the id
    version      trace_version, as in a JSON string       steps, chars counts in the payload
    meta         its meta as JSON, null for none          payload      the whole trace as JSON

JSON text contains no U+0000, which PostgreSQL cannot store. Filters read `meta`, and statistics read the counts, so a
build over the whole store reads no payload. Every value is text or a number, and sorts in the order of its bytes.

A write is one transaction. So is a snapshot: all its reads see the same state of the store.
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa

from spanloom.families.traces.defaults import MAX_STEP_CHARACTERS
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.faults import PROBE_SECONDS, named_faults
from spanloom.families.traces.trace import CheckedTrace, Payload, Trace, check_step_limit, json_text, parse_text
from spanloom.provenance import canonical_json

PAGE_ROWS = 1000
"""Rows per write, and ids per read."""

PAGE_CHARS = 4_000_000
"""Approximate limit of code points in payloads per read; a single trace may have more."""

_PAYLOAD_ROWS = 50
"""Limit of rows per read with payloads, whatever their size."""

CONNECTIONS = 32
"""Limit of a store's open connections, without the one that `Store.check` opens."""

PROMPT_SHOWN = 80
SOURCE_SHOWN = 40
"""Characters of a prompt's first line and of `meta.source` in a list."""

_LOCK = 0x5350414E4C4F4F4D
"""The PostgreSQL advisory lock that writers of content ids take."""

_Item = TypeVar("_Item")
_PLAIN = sa.String().with_variant(sa.String(collation="C"), "postgresql")
METADATA = sa.MetaData()
TRACES = sa.Table(
    "traces",
    METADATA,
    sa.Column("id", _PLAIN, primary_key=True),
    sa.Column("created_at", _PLAIN, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("chars", sa.Integer, nullable=False),
    sa.Column("meta", sa.Text, nullable=True),
    sa.Column("payload", sa.Text, nullable=False),
)
sa.Index("ix_traces_created_at_id", TRACES.c.created_at.desc(), TRACES.c.id)
SCHEMA = sa.Table("spanloom_traces_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True))
_settings = sa.Table(
    "spanloom_traces_settings",
    sa.MetaData(),  # not created with the other tables: a store without settings has the defaults
    sa.Column("name", _PLAIN, primary_key=True),
    sa.Column("value", sa.Integer, nullable=False),
)
_STEP_LIMIT = "max_step_characters"
_NEWEST_FIRST = (TRACES.c.created_at.desc(), TRACES.c.id)


TraceRow = tuple[str, str, str, int, int, str | None, str]
"""The values of a table row, in the order of the columns. A plain tuple for speed: there is one for each trace."""

_FIELDS = tuple(column.name for column in TRACES.columns)
_SQLITE_INSERT = f"INSERT INTO traces ({', '.join(_FIELDS)}) VALUES ({', '.join('?' for _ in _FIELDS)})"
_SQLITE_EXISTING = "SELECT id FROM traces WHERE id IN (SELECT value FROM json_each(?))"


def new_row(trace_id: str, created_at: str, trace: Trace | CheckedTrace) -> TraceRow:
    """The row of a new trace. `created_at`: as `timestamps.stored` returns it."""
    payload = trace.payload
    if isinstance(trace, CheckedTrace):
        meta, text = trace.meta_text, trace.text
    else:
        meta = None if payload["meta"] is None else json_text(payload["meta"])
        text = json_text(payload)
    version = _version_text(payload["trace_version"])
    return trace_id, created_at, version, len(payload["steps"]), trace.char_count, meta, text


@lru_cache(maxsize=64)
def _version_text(version: str) -> str:
    return json_text(version)[1:-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceHead:
    """An entry in a list of traces."""

    id: str
    created_at: str
    trace_version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TracePreview:
    """An entry in a list on a page or terminal: `prompt` and `source` are one line each, and cut."""

    id: str
    created_at: str
    trace_version: str
    prompt: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTrace:
    """A trace as stored."""

    id: str
    created_at: str
    payload: Payload


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceCounts:
    """The counts of a trace, for statistics."""

    id: str
    created_at: str
    steps: int
    chars: int


class Store:
    """Opened by `open_store`; call `close` at the end. `max_step_characters`: the limit recorded in the store. `locks`:
    whether one writer keeps out all others, as in a SQLite file that is not read-only."""

    def __init__(
        self,
        engine: sa.Engine,
        probe: Callable[[], sa.Engine],
        called: str,
        secrets: frozenset[str] = frozenset(),
        *,
        locks: bool = False,
    ) -> None:
        self.called, self._locks = called, locks
        self.max_step_characters = MAX_STEP_CHARACTERS
        # Creating an engine takes milliseconds, and only a service needs the one for `check`.
        self._engine, self._probe, self._secrets = engine, cache(probe), secrets

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def remember_step_limit(self, characters: int) -> None:
        """Records the limit of characters per step, for this and all later writers. Raises OptionError."""
        check_step_limit(characters)
        if characters == self.max_step_characters:
            return
        with named_faults(self.called, self._secrets), written(self._engine) as connection:
            _settings.create(connection, checkfirst=True)
            connection.execute(sa.delete(_settings).where(_settings.c.name == _STEP_LIMIT))
            connection.execute(sa.insert(_settings).values(name=_STEP_LIMIT, value=characters))
        self.max_step_characters = characters

    def load_settings(self) -> None:
        """Reads the settings recorded in the store."""
        with named_faults(self.called, self._secrets), self._engine.connect() as connection:
            if sa.inspect(connection).has_table(_settings.name):
                value = sa.select(_settings.c.value).where(_settings.c.name == _STEP_LIMIT)
                self.max_step_characters = connection.execute(value).scalar() or MAX_STEP_CHARACTERS

    def check(self) -> None:
        """Raises StoreError if the store does not answer, or takes no writer; StoreBusyError if one holds a SQLite file
        for more than a second. Never waits for a connection that others use."""
        with named_faults(self.called, self._secrets, PROBE_SECONDS), self._probe().connect() as connection:
            connection.execute(sa.select(SCHEMA.c.version).limit(1)).all()
            connection.rollback()
            if self._locks:
                connection.execution_options(spanloom_begin="BEGIN IMMEDIATE").begin().rollback()

    @contextmanager
    def writing(self, *, shared: bool = False) -> Iterator["Writer"]:
        """One transaction, all or nothing. `shared`: does not wait for writers with `shared=False`."""
        with named_faults(self.called, self._secrets), written(self._engine, shared=shared) as connection:
            yield Writer(connection)

    @contextmanager
    def snapshot(self) -> Iterator["Snapshot"]:
        """All reads in the block see the same state of the store."""
        with named_faults(self.called, self._secrets), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield Snapshot(connection)


@contextmanager
def written(engine: sa.Engine, *, shared: bool = False) -> Iterator[sa.Connection]:
    """A write transaction; see `Store.writing`."""
    options = {"spanloom_begin": "BEGIN IMMEDIATE"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        if connection.dialect.name == "postgresql" and not shared:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection


class Writer:
    """A write transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, rows: Sequence[TraceRow]) -> None:
        """Stores rows with new ids. Raises StoreError for an id that exists."""
        for page in _pages(rows):
            if self._connection.dialect.name == "sqlite":
                # Uses the driver directly: SQLAlchemy would double the time by converting the values of each row.
                self._connection.exec_driver_sql(_SQLITE_INSERT, list(page))
            else:
                self._connection.execute(sa.insert(TRACES), [dict(zip(_FIELDS, row, strict=True)) for row in page])

    def is_empty(self) -> bool:
        """Whether the store has no trace."""
        return self._connection.execute(sa.select(TRACES.c.id).limit(1)).first() is None

    def existing(self, ids: Sequence[str]) -> set[str]:
        """Which of at most PAGE_ROWS ids exist."""
        if self._connection.dialect.name == "sqlite":
            # A JSON list is one parameter; otherwise SQLAlchemy would expand a thousand parameters in each call.
            return set(self._connection.exec_driver_sql(_SQLITE_EXISTING, (orjson.dumps(ids).decode(),)).scalars())
        return set(self._connection.execute(sa.select(TRACES.c.id).where(TRACES.c.id.in_(ids))).scalars())

    def delete(self, ids: Sequence[str]) -> set[str]:
        """Deletes traces; returns the ids of those that existed."""
        gone: set[str] = set()
        for page in _pages(list(dict.fromkeys(ids))):
            existing = self.existing(page)
            self._connection.execute(sa.delete(TRACES).where(TRACES.c.id.in_(existing)))
            gone |= existing
        return gone


class Snapshot:
    """A consistent view of the store, as of one moment."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def count(self) -> int:
        """The number of traces."""
        return int(self._connection.execute(sa.select(sa.func.count()).select_from(TRACES)).scalar_one())

    def heads(self, *, limit: int, offset: int) -> list[TraceHead]:
        """A page of all traces, newest first."""
        columns = sa.select(TRACES.c.id, TRACES.c.created_at, TRACES.c.version)
        rows = self._connection.execute(columns.order_by(*_NEWEST_FIRST).limit(limit).offset(offset))
        return [
            TraceHead(id=row.id, created_at=row.created_at, trace_version=json.loads(f'"{row.version}"'))
            for row in rows
        ]

    def previews(self, *, limit: int, offset: int) -> list[TracePreview]:
        """A page of previews of all traces, newest first. Only the beginning of each payload is read."""
        payload = sa.func.substr(TRACES.c.payload, 1, _PREVIEW_CHARS)
        columns = sa.select(TRACES.c.id, TRACES.c.created_at, TRACES.c.version, TRACES.c.meta, payload)
        with closing(self._stream(columns.order_by(*_NEWEST_FIRST).limit(limit).offset(offset))) as rows:
            return [
                TracePreview(
                    id=row[0],
                    created_at=row[1],
                    trace_version=json.loads(f'"{row[2]}"'),
                    prompt=_first_line(_prompt_begin(row[4]), PROMPT_SHOWN),
                    source=_source_of(row[3]),
                )
                for row in rows
            ]

    def metas(self) -> Generator[tuple[str, str | None]]:
        """Id and `meta` as JSON of all traces, newest first."""
        for row in self._stream(sa.select(TRACES.c.id, TRACES.c.meta).order_by(*_NEWEST_FIRST)):
            yield row[0], row[1]

    def ids(self) -> Generator[str]:
        """The ids of all traces, newest first."""
        for row in self._stream(sa.select(TRACES.c.id).order_by(*_NEWEST_FIRST)):
            yield row[0]

    def candidates(self, *, payloads: bool) -> Generator[tuple[str, str | None, int, int, str | None]]:
        """Id, `meta` as JSON, steps and code points of all traces, newest first; the payload as JSON, or None."""
        columns = (TRACES.c.id, TRACES.c.meta, TRACES.c.steps, TRACES.c.chars)
        statement = sa.select(*columns, TRACES.c.payload if payloads else sa.null())
        for row in self._stream(statement.order_by(*_NEWEST_FIRST), _PAYLOAD_ROWS if payloads else PAGE_ROWS):
            yield row[0], row[1], row[2], row[3], row[4]

    def _stream(
        self, statement: sa.Select[*tuple[Any, ...]], page_rows: int = PAGE_ROWS
    ) -> Generator[sa.Row[*tuple[Any, ...]]]:
        with self._connection.execute(statement.execution_options(yield_per=page_rows)) as result:
            for page in result.partitions():
                yield from page

    def get(self, trace_id: str) -> StoredTrace | None:
        """The trace of an id."""
        return next(self.traces([trace_id]), None)

    def counts(self, ids: Sequence[str]) -> dict[str, TraceCounts]:
        """The counts of the traces with these ids, as far as they exist."""
        columns = sa.select(TRACES.c.id, TRACES.c.created_at, TRACES.c.steps, TRACES.c.chars)
        return {
            row.id: TraceCounts(id=row.id, created_at=row.created_at, steps=row.steps, chars=row.chars)
            for page in _pages(ids)
            for row in self._connection.execute(columns.where(TRACES.c.id.in_(page)))
        }

    def present(self, ids: Iterable[str]) -> dict[str, str]:
        """Those of these ids that exist, with the `created_at` of each."""
        columns = sa.select(TRACES.c.id, TRACES.c.created_at)
        return {
            row[0]: row[1]
            for page in _pages(list(dict.fromkeys(ids)))
            for row in self._connection.execute(columns.where(TRACES.c.id.in_(page)))
        }

    def traces(self, ids: Sequence[str]) -> Iterator[StoredTrace]:
        """The traces of these ids, in this order, a page at a time; missing ones are left out."""
        columns = sa.select(TRACES.c.id, TRACES.c.created_at, TRACES.c.payload)
        for page in _pages(ids):
            sizes = self._connection.execute(sa.select(TRACES.c.id, TRACES.c.chars).where(TRACES.c.id.in_(page)))
            for part in _parts(page, {row[0]: row[1] for row in sizes}):
                rows = self._connection.execute(columns.where(TRACES.c.id.in_(part))).all()
                rows_by_id = {row[0]: row for row in rows}
                for trace_id in part:
                    if (row := rows_by_id.get(trace_id)) is not None:
                        yield StoredTrace(id=trace_id, created_at=row[1], payload=parse_text(row[2]))


_PREVIEW_CHARS = 2000
"""Enough for a version of 64 characters and a prompt's first line, even if every character is escaped."""

_TEXT = r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*'
_PAYLOAD_BEGIN = re.compile(rf'\s*{{"trace_version":"{_TEXT}","prompt":"({_TEXT})')


def _prompt_begin(payload: str) -> str:
    """The prompt from the beginning of a payload, which may end inside the prompt."""
    match = _PAYLOAD_BEGIN.match(payload)
    return "" if match is None else str(json.loads(f'"{match[1]}"'))


def _first_line(text: str, longest: int) -> str:
    """The first line that is not blank."""
    first = text.strip().partition("\n")[0].rstrip()
    return first if len(first) <= longest else first[:longest] + "…"


def _source_of(meta: str | None) -> str:
    """`meta.source`; any value but text as JSON."""
    source = None if meta is None else parse_text(meta).get("source")
    if source is None:
        return ""
    return _first_line(source if isinstance(source, str) else canonical_json(source).decode(), SOURCE_SHOWN)


def _pages(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for first in range(0, len(items), PAGE_ROWS):
        yield items[first : first + PAGE_ROWS]


def _parts(ids: Sequence[str], chars: dict[str, int]) -> Iterator[Sequence[str]]:
    """Splits a page so that the payloads of each part can be read at once."""
    part: list[str] = []
    size = 0
    for trace_id in ids:
        if trace_id not in chars:
            continue
        if part and size + chars[trace_id] > PAGE_CHARS:
            yield part
            part, size = [], 0
        part.append(trace_id)
        size += chars[trace_id]
    if part:
        yield part


def list_item(head: TraceHead | TracePreview) -> dict[str, str]:
    """A row of a list as JSON."""
    return {"id": head.id, "created_at": timestamps.shown(head.created_at), "trace_version": head.trace_version}


def detail(trace: StoredTrace) -> dict[str, Any]:
    """A trace as JSON, with its payload."""
    return {
        "id": trace.id,
        "created_at": timestamps.shown(trace.created_at),
        "trace_version": trace.payload["trace_version"],
        "payload": trace.payload,
    }
