"""Writers that are killed, meet each other, run out of disk or lose their database: whole transactions, whole files.

Real processes, most are forks, and real servers; where a process is killed, the moment is drawn from a seed.
"""

import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.errors import StoreError
from spanloom.families.traces.export.file import ExportCounts, records, write_file
from spanloom.families.traces.export.lines import ExportOptions
from spanloom.families.traces.service.application import traces_application
from spanloom.families.traces.service.routes import STREAMS
from spanloom.families.traces.store.database import CONNECTIONS, Store
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.manifest import parse_manifest
from spanloom.families.traces.store.opening import default_url, file_url, open_store
from support import warm
from support.http_service import served
from support.nightly import drawn, nightly
from support.postgres import PostgresServer, postgres_server
from support.traces import json_lines

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("SPANLOOM_KILLS", drawn(4, 2)))
"""Kills of each command, the first of those that the seed draws; 20 in `make chaos`."""
PATIENCE = 60.0
"""Seconds to wait for what must come at once; reached only when a test fails."""

ON_SQLITE_BY_DAY = pytest.mark.parametrize("new_store", ["sqlite", nightly("postgresql")], indirect=True)


def trace(number: int, size: int = 200) -> dict[str, Any]:
    steps = [{"i": 0, "type": "t", "content": f"{number} " + "x" * size}]
    return {
        "trace_version": "1",
        "prompt": f"q{number}",
        "final_answer": "a",
        "steps": steps,
        "meta": {"n": number % 7},
    }


def command(*arguments: object, **environment: str) -> warm.Piped:
    return warm.piped("spanloom", "traces", *arguments, env={**os.environ, **environment})


def finished(process: warm.Piped) -> float:
    """Seconds until it ended, well."""
    began = time.monotonic()
    _, err = process.communicate()
    assert process.returncode == 0, err
    return time.monotonic() - began


def counted(url: str) -> int:
    store = open_store(url)
    with store.snapshot() as snapshot:
        total = snapshot.count()
    store.close()
    return total


def until(reached: Callable[[], bool], process: warm.Piped) -> None:
    """Waits for a state of the work, of a process that runs."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def grown(url: str, base: int) -> Callable[[], bool]:
    """Whether rows of an ingest stand in the store beside `base` bytes that were there."""
    return lambda: stored_bytes(url) > base + 1_000_000


def killed(process: warm.Piped, reached: Callable[[], bool], seconds: float) -> bool:
    """Kills a process some time after a state of its work. Returns whether it was still at work."""
    until(reached, process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def stored_bytes(url: str) -> int:
    """How large the store's table is with rows that are not committed; of SQLite its log."""
    if url.startswith("sqlite"):
        log = Path(url.removeprefix("sqlite:///") + "-wal")
        return log.stat().st_size if log.exists() else 0
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_table_size('traces')")).scalar_one())


def keep_pages(url: str) -> None:
    """PostgreSQL frees no pages of killed transactions, so that the table grows with each."""
    if url.startswith("postgres"):
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE traces SET (autovacuum_enabled = false)"))


def test_an_ingest_that_is_killed_stored_all_or_nothing(new_store: Any, tmp_path: Path) -> None:
    count = 4000
    lines = json_lines(tmp_path / "x.jsonl", [trace(number, 1000) for number in range(count)])
    url, measured = new_store(), new_store()
    for made in (url, measured):
        open_store(made, create=True).close()
        keep_pages(made)
    whole = command("ingest", lines, "--source-name", "s", "--store", measured)
    until(grown(measured, stored_bytes(measured)), whole)
    seconds = finished(whole)  # from the first rows in the store to the end
    drawn = random.Random(15)
    at_work = 0
    for number in range(4 * ROUNDS):
        if number >= ROUNDS and at_work:  # on a busy machine a run may end before it is killed
            break
        # Of a killed transaction PostgreSQL's table keeps the pages, and SQLite the log until it is opened.
        rows = counted(url)
        began = stored_bytes(url) if url.startswith("postgres") else 0
        process = command("ingest", lines, "--source-name", "s", "--store", url, "--ids", "random")
        was = killed(process, grown(url, began), seconds * drawn.uniform(0, 0.8))
        total = counted(url)
        assert total in ((rows, rows + count) if was else (rows + count,)), (rows, total)
        at_work += total == rows
    assert at_work
    before = counted(url)
    finished(command("ingest", lines, "--source-name", "s", "--store", url))
    assert counted(url) == before + count


