"""A service under load: a few bodies are worked on at once, a bounded number waits, and probes are answered."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from spanloom.service import application, limits, work
from spanloom.service.answers import answer
from spanloom.service.application import create_application
from spanloom.service.limits import BodyLimit
from spanloom.service.work import with_model, worked
from support.http_service import Service, served

LIMIT = 100_000


class Body(BaseModel):
    text: str


class Gate:
    """What work waits for; `most`: the largest number that was at work at the same time."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.now = self.most = 0

    def pass_through(self, *_: Any) -> Response:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.open.wait(60)
        with self.lock:
            self.now -= 1
        return answer({"done": True})


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def service(gate: Gate) -> Iterator[Service]:
    router = APIRouter()

    @router.post("/work")
    async def waits(request: Request) -> Response:
        return await worked(request, gate.pass_through, await request.body())

    @router.post("/length")
    async def length(request: Request) -> Response:
        return await with_model(request, Body, lambda body: answer({"characters": len(body.text)}))

    def ready() -> None:
        gate.open.wait(60)

    limits = [BodyLimit(path=r"/length/?", max_bytes=LIMIT)]
    app = create_application(title="t", version="1", routers=[router], statuses={}, ready=ready, limits=limits)
    with served(app) as service:
        yield service


def test_two_are_at_work_as_many_wait_as_may_and_the_next_is_told_to_come_again(
    service: Service, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "WAITING", 3)
    with ThreadPoolExecutor(9) as clients:
        asked = [clients.submit(service.ask, "POST", "/work", b"x") for _ in range(9)]
        deadline = time.monotonic() + 60
        while sum(each.done() for each in asked) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        refused = [each.result() for each in asked if each.done()]
        assert [(each.status, each.headers["retry-after"]) for each in refused] == [(503, "1")] * 4
        assert service.ask("GET", "/healthz").status == 200
        gate.open.set()
        assert sorted(each.result().status for each in asked) == [200] * 5 + [503] * 4
    assert gate.most == work.THREADS


def test_readiness_does_not_wait_for_what_does_not_answer(service: Service, gate: Gate) -> None:
    for _ in range(2):  # the thread of the first question still waits at the second
        began = time.monotonic()
        answered = service.ask("GET", "/readyz")
        assert answered.status == 503
        assert time.monotonic() - began < 2
    assert f"{application.READY_SECONDS:g} s" in answered.json()["detail"]
    gate.open.set()
    assert service.ask("GET", "/readyz").status == 200


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_probes_may_ask_for_the_head_alone(service: Service, path: str) -> None:
    answered = service.ask("HEAD", path)
    assert (answered.status, answered.body) == (200, b"")
    assert service.ask("GET", path).status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_slash_at_the_end_is_no_other_path(service: Service, method: str) -> None:
    if method == "GET":
        assert service.ask("GET", "/healthz/").status == 200
    else:
        assert service.ask("POST", "/length/", {"text": "abc"}).json() == {"characters": 3}
    assert service.ask("POST", "/length/", {"text": "a" * LIMIT}).status == 413


def test_a_gzip_body_is_the_body_that_it_stands_for(service: Service) -> None:
    encoded = {"content-encoding": "gzip"}
    body = gzip.compress(b'{"text": "' + b"a" * 50_000 + b'"}')
    assert len(body) < 1000
    assert service.ask("POST", "/length", body, encoded).json() == {"characters": 50_000}
    pieces = iter([body[at : at + 7] for at in range(0, len(body), 7)])
    assert service.ask("POST", "/length", pieces, encoded).json() == {"characters": 50_000}


@pytest.mark.parametrize("size", [7, 100_000])
def test_a_gzip_body_of_several_files_is_read_to_its_end(service: Service, size: int) -> None:
    body = gzip.compress(b'{"text": "') + gzip.compress(b"") + gzip.compress(b"a" * 50_000) + gzip.compress(b'"}')
    pieces = iter([body[at : at + size] for at in range(0, len(body), size)])
    assert service.ask("POST", "/length", pieces, {"content-encoding": "gzip"}).json() == {"characters": 50_000}


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (lambda: gzip.compress(bytes(1 << 26)), "gzip", 413),  # made in the test: it takes a while
        (b'{"text": "abc"}', "gzip", 400),
        (gzip.compress(b'{"text": "abc"}')[:-9], "gzip", 400),
        (gzip.compress(b'{"text": "abc"}') + b"{}", "gzip", 400),
        (gzip.compress(b'{"text": "abc"}') + gzip.compress(b"")[:-1], "gzip", 400),
        (gzip.compress(b"") * limits.MEMBERS + gzip.compress(b'{"text": "abc"}'), "gzip", 400),
        (b'{"text": "abc"}', "br", 415),
    ],
    ids=[
        *("64 megabytes in 65 kilobytes", "no gzip", "torn", "more after it"),
        *("a torn second", "many", "another encoding"),
    ],
)
def test_an_encoded_body_that_cannot_be_taken_is_a_mistake_of_the_client(
    service: Service, body: bytes | Callable[[], bytes], encoding: str, status: int
) -> None:
    sent = body() if callable(body) else body
    assert service.ask("POST", "/length", sent, {"content-encoding": encoding}).status == status
    assert service.ask("POST", "/length", {"text": "abc"}).json() == {"characters": 3}


@pytest.mark.parametrize(
    ("body", "status", "place"),
    [(b"", 422, ["body"]), (b"{", 422, ["body", 1]), (b'{"text": 1}', 422, ["body", "text"]), (b"[]", 422, ["body"])],
)
def test_a_body_that_is_no_model_says_where(service: Service, body: bytes, status: int, place: list[Any]) -> None:
    answered = service.ask("POST", "/length", body)
    assert (answered.status, answered.json()["detail"][0]["loc"]) == (status, place)
