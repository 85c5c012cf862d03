"""Opens the store: a URL → a database with our schema, created if requested.

In: a URL (`sqlite:///PATH`, `postgresql://…`). Out: a `Store`, which the caller closes. A database of another program,
and a schema of another version, are refused before anything is written. A SQLite store in a read-only folder is opened
as immutable.
"""

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Collection
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, func, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from spanloom.errors import OptionError
from spanloom.families.traces.errors import StoreError
from spanloom.families.traces.store.database import CONNECTIONS, METADATA, SCHEMA, TRACES, Store, written
from spanloom.families.traces.store.faults import PROBE_SECONDS, WAIT_SECONDS, named_faults
from spanloom.presentable import presentable, secrets_of
from spanloom.storage.locks import NO_LOCKS

SCHEMA_VERSION = 1
STORE_NAME = "traces.sqlite"

_PAGE_BYTES = 16_384
"""Page size of new SQLite files. Writing takes a quarter less time than with SQLite's default, 4,096."""


_POSTGRES: dict[str, Any] = {"connect_timeout": 10, "client_encoding": "utf8", "prepare_threshold": None}
"""Without prepared statements: of PgBouncer in transaction mode the next transaction may have another connection, which
does not know them, or knows others by the same names."""


def default_url(root: Path) -> str:
    """The URL of the store below a root, if none is given."""
    return file_url(root / STORE_NAME)


def file_url(path: Path) -> str:
    """The URL of the SQLite store in a file."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def open_store(url: str, *, create: bool = False) -> Store:
    """The store at a URL. `create`: create it if missing; without it, a missing store is an error and creates no file.

    Raises OptionError for an unsupported URL, StoreError if the store cannot be opened or has a newer version.
    """
    place = _place(url)
    called = presentable(place.render_as_string(hide_password=False))
    secrets = secrets_of(url) | {password for password in [os.environ.get("PGPASSWORD")] if password}
    pool: dict[str, Any] = {"pool_size": 8, "max_overflow": CONNECTIONS - 8}
    if place.get_backend_name() == "sqlite":
        place = _sqlite_place(place, called, create)
        engine, probe = _sqlite(place, **pool), partial(_sqlite, place, PROBE_SECONDS, poolclass=NullPool)
    else:
        place = place.set(drivername="postgresql+psycopg")
        engine = create_engine(place, connect_args=_POSTGRES, pool_pre_ping=True, **pool)
        probe = partial(create_engine, place, connect_args=_POSTGRES, poolclass=NullPool)
    locks = place.get_backend_name() == "sqlite" and place.query.get("mode") != "ro"
    store = Store(engine, probe, called, secrets, locks=locks)
    try:
        with named_faults(called, secrets):
            _check_schema(engine, called, create)
        store.load_settings()
    except BaseException:
        store.close()
        raise
    return store


def _place(url: str) -> URL:
    try:
        place = make_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
        backend = place.get_backend_name()
    except (ArgumentError, ValueError):
        backend = ""
    if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and place.database in (None, "", ":memory:")):
        raise OptionError(
            "this is no URL of a store",
            where=presentable(url),
            remedy="give sqlite:///PATH or postgresql://USER@HOST/DATABASE",
        )
    return place


def _sqlite_place(place: URL, called: str, create: bool) -> URL:
    """The path or URI that SQLite opens: a store in a read-only folder is opened as immutable."""
    path = Path(place.database or "")
    if not path.is_file():
        if not create:
            raise StoreError("there is no store", where=called, remedy="ingest traces first, or give another --store")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as refusal:
            raise StoreError(f"the store cannot be made: {refusal.strerror}", where=called) from None
    if create or os.access(path.parent, os.W_OK):
        _check_locks(path.parent, called)
        return place
    name = f"file:{quote(str(path.resolve()))}"
    log = Path(f"{path.resolve()}-wal")
    if not log.exists():
        # Nobody has it open. Without `immutable` SQLite would write an index of its log next to the store.
        return place.set(database=name, query={"mode": "ro", "immutable": "1", "uri": "true"})
    # A writer has it open, or was killed: its commits are in the log, which `immutable` ignores.
    try:
        with closing(sqlite3.connect(f"{name}?mode=ro", uri=True, timeout=WAIT_SECONDS)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError as fault:
        if not log.stat().st_size:
            return place.set(database=name, query={"mode": "ro", "immutable": "1", "uri": "true"})
        raise StoreError(
            f"the store has changes that are not merged, and its folder cannot be written: {fault}",
            where=called,
            remedy="open it once where it can be written, with `spanloom traces list`",
        ) from None
    except sqlite3.DatabaseError:
        pass  # not a database: reported when it is opened
    return place.set(database=name, query={"mode": "ro", "uri": "true"})


def _check_locks(folder: Path, called: str) -> None:
    """Raises StoreError for a file system without the locks that SQLite needs; it would wait for a minute, and then
    call the store locked. Tried on a file of our own: to close the store's would release the locks of this process."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refusal:
        if refusal.errno not in NO_LOCKS:
            return  # SQLite has its own words for a folder that cannot be written
        raise StoreError(
            f"the file system of {folder} has no locks (fcntl), which SQLite needs",
            where=called,
            remedy="give --store a file on another file system, such as a local disk, or a PostgreSQL database",
        ) from None


def _sqlite(place: URL, wait: int = WAIT_SECONDS, **pool: Any) -> Engine:
    fixed = place.query.get("mode") == "ro"
    engine = create_engine(
        place.set(drivername="sqlite+pysqlite"),
        connect_args={"timeout": wait, "check_same_thread": False},
        **pool,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver begins no transaction of its own: `begin` below does
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        # The journal mode belongs to the file: that of another program's file is not changed.
        ours = not fixed and not _is_foreign(names)
        connection.execute("PRAGMA foreign_keys=ON")
        if ours:
            connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # effective only while the file has no table
            ((mode,),) = connection.execute("PRAGMA journal_mode=WAL")
            if mode != "wal":  # SQLite does not raise if it cannot write the change
                raise sqlite3.OperationalError(f"the journal mode is {mode}, and cannot be changed to WAL")
            connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("spanloom_begin", "BEGIN"))

    return engine


def _is_foreign(tables: Collection[str]) -> bool:
    """Whether another program created the table of traces."""
    return TRACES.name in tables and SCHEMA.name not in tables


def _check_encoding(connection: Connection, called: str) -> None:
    """Raises StoreError for a database that cannot hold every text."""
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise StoreError(
            f"the database has the encoding {encoding}, which does not hold every text",
            where=called,
            remedy="give --store a database of UTF8: createdb --encoding UTF8 --template template0 NAME",
        )


def _check_schema(engine: Engine, called: str, create: bool) -> None:
    with engine.connect() as connection:
        _check_encoding(connection, called)
        names = inspect(connection).get_table_names()
    if SCHEMA.name not in names:
        if _is_foreign(names):
            raise StoreError(
                "this database holds a table traces of another program",
                where=called,
                remedy="give --store its own database; `ingest` reads traces of another store as JSON Lines",
            )
        if not create:
            raise StoreError("there is no store in this database", where=called, remedy="ingest traces first")
        with written(engine) as connection:
            METADATA.create_all(connection)
            if connection.execute(select(SCHEMA.c.version)).first() is None:
                connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))
    with engine.connect() as connection:
        version = connection.execute(select(func.max(SCHEMA.c.version))).scalar_one()
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"the store is of version {version}, this Spanloom knows version {SCHEMA_VERSION}",
            where=called,
            remedy="use the version of Spanloom that made it, or a newer one",
        )
