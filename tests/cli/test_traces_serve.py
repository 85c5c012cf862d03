"""`spanloom traces serve` as a process: where it listens, what it says, how it ends."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Cli
from support import warm
from support.http_service import Service

TRACE = {
    "trace_version": "1.0",
    "prompt": "a secret prompt",
    "final_answer": "a",
    "steps": [{"i": 0, "type": "t", "content": "c"}],
}


def start(root: Path, *more: str, **environment: str) -> warm.Piped:
    words = ("traces", "serve", "--port", "0", "--root", root, *more)
    return warm.piped("spanloom", *words, env={**os.environ, **environment})


def test_it_serves_logs_and_ends(tmp_path: Path) -> None:
    process = start(tmp_path, SPANLOOM_SERVICE_TOKEN="t0ken")
    said = json.loads(process.stderr.readline())
    service = Service(said["port"])
    bearer = {"authorization": "Bearer t0ken"}
    assert service.ask("POST", "/api/traces", TRACE).status == 401
    assert service.ask("POST", "/api/traces", TRACE, bearer).status == 201
    assert service.ask("GET", "/readyz").status == 200
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    assert process.wait() in (0, -signal.SIGTERM)
    lines: list[dict[str, Any]] = [json.loads(line) for line in rest.splitlines()]
    assert [line["status"] for line in lines if line["message"] == "request"] == [401, 201, 200]
    assert "secret" not in rest
    assert "t0ken" not in rest
    assert (tmp_path / "traces.sqlite").is_file()


def test_its_limits_are_options(tmp_path: Path) -> None:
    options = ("--allowed-host", "data.example", "--header-seconds", "0.5", "--bodies-max-bytes", "2048")
    process = start(tmp_path, *options, "--body-seconds", "0.5")
    try:
        service = Service(json.loads(process.stderr.readline())["port"])
        with closing(socket.create_connection(("127.0.0.1", service.port), timeout=60)) as half:
            half.sendall(b"GET / HTTP/1.1\r\n")
            assert half.recv(1) == b""
        with closing(socket.create_connection(("127.0.0.1", service.port), timeout=60)) as slow:
            slow.sendall(b"POST /api/traces HTTP/1.1\r\nHost: data.example\r\nContent-Length: 9\r\n\r\n")
            assert slow.recv(65536).startswith(b"HTTP/1.1 408")
        assert service.ask("POST", "/api/traces", {**TRACE, "prompt": "x" * 2048}).status == 413
        assert service.ask("POST", "/api/traces", TRACE).status == 201
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("options", "told"), [(("--host", "0.0.0.0"), "without a token"), (("--token-file", "none"), "cannot be read")]
)
def test_it_refuses_to_be_open_to_others(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    process = start(tmp_path, *options)
    assert told in process.stderr.read()
    assert process.wait() == 1


def test_the_commands_of_the_familys_page_work_one_after_the_other(cli: Cli, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/families/traces.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```console\n")[1:3]]
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert len(commands) == 8
    for line in commands:
        program, *words = shlex.split(line)
        assert program == ".venv/bin/spanloom"
        done = cli(*words, cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    assert (tmp_path / "data/sums_tokens/manifest.json").is_file()
    assert len((tmp_path / "data/sums.jsonl").read_bytes().splitlines()) == 10


def test_an_export_may_be_cut_off_by_its_reader(tmp_path: Path) -> None:
    from spanloom.families.traces.build import BuildRequest, build_dataset
    from spanloom.families.traces.store.ingest import add_traces
    from spanloom.families.traces.store.opening import default_url, open_store
    from spanloom.families.traces.trace import Trace

    store = open_store(default_url(tmp_path), create=True)
    add_traces(store, [Trace.model_validate({**TRACE, "prompt": "x" * 10_000})] * 500)
    build_dataset(store, tmp_path, BuildRequest(dataset_name="d", dataset_version="1", limit=1000))
    store.close()
    for arguments in ("export d-1", "list --json --limit 10000"):
        command = f"{sys.executable} -m spanloom traces {arguments} --root {tmp_path} | head -n 1"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        assert len(done.stdout.splitlines()) == 1
        assert done.stderr == ""
    full = f"{sys.executable} -m spanloom traces export d-1 --root {tmp_path} > /dev/full"
    done = subprocess.run(full, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert "where: stdout" in done.stderr
