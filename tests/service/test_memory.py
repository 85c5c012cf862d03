"""What a body costs a running service: resident memory, measured in its process, and the size of the answer."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.http_service import Answer, Service
from support.nightly import nightly

FACTOR = 30
"""Bytes of resident memory that a byte of a body may cost."""

ALWAYS = 12 << 20
"""What the first large request of a kind costs beside: threads, pages of the database, buffers of the allocator."""

REFUSED_BYTES = 256 << 10
MIB = 1 << 20
TRACE = {"trace_version": "1", "prompt": "p", "final_answer": "f", "steps": [{"i": 0, "type": "t", "content": "c"}]}


class Server:
    """A `spanloom traces serve` of its own, since memory that was taken once is taken again for nothing."""

    def __init__(self, root: Path, *options: str) -> None:
        command = [sys.executable, "-m", "spanloom", "traces", "serve", "--port", "0", "--root", str(root), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.service = Service(json.loads(self.process.stderr.readline())["port"])
        self.service.ask("POST", "/api/traces", TRACE)

    def asked(self, url: str, body: bytes) -> tuple[Answer, int]:
        """The answer, and by how many bytes the resident memory was higher at its peak than before."""
        proc = Path(f"/proc/{self.process.pid}")
        (proc / "clear_refs").write_text("5")  # the peak begins anew
        before = psutil.Process(self.process.pid).memory_info().rss
        answer = self.service.ask("POST", url, body, {"content-type": "application/json"})
        peak = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmHWM"))
        return answer, int(peak.split()[1]) * 1024 - before

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers: list[Server] = []

    def start(*options: str) -> Server:
        servers.append(Server(tmp_path, *options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def repeated(unit: str, size: int, begin: str = "[", end: str = "]") -> bytes:
    """A list of as many units as fit in a size."""
    return (begin + ",".join([unit] * ((size - len(begin) - len(end)) // (len(unit) + 1))) + end).encode()


def in_meta(unit: str, size: int) -> bytes:
    """A trace that is legal, with such a list in its meta."""
    begin = json.dumps(TRACE)[:-1] + ', "meta": {"a": ['
    return repeated(unit, size, begin, "]}}")


BAD_STEPS = json.dumps({**TRACE, "steps": [{}] * 1000})
CALLS = json.dumps({"id": "a", "assistant_raw": "<|python_tag|>" + "[" + "{}," * 300_000 + "{}]"}) + "\n"
BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a batch of empty objects": ("/api/traces/batch", lambda: repeated("{}", 6 * MIB)),
    "a batch of zeros": ("/api/traces/batch", lambda: repeated("0", 6 * MIB)),
    "a batch of bad traces": ("/api/traces/batch", lambda: repeated(BAD_STEPS, 3 * MIB)),
    "a trace of empty steps": ("/api/traces", lambda: b'{"steps":' + repeated("{}", MIB - 100) + b"}"),
    "a legal meta of empty objects": ("/api/traces", lambda: in_meta("{}", MIB)),
    "a legal meta in a batch": ("/api/traces/batch", lambda: b"[" + in_meta("{}", 8 * MIB) + b"]"),
    "a meta of objects of objects": ("/api/traces/batch", lambda: b"[" + in_meta('{"":{"":{}}}', 8 * MIB) + b"]"),
    "a meta of wide characters": (
        "/api/traces/batch",
        lambda: b"[" + in_meta("{}", 8 * MIB).replace(b"{}", '"\U0001f600"'.encode(), 1) + b"]",
    ),
    "a wide trace": ("/api/traces/batch", lambda: json.dumps([TRACE | {"meta": {"a": "é" * MIB}}] * 4).encode()),
    "ids that are no text": ("/api/tunix/sft/export", lambda: repeated("0", MIB - 100, '{"trace_ids":[', "]}")),
    "ids that are none": ("/api/tunix/sft/export", lambda: repeated('"a"', MIB - 100, '{"trace_ids":[', "]}")),
    "a long path": ("/api/datasets/ingest", lambda: json.dumps({"path": "x" * 900_000, "source_name": "s"}).encode()),
    "provenance": (
        "/api/datasets/build",
        lambda: repeated("{}", MIB - 100, '{"dataset_name":"a","dataset_version":"b","provenance":{"a":[', "]}}"),
    ),
    "deep provenance": (
        "/api/datasets/build",
        lambda: repeated(
            "{}",
            MIB - 1000,
            '{"dataset_name":"a","dataset_version":"b","provenance":{"a":' + "[" * 190,
            "]" * 190 + "}}",
        ),
    ),
    "line feeds": ("/api/toolcalls/validate", lambda: b"\n" * (16 * MIB)),
    "lines of empty objects": ("/api/toolcalls/validate", lambda: b"{}\n" * 199_999),
    "lines of zeros": ("/api/toolcalls/validate", lambda: b"0\n" * 199_999),
    "samples of an id alone": (
        "/api/toolcalls/validate",
        lambda: b"".join(b'{"id":"%07d"}\n' % number for number in range(199_999)),
    ),
    "messages that are none": ("/api/toolcalls/validate", lambda: repeated("0", 8 * MIB, '{"messages":[', "]}")),
    "a batch of samples": (
        "/api/toolcalls/validate",
        lambda: repeated("{}", 8 * MIB, '{"harmful":[],"benign":[', "]}"),
    ),
    "a call of empty objects": ("/api/toolcalls/validate", lambda: CALLS.encode() * 4),
    "a long id": ("/api/toolcalls/validate", lambda: json.dumps({"id": "x" * (8 * MIB)}).encode()),
}
ACCEPTED = {"a legal meta of empty objects", "a legal meta in a batch", "a wide trace", "provenance"}


AT_ONCE = {
    *("a batch of empty objects", "a trace of empty steps", "a legal meta in a batch", "ids that are no text"),
    *("provenance", "line feeds", "a batch of samples"),
}
"""One of each kind of body: a server of its own costs seconds. Nightly tries them all."""


@pytest.mark.parametrize("name", [name if name in AT_ONCE else nightly(name) for name in BODIES])
def test_memory_is_bounded_by_the_body(serve: Serve, name: str) -> None:
    url, make = BODIES[name]
    body = make()
    server = serve()
    answer, growth = server.asked(url, body)
    assert growth <= FACTOR * len(body) + ALWAYS
    assert (answer.status == 201) == (name in ACCEPTED), answer.body[:300]
    assert answer.status < 500
    assert len(answer.body) <= REFUSED_BYTES