def test_a_build_that_is_killed_leaves_a_whole_manifest_or_none(tmp_path: Path) -> None:
    store = open_store(default_url(tmp_path), create=True)
    lines = json_lines(tmp_path / "x.jsonl", [trace(number, 10) for number in range(20_000)])
    ingest_file(store, lines, source_name="s")
    store.close()
    build = ("build", "--root", tmp_path, "--name", "d", "--limit", 10_000, "--filter", 'source="s"', "--version")
    opened = tmp_path / "traces.sqlite-shm"  # is there while somebody reads
    whole = command(*build, "whole")
    until(opened.exists, whole)
    seconds = finished(whole)
    drawn = random.Random(16)
    at_work = 0
    for number in range(ROUNDS):
        for left in ("-shm", "-wal"):  # of the one that was killed before, who wrote nothing
            (tmp_path / f"traces.sqlite{left}").unlink(missing_ok=True)
        process = command(*build, f"v{number}")
        was = killed(process, opened.exists, seconds * drawn.uniform(0, 0.8))
        path = tmp_path / f"datasets/d-v{number}/manifest.json"
        assert path.exists() or was
        if path.exists():
            assert parse_manifest(path.read_bytes(), str(path)).trace_count == 10_000
        at_work += not path.exists()
    assert at_work
    finished(command(*build, "v0"))
    assert parse_manifest((tmp_path / "datasets/d-v0/manifest.json").read_bytes(), "x").trace_count == 10_000


def test_two_writers_and_a_builder_see_whole_transactions(new_store: Any, tmp_path: Path) -> None:
    url, sizes = new_store(), (1700, 2300)
    files = [
        json_lines(tmp_path / f"{number}.jsonl", [trace(number * 10_000 + row) for row in range(size)])
        for number, size in enumerate(sizes)
    ]
    store = open_store(url, create=True)
    possible = {0, sizes[0], sizes[1], sum(sizes)}
    writers = [command("ingest", file, "--source-name", f"s{file.stem}", "--store", url) for file in files]
    seen = []
    while any(writer.poll() is None for writer in writers):
        with store.snapshot() as snapshot:
            first, ids = snapshot.count(), list(snapshot.ids())
        assert first == len(ids)
        assert len(ids) in possible
        if ids:
            wanted = BuildRequest(dataset_name="d", dataset_version="1", limit=10_000)
            manifest, _ = build_dataset(store, tmp_path, wanted)
            assert manifest.trace_count == manifest.stats["trace_count"]
            assert manifest.trace_count in possible
            seen.append(manifest.trace_count)
    for writer in writers:
        finished(writer)
    assert counted(url) == sum(sizes)
    assert seen == sorted(seen)
    store.close()


def test_two_ingests_of_one_file_store_it_once(new_store: Any, tmp_path: Path) -> None:
    url = new_store()
    open_store(url, create=True).close()
    lines = json_lines(tmp_path / "x.jsonl", [trace(number) for number in range(2000)])
    writers = [command("ingest", lines, "--source-name", "s", "--store", url, "--json") for _ in range(3)]
    done = [json.loads(writer.communicate()[0]) for writer in writers]
    assert sorted(one["ingested_count"] for one in done) == [0, 0, 2000]
    assert sorted(one["skipped_existing"] for one in done) == [0, 2000, 2000]
    assert counted(url) == 2000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_leaves_the_store_as_it_was(small_disk: Path, tmp_path: Path) -> None:
    few = json_lines(tmp_path / "few.jsonl", [trace(number) for number in range(50)])
    many = json_lines(tmp_path / "many.jsonl", [trace(number, 1000) for number in range(5000)])
    finished(command("ingest", few, "--source-name", "s", "--root", small_disk))
    process = command("ingest", many, "--source-name", "s", "--root", small_disk)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "free some space" in err
    assert counted(default_url(small_disk)) == 50
    finished(command("build", "--root", small_disk, "--name", "d", "--version", "1"))
    (small_disk / "filler").write_bytes(b"x" * ((os.statvfs(small_disk).f_bavail - 2) * os.statvfs(small_disk).f_bsize))
    process = command("export", "d-1", "--root", small_disk, "--out", small_disk / "x.jsonl")
    _, err = process.communicate()
    assert process.returncode == 1, err
    assert [path.name for path in small_disk.glob("*x.jsonl*")] == []


