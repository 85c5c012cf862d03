"""The store: the same on SQLite and on PostgreSQL, whole transactions, snapshots, versions."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, text

from spanloom.errors import OptionError
from spanloom.families.traces.errors import StoreError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import CONNECTIONS, PROMPT_SHOWN, Store, new_row
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.trace import Trace
from support.nightly import drawn
from support.traces import payloads, store_rows


def new(number: int, created_at: str = "2026-01-01T00:00:00Z", **changed: Any) -> dict[str, Any]:
    payload = {
        "trace_version": "1.0",
        "prompt": f"q{number}",
        "final_answer": "a",
        "steps": [{"i": 0, "type": "t", "content": "c"}],
        **changed,
    }
    trace_id = f"00000000-0000-0000-0000-{number:012x}"
    return new_row(trace_id, timestamps.given(created_at), Trace.model_validate(payload))


def ids(store: Store) -> list[int]:
    with store.snapshot() as snapshot:
        return [int(trace_id[-12:], 16) for trace_id in snapshot.ids()]


def test_the_newest_come_first_and_then_the_smaller_id(store: Store) -> None:
    with store.writing() as writer:
        writer.add([new(9), new(3), new(15), new(2, "2026-01-01T00:00:00.000001Z"), new(4, "0999-12-31T23:59:59Z")])
    assert ids(store) == [2, 3, 9, 15, 4]
    with store.snapshot() as snapshot:
        assert [head.id[-1] for head in snapshot.heads(limit=2, offset=1)] == ["3", "9"]
        assert snapshot.count() == 5


def test_a_write_that_fails_leaves_nothing(store: Store) -> None:
    with store.writing() as writer:
        writer.add([new(1)])
    with pytest.raises(StoreError), store.writing() as writer:
        writer.add([new(2)])
        writer.add([new(1)])  # the id is taken
    with pytest.raises(RuntimeError), store.writing() as writer:
        writer.add([new(3)])
        raise RuntimeError
    assert ids(store) == [1]


def test_a_snapshot_is_of_one_moment(store: Store) -> None:
    with store.writing() as writer:
        writer.add([new(1), new(2)])
    with store.snapshot() as snapshot:
        assert snapshot.count() == 2
        with store.writing() as writer:
            writer.add([new(3)])
            writer.delete([new(1)[0]])
        assert snapshot.count() == 2
        assert snapshot.get(new(1)[0]) is not None
    assert sorted(ids(store)) == [2, 3]


def test_deleting_says_what_was_there(store: Store) -> None:
    with store.writing() as writer:
        writer.add([new(number) for number in range(2500)])
        gone = writer.delete([new(number)[0] for number in (*range(0, 2500, 2), 2, 4000)])
    assert len(gone) == 1250
    assert sorted(ids(store)) == list(range(1, 2500, 2))


def test_traces_come_in_the_order_that_was_asked_for(store: Store) -> None:
    with store.writing() as writer:
        writer.add([new(number, prompt="p" * 50_000) for number in range(120)])  # more than one part of a page
    wanted = [new(number)[0] for number in (7, 119, 500, 7, *range(118, 0, -1))]
    with store.snapshot() as snapshot:
        assert [trace.id for trace in snapshot.traces(wanted)] == [one for one in wanted if one != new(500)[0]]
        assert snapshot.present(wanted).keys() == set(wanted) - {new(500)[0]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=drawn(50, 20))
@given(payloads())
def test_any_text_survives(store: Store, value: dict[str, Any]) -> None:
    trace = Trace.model_validate(value)
    with store.writing() as writer:
        writer.delete([new(1)[0]])
        writer.add([new_row(new(1)[0], timestamps.now(), trace)])
    with store.snapshot() as snapshot:
        found = snapshot.get(new(1)[0])
        (head,) = snapshot.heads(limit=10, offset=0)
        (count,) = snapshot.counts([new(1)[0]]).values()
    assert found is not None
    assert found.payload == trace.payload
    assert head.trace_version == trace.trace_version
    assert (count.steps, count.chars) == (len(trace.steps), trace.char_count)


def test_both_stores_hold_the_same_bytes(
    tmp_path: Path, request: pytest.FixtureRequest, case_rows: list[dict[str, Any]]
) -> None:
    tables = []
    for url in (default_url(tmp_path), request.getfixturevalue("postgres").database()):
        store = open_store(url, create=True)
        store_rows(store, case_rows)
        store.close()
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as connection:
            tables.append(sorted(map(tuple, connection.execute(text("SELECT * FROM traces")))))
        engine.dispose()
    assert len(tables[0]) == len(case_rows)
    assert tables[0] == tables[1]


def test_a_newer_store_is_refused(new_store: Any) -> None:
    url = new_store()
    open_store(url, create=True).close()
    open_store(url).close()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO spanloom_traces_schema VALUES (2)"))
    engine.dispose()
    with pytest.raises(StoreError, match="version 2"):
        open_store(url)


def test_a_store_that_is_not_there_is_not_made_by_reading(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        open_store(default_url(tmp_path / "a/b"))
    assert not list(tmp_path.iterdir())


def test_an_empty_database_is_no_store(postgres: Any) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        open_store(postgres.database())


@pytest.mark.parametrize("url", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "x", ""])
def test_urls_of_other_kinds_are_refused(url: str) -> None:
    with pytest.raises(OptionError, match="no URL of a store"):
        open_store(url, create=True)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@localhost:1/x",
        "postgresql://me:a@secret@localhost:1/x",
        "postgresql://me:s%65cret@localhost:1,127.0.0.1:2/x",
        "postgresql://localhost:1/x?user=me&password=secret",
        "postgresql:///x?host=localhost&port=1&password=secret&sslpassword=secret",
        "postgresql://localhost:1/x?passfile=/none&password=secret",
        "postgresql://localhost:1/x?service=none&password=secret",
        "postgresql://localhost:1/x?password=secret&no_such_option=1",
        "host=localhost port=1 password=secret",
        "mysql://me:secret@localhost/x",
    ],
)
def test_passwords_are_not_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret")
    with pytest.raises((StoreError, OptionError)) as told:
        open_store(url)
    assert "secret" not in str(told.value)


def test_a_store_is_called_without_its_password(postgres: Any) -> None:
    store = open_store(f"{postgres.database()}&password=S3cr3t&sslpassword=S3cr3t", create=True)
    store.close()
    assert "S3cr3t" not in store.called
    assert store.called.count("***") == 2


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "traces.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(default_url(tmp_path), create=True)


def test_sqlite_writes_ahead(tmp_path: Path) -> None:
    open_store(default_url(tmp_path), create=True).close()
    with sqlite3.connect(tmp_path / "traces.sqlite") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@contextmanager
def read_only(folder: Path, at: Path) -> Iterator[Path]:
    """The folder a second time, where nothing can be written: also not by root."""
    at.mkdir()
    done = subprocess.run(["mount", "--bind", folder, at], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", at], check=True)
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def killed_writer(url: str) -> None:
    """A process that commits a trace, and is killed before it has merged it."""
    program = f"""
