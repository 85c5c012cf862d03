"""Errors of the database in the store's words: what it is, where, what to do.

In: a block that asks the database. Out: its result, or a StoreError.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from spanloom.families.traces.errors import StoreBusyError, StoreError
from spanloom.presentable import presentable

WAIT_SECONDS = 60
PROBE_SECONDS = 1
"""For another writer of a SQLite file: of commands and requests, and of the question whether the store is ready."""

_REMEDIES = {
    "42501": "let this user create tables (GRANT CREATE ON SCHEMA public TO …), and read and write them",
    "25006": "give the URL of the primary server, or of a database that may be written",
    "3D000": "create the database, or fix its name",
    "28P01": "fix the user or the password",
    "28000": "let this user connect (pg_hba.conf)",
    "53300": "try again with fewer clients at once, or let the server have more connections",
    "22P05": "give a database of UTF8",
}
"""SQLSTATE of PostgreSQL → what to do."""


@contextmanager
def named_faults(called: str, secrets: frozenset[str], wait: int = WAIT_SECONDS) -> Iterator[None]:
    """Raises errors of the database as StoreError with the store's name. `secrets`: removed from the message. `wait`:
    how long the connection waits for another writer of a SQLite file, in seconds."""
    try:
        yield
    except PoolTimeout:
        raise StoreBusyError(
            "all connections to the store are in use", where=called, remedy="try again, or with fewer clients at once"
        ) from None
    except SQLAlchemyError as fault:
        what = str(fault.orig if isinstance(fault, DBAPIError) else fault)
        what = presentable(" ".join(what.split()), secrets)
        if "database is locked" in what:
            raise StoreBusyError(
                f"another writer held the store for more than {wait} s", where=called, remedy="try again"
            ) from None
        # SQLite has no error of its own if there is no space for the index of its log.
        index = getattr(getattr(fault, "orig", None), "sqlite_errorname", "") == "SQLITE_IOERR_SHMSIZE"
        full = index or "disk is full" in what or "No space left" in what
        raise StoreError(
            "the store did not do what it was asked to",  # not every client may read the database's message
            where=f"{called}: {what}",
            remedy="free some space and run the same command again: nothing was stored"
            if full
            else _REMEDIES.get(
                getattr(getattr(fault, "orig", None), "sqlstate", None) or "",
                "check that the database runs, is reachable and is whole",
            ),
        ) from None
