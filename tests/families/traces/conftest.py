"""The rules of the trace family worked out on recorded cases, and a store of each kind."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.opening import default_url, open_store
from support.cases import beside
from support.postgres import PostgresServer, postgres_server
from support.requirements import PUBLIC_TRACES, REAL_TRACES, TRACE_FILES, absent
from support.traces import CASES, rows_of, store_rows

KINDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def trace_cases() -> Path:
    """The folder with `fixtures/`."""
    return CASES


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Traces and manifests that others published; not part of the repository."""
    path = beside("SPANLOOM_TRACES_REAL", "families/traces/real")
    return path if path.is_dir() else absent(REAL_TRACES, f"{path} is not there")


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """A record of each published form of reasoning traces; not part of the repository."""
    path = beside("SPANLOOM_TRACES_PUBLIC", "families/traces/public")
    return path if path.is_dir() else absent(PUBLIC_TRACES, f"{path} is not there")


@pytest.fixture(scope="session")
def published_files() -> Path:
    """Whole files that others published, such as GSM8K's; not part of the repository."""
    path = beside("SPANLOOM_TRACES_FILES", "families/traces/files")
    return path if path.is_dir() else absent(TRACE_FILES, f"{path} is not there")


@pytest.fixture(scope="session")
def case_rows(trace_cases: Path) -> list[dict[str, Any]]:
    """The rows of the store that the cases were recorded with."""
    return rows_of(trace_cases)


@pytest.fixture(scope="session")
def decisions(trace_cases: Path) -> dict[str, dict[str, Any]]:
    """Cases whose recorded result does not count, by name."""
    return {case["case"]: case for case in json.loads((trace_cases / "fixtures/decisions.json").read_bytes())}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of our own."""
    with postgres_server() as server:
        yield server


NewStore = Callable[[], str]


@pytest.fixture(params=KINDS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Gives the URL of a new, empty store of one kind, then of the other."""
    if request.param == "sqlite":
        names = iter(range(1000))
        return lambda: default_url(tmp_path / f"store{next(names)}")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database


@pytest.fixture
def store(new_store: NewStore) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(new_store(), create=True)
    yield opened
    opened.close()


@pytest.fixture
def filled(store: Store, case_rows: list[dict[str, Any]]) -> Store:
    """A store with the rows of the cases."""
    store_rows(store, case_rows)
    return store
