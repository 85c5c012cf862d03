"""Databases as they are set up elsewhere: a pooler, another encoding, users without rights; SQLite without locks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spanloom.families.traces.errors import StoreError
from spanloom.families.traces.store import opening
from spanloom.families.traces.store.database import PAGE_ROWS
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.opening import open_store
from support.pgbouncer import pgbouncer
from support.postgres import PostgresServer
from support.refusing_files import COMPILER, refusing


def traces(path: Path, count: int, begin: int = 0) -> Path:
    lines = [
        json.dumps(
            {
                "trace_version": "1.0",
                "prompt": f"ü€ {number}",
                "steps": [{"i": 0, "type": "thought", "content": f"{number}"}],
                "final_answer": "ł",
            }
        )
        for number in range(begin, begin + count)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def psql(server: PostgresServer, url: str, *commands: str) -> None:
    database = url.rpartition("@/")[2].partition("?")[0]
    for command in commands:
        server._run("psql", "-h", str(server.folder), "-U", "postgres", "-q", "-c", command, database)


def test_a_pooler_in_transaction_mode(postgres: PostgresServer, tmp_path: Path) -> None:
    """Several ingests, builds of one run, and many statements of one form: psycopg would prepare the sixth."""
    with pgbouncer(postgres) as pooled:
        direct = postgres.database()
        url = f"{direct.partition('?')[0]}?{pooled}"
        for run in range(8):
            store = open_store(url, create=True)
            count = ingest_file(
                store, traces(tmp_path / f"{run}.jsonl", PAGE_ROWS + 1, run * 2000), source_name="s", ids="content"
            ).ingested_count
            assert count == PAGE_ROWS + 1
            with store.snapshot() as snapshot:
                assert snapshot.count() == (run + 1) * (PAGE_ROWS + 1)
            store.close()


def test_a_database_of_another_encoding_is_refused_with_its_remedy(postgres: PostgresServer) -> None:
    url = postgres.database()
    psql(postgres, url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    latin = f"postgresql://postgres@/latin?host={postgres.folder}"
    for create in (True, False):
        with pytest.raises(StoreError, match=r"has the encoding LATIN1.*\n.*\n.*--encoding UTF8"):
            open_store(latin, create=create)


def test_a_user_who_may_not_create_tables(postgres: PostgresServer) -> None:
    url = postgres.database()
    psql(postgres, url, "CREATE ROLE reader LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(StoreError, match=r"permission denied.*\n.*GRANT CREATE ON SCHEMA"):
        open_store(url.replace("postgres@", "reader@"), create=True)


def test_a_database_that_is_read_only(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.database()
    open_store(url, create=True).close()
    name = url.rpartition("@/")[2].partition("?")[0]
    psql(postgres, url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store = open_store(url)
    with pytest.raises(StoreError, match=r"read-only transaction.*\n.*primary server"):
        ingest_file(store, traces(tmp_path / "a.jsonl", 1), source_name="s")
    with store.snapshot() as snapshot:
        assert snapshot.count() == 0
    store.close()


@pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C compiler")
def test_sqlite_without_locks_is_one_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    traces(tmp_path / "a.jsonl", 1)
    words = ["traces", "ingest", "a.jsonl", "--store", f"sqlite:///{tmp_path}/a/store.sqlite", "--source-name", "s"]
    done = subprocess.run(
        [sys.executable, "-m", "spanloom", *words],
        cwd=tmp_path, env=refusing(tmp_path / "a", "flock"), check=False, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"the file system of {tmp_path}/a has no locks (fcntl), which SQLite needs" in done.stderr
    assert "PostgreSQL" in done.stderr
    assert list((tmp_path / "a").iterdir()) == []


def test_a_folder_that_only_refuses_a_file_is_left_to_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(opening.fcntl, "lockf", full)
    open_store(f"sqlite:///{tmp_path}/store.sqlite", create=True).close()
