"""Clients that are slow or lie: their connections end. Deadlines are small here, and no time is asserted."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from spanloom.service import connections, limits
from spanloom.service.application import Guards, create_application
from spanloom.service.limits import BodyLimit
from support.http_service import Service, served

PATIENCE = 60.0
"""Seconds; reached only where a connection is held without end."""

HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Body(BaseModel):
    text: str


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    router = APIRouter()

    @router.post("/echo")
    def echo(body: Body) -> dict[str, int]:
        return {"characters": len(body.text)}

    @router.get("/long")
    def long() -> Response:
        return Response(b"x" * (32 << 20))  # more than the buffers of two sockets hold

    @router.get("/unread")
    def unread() -> str:
        return "x"

    application: Any = create_application(
        title="t",
        version="1",
        routers=[router],
        statuses={},
        ready=lambda: None,
        limits=[BodyLimit(path="/echo", max_bytes=1000)],
        guards=Guards(body_seconds=0.5),
    )
    with served(application, header_seconds=0.5) as running:
        yield running


def connected(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)


def all_that_comes(connection: socket.socket) -> bytes:
    """What is received until the other side ends the connection. Raises TimeoutError where it does not."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("begin", [b"", b"P", b"GET /healthz HTTP/1.1\r\nHost: local", HEAD])
def test_a_head_that_does_not_come_ends_the_connection(service: Service, begin: bytes) -> None:
    with closing(connected(service)) as connection:
        connection.sendall(begin)
        assert all_that_comes(connection) == b""


def test_a_head_that_trickles_ends_too(service: Service) -> None:
    with closing(connected(service)) as connection:
        connection.settimeout(0.05)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        ended = False
        for _ in range(int(PATIENCE / 0.05)):
            try:
                connection.sendall(b"a: b\r\n")
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            break
        assert ended


def test_a_second_head_has_the_same_time(service: Service) -> None:
    with closing(connected(service)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n")
        assert all_that_comes(connection).count(b"200 OK") == 1


def test_many_half_requests_end_and_others_are_answered(service: Service) -> None:
    connections = [connected(service) for _ in range(200)]
    for connection in connections:
        connection.sendall(HEAD)
    assert service.ask("GET", "/healthz").status == 200
    for connection in connections:
        assert all_that_comes(connection) == b""
        connection.close()


@pytest.fixture
def _short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """For bodies of which nothing more comes: the service waits for no rest."""
    monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.2)


@pytest.mark.usefixtures("_short_drain")
def test_a_length_above_the_limit_is_refused_at_the_header(service: Service) -> None:
    with closing(connected(service)) as connection:
        connection.sendall(HEAD + b"Content-Length: 10000000000\r\n\r\n")
        answer = connection.recv(65536)  # no byte of the body was sent
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"Payload size exceeds maximum of 1000 bytes" in answer + all_that_comes(connection)


def test_a_refused_body_may_be_sent_on(service: Service) -> None:
    # A client that reads only when it has sent all finds the answer.
    answer = service.ask("POST", "/echo", b"x" * (8 << 20))
    assert answer.status == 413
    answer = service.ask("POST", "/echo", iter([b"x" * 65536] * 128))
    assert answer.status == 413


@pytest.mark.usefixtures("_short_drain")
def test_a_body_that_does_not_come_is_refused(service: Service) -> None:
    with closing(connected(service)) as connection:
        connection.sendall(HEAD + b'Content-Length: 900\r\n\r\n{"text": "')
        answer = all_that_comes(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"The body did not come in" in answer


def test_a_body_that_nothing_reads_ends_the_connection(service: Service) -> None:
    with closing(connected(service)) as connection:
        connection.sendall(b"GET /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nx")
        assert b"200 OK" in all_that_comes(connection)


def test_an_answer_that_is_not_taken_is_given_up(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()
    end = connections.TimedProtocol.connection_lost

    def connection_lost(protocol: connections.TimedProtocol, fault: Exception | None) -> None:
        end(protocol, fault)
        lost.set()

    monkeypatch.setattr(connections, "TAKEN_SECONDS", 0.2)
    monkeypatch.setattr(connections.TimedProtocol, "connection_lost", connection_lost)
    with closing(connected(service)) as connection:
        connection.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert lost.wait(PATIENCE)


def test_a_body_in_time_is_answered(service: Service) -> None:
    body = json.dumps({"text": "abc"}).encode()
    with closing(connected(service)) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
        connection.sendall(body)
        assert b'{"characters":3}' in all_that_comes(connection)