@pytest.fixture(scope="module")
def own_postgres(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that a test may stop, and starts again; skipped where the shared one is."""
    with postgres_server() as server:
        yield server


def _large(url: str, root: Path, count: int = 3000) -> tuple[Store, list[str]]:
    """A store of traces that no socket's buffers hold."""
    store = open_store(url, create=True)
    lines = json_lines(root / "large.jsonl", [trace(number, 10_000) for number in range(count)])
    ingest_file(store, lines, source_name="s")
    manifest, _ = build_dataset(store, root, BuildRequest(dataset_name="d", dataset_version="1", limit=10_000))
    return store, manifest.ids


def test_a_database_that_goes_away_breaks_the_transfer(own_postgres: PostgresServer, tmp_path: Path) -> None:
    store, ids = _large(own_postgres.database(), tmp_path)
    with served(traces_application(store, tmp_path)) as service:
        connection = service.connection()
        connection.request("GET", "/api/datasets/d-1/export.jsonl")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.readline().endswith(b"\n")
        own_postgres.stop()
        with pytest.raises(http.client.IncompleteRead):  # the body is cut off, and the client is told
            while answer.read(1 << 16):
                pass
        assert service.ask("GET", "/readyz").status == 503
        assert service.ask("GET", "/healthz").status == 200
        assert service.ask("GET", "/api/traces").status == 503
        own_postgres.start()
        assert service.ask("GET", "/readyz").status == 200
        assert len(service.ask("GET", "/api/datasets/d-1/export.jsonl").body.splitlines()) == len(ids)
    store.close()


def test_a_database_that_crashes_in_an_ingest_has_stored_all_or_nothing(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    count = 4000
    lines = json_lines(tmp_path / "x.jsonl", [trace(number, 1000) for number in range(count)])
    url = own_postgres.database()
    open_store(url, create=True).close()
    ingest = ("ingest", lines, "--source-name", "s", "--store", url)
    process = command(*ingest)
    until(grown(url, 0), process)
    own_postgres.stop()  # as a crash: no connection is waited for, the log is replayed at the next start
    process.wait(PATIENCE)
    _, err = process.communicate()
    own_postgres.start()
    if process.returncode:
        assert "check that the database runs" in err
        assert "Traceback" not in err
    assert counted(url) in ((0, count) if process.returncode else (count,))
    finished(command(*ingest))
    assert counted(url) == count
    finished(command(*ingest))
    assert counted(url) == count


def test_a_database_that_goes_away_leaves_no_file(own_postgres: PostgresServer, tmp_path: Path) -> None:
    store, ids = _large(own_postgres.database(), tmp_path)

    def stopping() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(records(snapshot, ids, "trace", ExportOptions(), None, ExportCounts())):
            if number == 5:
                own_postgres.stop()
            yield row

    for name in ("x.jsonl", "x.parquet"):
        with pytest.raises(StoreError), store.snapshot() as snapshot:
            write_file(tmp_path / name, stopping(), "trace", len(ids))
        assert not list(tmp_path.glob(f"*{name}*"))
        own_postgres.start()
    store.close()


@ON_SQLITE_BY_DAY
def test_clients_that_hang_up_hold_no_connection(new_store: Any, tmp_path: Path) -> None:
    store, ids = _large(new_store(), tmp_path, 600)
    with served(traces_application(store, tmp_path)) as service:
        for _ in range(60):  # more than the store has connections
            with socket.create_connection(("127.0.0.1", service.port)) as client:
                client.sendall(b"GET /api/datasets/d-1/export.jsonl HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert client.recv(100)
        whole = service.ask("GET", "/api/datasets/d-1/export.jsonl")
        assert len(whole.body.splitlines()) == len(ids)
        deadline = time.monotonic() + PATIENCE
        while store._engine.pool.checkedout() and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.01)
        assert store._engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    store.close()


@ON_SQLITE_BY_DAY
def test_a_client_that_reads_slowly_gets_one_moment_of_the_store(new_store: Any, tmp_path: Path) -> None:
    store, ids = _large(new_store(), tmp_path, 600)
    with served(traces_application(store, tmp_path)) as service:
        connection = service.connection()
        connection.request("GET", "/api/datasets/d-1/export.jsonl")
        answer = connection.getresponse()
        lines = [answer.readline()]
        with store.writing() as writer:
            writer.delete(ids)  # while most of the answer is still to be read
        lines += answer.readlines()
        assert [json.loads(line)["id"] for line in lines] == ids
        assert service.ask("GET", "/api/datasets/d-1/export.jsonl").headers["x-skipped-deleted"] == str(len(ids))
    store.close()


@ON_SQLITE_BY_DAY
def test_clients_that_take_nothing_stop_nobody_else(new_store: Any, tmp_path: Path) -> None:
    store, _ = _large(new_store(), tmp_path, 600)
    with served(traces_application(store, tmp_path)) as service, ExitStack() as clients:
        answers = []
        for _ in range(CONNECTIONS + 8):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE))
            client.sendall(b"GET /api/datasets/d-1/export.jsonl HTTP/1.1\r\nhost: localhost\r\n\r\n")
            answers.append(client.recv(1000))
        assert sum(one.startswith(b"HTTP/1.1 200") for one in answers) == STREAMS
        refused = [one for one in answers if one.startswith(b"HTTP/1.1 503")]
        assert len(refused) == len(answers) - STREAMS
        assert all(b"retry-after: " in one.lower() for one in refused)
        assert service.ask("GET", "/readyz").status == 200
        assert service.ask("GET", "/api/traces").status == 200
        assert service.ask("POST", "/api/traces", trace(0)).status == 201
    store.close()


