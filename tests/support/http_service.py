"""An ASGI application served by uvicorn in a thread of the test, and plain requests to it.

In: an application. Out: answers as status, headers, body; connections for requests that go wrong on purpose.
"""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from spanloom.service.connections import timed_protocol
from spanloom.service.defaults import HEADER_SECONDS


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Service:
    """A running service."""

    port: int

    def connection(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """`body`: bytes as they are, an iterator of bytes in chunks, anything else as JSON."""
        if body is not None and not isinstance(body, bytes | Iterator):
            body = json.dumps(body).encode()
        connection = self.connection()
        try:
            # What is sent is in the request line as it is given: no client tidies `..` away.
            connection.putrequest(method, url, skip_accept_encoding=True)
            for name, value in {"content-type": "application/json", **(headers or {})}.items():
                connection.putheader(name, value)
            if isinstance(body, Iterator):
                connection.putheader("transfer-encoding", "chunked")
                connection.endheaders(body, encode_chunked=True)
            else:
                connection.putheader("content-length", str(len(body or b"")))
                connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@contextmanager
def served(app: Any, *, header_seconds: float = HEADER_SECONDS) -> Iterator[Service]:
    """The application on a free port, until the block ends. `header_seconds`: see `spanloom.service.connections`."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(512)
        config = uvicorn.Config(
            app, http=timed_protocol(header_seconds), log_config=None, access_log=False, lifespan="off"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield Service(listening.getsockname()[1])
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()
