"""What every service has around its routes: tokens, limits, ids, logs, metrics, errors, streams that break."""

import http.client
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from spanloom.errors import SpanloomError, StorageError
from spanloom.service.access import TOKEN_VARIABLE, check_address, read_token
from spanloom.service.application import Guards, create_application
from spanloom.service.limits import BodyLimit
from spanloom.service.observed import LOGGER, JsonLines
from spanloom.service.streaming import HeldStream
from support.http_service import Answer, Service, served

SECRET = "do-not-log-this"


PATIENCE = 60.0
"""Seconds to wait for what comes just after an answer has; reached only when a test fails."""


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert true()


class Body(BaseModel):
    text: str


class Many(BaseModel):
    numbers: list[int]


class Held:
    """What a stream holds open."""

    closed = 0

    def close(self) -> None:
        type(self).closed += 1


def routes() -> APIRouter:
    router = APIRouter()

    @router.post("/echo")
    def echo(body: Body) -> dict[str, int]:
        return {"characters": len(body.text)}

    @router.post("/many")
    def many(body: Many) -> int:
        return len(body.numbers)

    @router.get("/long")
    def long() -> None:
        raise StorageError("\U0001f600" * 1_000_000)

    @router.get("/refused")
    def refused() -> None:
        raise StorageError("the disk is full", where="/somewhere")

    @router.get("/unknown")
    def unknown() -> None:
        raise SpanloomError(f"no status for {SECRET}")

    @router.get("/broken")
    def broken() -> None:
        raise RuntimeError(SECRET)

    @router.get("/stream/{lines}")
    def stream(lines: int) -> Response:
        def made() -> Iterator[bytes]:
            for number in range(lines):
                yield b"x" * 1000 + b"\n"
                if number == 500:
                    raise StorageError("gone")

        stack = ExitStack()
        stack.callback(Held().close)
        return HeldStream(made(), stack, headers={"x-a": "b"}, media_type="application/x-ndjson")

    return router


Serve = Callable[..., Service]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(**options: Any) -> Service:
            given: dict[str, Any] = {
                "ready": lambda: None,
                "limits": [BodyLimit(path="/echo", max_bytes=100)],
                **options,
            }
            app = create_application(title="t", version="1", routers=[routes()], statuses={StorageError: 507}, **given)
            return stack.enter_context(served(app))

        yield start


def test_a_token_is_asked_of_all_but_probes(serve: Serve) -> None:
    service = serve(token="right")
    for given in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "right"},
        {"authorization": "Bearer righty"},
    ):
        answer = service.ask("GET", "/openapi.json", headers=given)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert service.ask("GET", "/openapi.json", headers={"authorization": "Bearer right"}).status == 200
    assert service.ask("GET", "/metrics").status == 401
    assert service.ask("GET", "/healthz").status == 200
    assert service.ask("GET", "/readyz").status == 200


def test_errors_have_a_status_or_say_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> None:
        raise StorageError("the disk is gone")

    service = serve(ready=failing)
    refused = service.ask("GET", "/refused")
    assert (refused.status, refused.json()) == (507, {"detail": "the disk is full"})
    with caplog.at_level(logging.ERROR):
        for url in ("/unknown", "/broken"):
            answer = service.ask("GET", url)
            assert (answer.status, answer.json()) == (500, {"detail": "Internal error"})
    lines = [JsonLines().format(record) for record in caplog.records if record.name == LOGGER]
    assert len(lines) == 2
    assert not any(SECRET in line for line in lines)
    assert json.loads(lines[1])["error"] == "RuntimeError"
    assert (service.ask("GET", "/readyz").status, service.ask("GET", "/healthz").status) == (503, 200)


def test_no_line_of_the_log_shows_a_password() -> None:
    record = logging.makeLogRecord({"msg": f"at postgresql://h/d?password={SECRET}", "levelname": "INFO"})
    record.said = {"serves": f"traces of postgresql://u:{SECRET}@h/d", "port": 1}
    line = JsonLines().format(record)
    assert SECRET not in line
    assert json.loads(line)["serves"] == "traces of postgresql://u:***@h/d"