import os, signal
from spanloom.families.traces.store.ingest import add_traces
from spanloom.families.traces.store.opening import open_store
from spanloom.families.traces.trace import Trace
step = {{"i": 0, "type": "t", "content": "c"}}
trace = Trace(trace_version="1", prompt="q", final_answer="a", steps=[step])
add_traces(open_store({url!r}), [trace])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL


def counted(folder: Path) -> int:
    store = open_store(default_url(folder))
    store.check()
    found = len(ids(store))
    store.close()
    return found


def test_a_reader_that_may_not_write_sees_what_is_committed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    writer = open_store(default_url(folder), create=True)
    with writer.writing() as writing:
        writing.add([new(1)])
    with read_only(folder, tmp_path / "ro") as place:
        assert counted(place) == 1  # a live writer, whose log is not merged
        with writer.writing() as writing:
            writing.add([new(2)])
        assert counted(place) == 2
        writer.close()
        assert not (folder / "traces.sqlite-wal").exists()
        assert counted(place) == 2  # nobody writes
        killed_writer(default_url(folder))
        assert (folder / "traces.sqlite-wal").stat().st_size
        assert counted(place) == 3
        (folder / "traces.sqlite-shm").unlink()
        with pytest.raises(StoreError, match="changes that are not merged") as told:
            open_store(default_url(place))
        assert "open it once where it can be written" in str(told.value)
    assert counted(folder) == 3
    with read_only(folder, tmp_path / "again") as place:
        assert counted(place) == 3


def test_a_table_of_another_program_is_left_as_it_is(new_store: Any) -> None:
    url = new_store()
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE traces (id VARCHAR(36) PRIMARY KEY, payload TEXT)"))
    for create in (True, False):
        with pytest.raises(StoreError, match="a table traces of another program"):
            open_store(url, create=create)
    assert inspect(engine).get_table_names() == ["traces"]
    if url.startswith("sqlite"):
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "delete"
    engine.dispose()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=drawn(50, 20))
@given(payloads(), st.integers(0, 3000))
def test_a_preview_shows_how_a_prompt_begins(store: Store, value: dict[str, Any], more: int) -> None:
    value["prompt"] = (value["prompt"] + "x\x01" * more)[:50_000]
    trace = Trace.model_validate(value)
    with store.writing() as writer:
        writer.delete([new(1)[0]])
        writer.add([new_row(new(1)[0], timestamps.now(), trace)])
    with store.snapshot() as snapshot:
        (preview,) = snapshot.previews(limit=10, offset=0)
    first = trace.prompt.strip().partition("\n")[0].rstrip()
    assert preview.prompt == first if len(first) <= PROMPT_SHOWN else preview.prompt == first[:PROMPT_SHOWN] + "…"
    source = (trace.meta or {}).get("source")
    if isinstance(source, str):
        assert preview.source.removesuffix("…") in source
    assert (preview.source == "") == (source is None or (isinstance(source, str) and not source.strip()))


def test_the_check_waits_for_nobody(store: Store) -> None:
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(store.snapshot())
        store.check()