@pytest.mark.parametrize("new_store", ["sqlite"], indirect=True)  # what is sent does not depend on the store
def test_a_client_that_takes_nothing_is_given_up(new_store: Any, tmp_path: Path) -> None:
    store, ids = _large(new_store(), tmp_path, 600)
    with served(traces_application(store, tmp_path, send_seconds=0.2)) as service, ExitStack() as clients:
        opened = []
        for _ in range(STREAMS):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE))
            client.sendall(b"GET /api/datasets/d-1/export.jsonl HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
            opened.append(client)
        deadline = time.monotonic() + PATIENCE
        while (whole := service.ask("GET", "/api/datasets/d-1/export.jsonl")).status == 503:
            assert time.monotonic() < deadline
        assert len(whole.body.splitlines()) == len(ids)
        # What was sent, and then the end of the connection: no end of the answer.
        data = b"".join(iter(partial(opened[0].recv, 1 << 20), b""))
        assert not data.endswith(b"0\r\n\r\n")
    store.close()


@ON_SQLITE_BY_DAY
def test_fifty_clients_at_once_get_what_they_ask_for(new_store: Any, tmp_path: Path) -> None:
    store, ids = _large(new_store(), tmp_path, 100)
    with served(traces_application(store, tmp_path)) as service, ThreadPoolExecutor(50) as clients:

        def ask(number: int) -> bool:
            if number % 3 == 0:
                return service.ask("POST", "/api/traces", {**trace(number), "meta": None}).status == 201
            if number % 3 == 1:
                while (export := service.ask("GET", "/api/datasets/d-1/export.jsonl")).status == 503:
                    assert export.headers["retry-after"]
                return len(export.body.splitlines()) == len(ids)
            return service.ask("GET", "/api/traces?limit=100").status == 200

        assert all(clients.map(ask, range(300)))
    store.close()


def test_a_service_whose_store_another_program_locks_says_so_in_two_seconds(tmp_path: Path) -> None:
    path = tmp_path / "traces.sqlite"
    store = open_store(file_url(path), create=True)
    with served(traces_application(store, tmp_path)) as service:
        assert service.ask("GET", "/readyz").status == 200
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            answered = service.ask("GET", "/readyz")
            assert (answered.status, time.monotonic() - began < 2) == (503, True)
            assert "another writer held the store" in answered.json()["detail"]
            assert service.ask("GET", "/healthz").status == 200
            assert service.ask("GET", "/api/traces").status == 200, "readers do not wait for writers"
            other.execute("ROLLBACK")
        assert service.ask("GET", "/readyz").status == 200
    store.close()