def test_a_request_leaves_one_line_without_what_it_sent(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    service = serve()
    with caplog.at_level(logging.INFO, logger=LOGGER):
        service.ask("POST", f"/echo?q={SECRET}", {"text": SECRET}, {"x-request-id": "mine", "authorization": SECRET})
        until(lambda: any(record.name == LOGGER for record in caplog.records))
    (line,) = [JsonLines().format(record) for record in caplog.records if record.name == LOGGER]
    assert SECRET not in line
    said = json.loads(line)
    assert (said["request_id"], said["method"], said["route"], said["status"]) == ("mine", "POST", "/echo", 200)
    assert said["received_bytes"] == len(json.dumps({"text": SECRET}))
    assert said["whole"] is True


def test_bodies_above_their_limit_are_refused_however_they_come(serve: Serve) -> None:
    service = serve()
    fits = json.dumps({"text": "x" * 80}).encode()
    assert len(fits) <= 100
    assert service.ask("POST", "/echo", fits).json() == {"characters": 80}
    for body in (b"x" * 101, iter([b"x" * 60] * 2)):
        answer = service.ask("POST", "/echo", body)
        assert (answer.status, answer.json()) == (413, {"detail": "Payload size exceeds maximum of 100 bytes"})


def test_a_stream_that_breaks_is_no_whole_answer_and_lets_go(serve: Serve) -> None:
    service = serve()
    Held.closed = 0
    whole = service.ask("GET", "/stream/400")
    assert (len(whole.body), whole.headers["content-type"], whole.headers["x-a"]) == (
        400_400,
        "application/x-ndjson",
        "b",
    )
    until(lambda: Held.closed == 1)
    with pytest.raises(http.client.IncompleteRead):
        service.ask("GET", "/stream/1000")
    until(lambda: Held.closed == 2)
    until(lambda: b"spanloom_http_broken_total 1.0" in service.ask("GET", "/metrics").body)
    assert b'route="/stream/{lines}"' in service.ask("GET", "/metrics").body


def test_few_errors_are_told_of_many(serve: Serve) -> None:
    detail = serve().ask("POST", "/many", {"numbers": ["x"] * 50}).json()["detail"]
    assert [one["loc"] for one in detail[:20]] == [["body", "numbers", number] for number in range(20)]
    assert detail[20:] == [{"type": "more_errors", "loc": ["body"], "msg": "30 more errors"}]


def test_a_long_error_is_told_in_part(serve: Serve) -> None:
    answer = serve().ask("GET", "/long")
    assert answer.status == 507
    assert answer.json()["detail"] == "\U0001f600" * 16_384 + "… (983,616 more characters)"
    assert len(answer.body) < 256 << 10


def test_bodies_of_all_requests_have_a_total(serve: Serve) -> None:
    service = serve(guards=Guards(bodies_bytes=150), limits=[BodyLimit(path="/echo", max_bytes=1000)])
    body = json.dumps({"text": "x" * 80}).encode()
    with closing(service.connection()) as first:
        first.putrequest("POST", "/echo")
        first.putheader("content-type", "application/json")
        first.putheader("content-length", str(len(body)))
        first.endheaders(body[:-1])
        until(lambda: service.ask("POST", "/echo", body).status == 503)
        refused = service.ask("POST", "/echo", body)
        assert refused.headers["retry-after"] == "1"
        assert "too large together" in refused.json()["detail"]
        assert service.ask("POST", "/echo", {"text": "small"}).status == 200
        first.send(body[-1:])
        assert first.getresponse().status == 200
    assert service.ask("POST", "/echo", body).status == 200
    assert service.ask("POST", "/echo", b"x" * 151).status == 413


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]:8000", "localhost."])
def test_names_of_this_machine_are_answered(serve: Serve, host: str) -> None:
    assert asked_as(serve(), host).status == 200


FOREIGN = "evil.example evil.example:80 127.0.0.1.evil.example localhost.evil 10.0.0.1 0.0.0.0 [::2] ::1"
GARBLED = "a@localhost localhost/x localhost:x"


@pytest.mark.parametrize("host", ["", *FOREIGN.split(), *GARBLED.split()])
def test_a_page_whose_name_leads_here_gets_nothing(serve: Serve, host: str) -> None:
    service = serve()
    for method, url in (("GET", "/openapi.json"), ("GET", "/healthz"), ("POST", "/echo"), ("DELETE", "/echo")):
        answer = asked_as(service, host, method, url)
        assert (answer.status, "--allowed-host" in answer.json()["detail"]) == (403, True)


def test_hosts_that_are_allowed_and_hosts_with_a_token(serve: Serve) -> None:
    allowing = serve(guards=Guards(allowed_hosts=["Data.Example"]))
    assert asked_as(allowing, "data.example:8000").status == 200
    assert asked_as(allowing, "localhost").status == 200
    assert asked_as(allowing, "other.example").status == 403
    with_token = serve(token="right")
    assert asked_as(with_token, "other.example", url="/echo").status == 401
    assert asked_as(with_token, "other.example", more={"authorization": "Bearer right"}).status == 200


def asked_as(
    service: Service, host: str, method: str = "GET", url: str = "/healthz", more: dict[str, str] | None = None
) -> Answer:
    """The answer to a request that names a host, as a page of that host would have a browser send it."""
    with closing(service.connection()) as connection:
        connection.putrequest(method, url, skip_host=True)
        for name, value in {"host": host, "origin": f"http://{host}", **(more or {})}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())


def test_without_a_token_only_this_machine_is_listened_to() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_address(host, None)
    check_address("0.0.0.0", "token")
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        with pytest.raises(SpanloomError, match="without a token"):
            check_address(host, None)


def test_where_a_token_comes_from(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    file = tmp_path / "token"
    file.write_text("abc\n")
    assert read_token(file) == "abc"
    monkeypatch.setenv(TOKEN_VARIABLE, "def")
    assert read_token(None) == "def"
    for wrong in ("", "\n", "a b", "ü", "a\x00b"):
        file.write_text(wrong)
        with pytest.raises(SpanloomError):
            read_token(file)
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("none", "No such file"), ("fifo", "no regular file")):
        with pytest.raises(SpanloomError, match=rf"{why}[^?]*remedy"):
            read_token(tmp_path / name)
