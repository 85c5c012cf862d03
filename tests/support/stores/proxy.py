"""A proxy that fails on purpose: between a client and a store it drops connections, answers 503, or holds a request.

In: requests to its `address`; and `fault(request)`, which decides about each. Out: the store's answers, or not.
"""

import http.client
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from support.stores import QuietServer


class Fault(Enum):
    UNAVAILABLE = "answers 503; the store hears nothing"
    HALF_REQUEST = "takes half of what is sent and hangs up; the store hears nothing"
    LOST_ANSWER = "the store does it, and the client does not hear of it"
    HALF_ANSWER = "hangs up in the middle of the answer"
    CHANGED_ANSWER = "changes a byte of the answer"
    HOLD = "sets `held` and waits for `go_on`"


@dataclass(frozen=True, kw_only=True)
class Request:
    number: int
    method: str
    path: str
    bytes: int


class Proxy:
    """Stands before the store at `upstream` until it is closed; `requests` came, `faults` were done to some of them."""

    def __init__(self, upstream: str, fault: Callable[[Request], Fault | None] = lambda _request: None) -> None:
        self.fault = fault
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.held, self.go_on = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._server = QuietServer(("127.0.0.1", 0), _handler(self, urlsplit(upstream).netloc))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def came(self, method: str, path: str, size: int) -> Fault | None:
        with self._lock:
            request = Request(number=len(self.requests), method=method, path=path, bytes=size)
            self.requests.append(request)
            fault = self.fault(request)
            if fault is not None:
                self.faults.append(fault)
        return fault


def every(count: int, *faults: Fault) -> Callable[[Request], Fault | None]:
    """Every `count`-th request meets the next of the faults, in turn, for ever."""
    return lambda request: (
        faults[request.number // count % len(faults)] if request.number % count == count - 1 else None
    )


def _handler(proxy: Proxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            fault = proxy.came(self.command, self.path, size)
            if fault is Fault.HALF_REQUEST:
                self.rfile.read(size // 2)
                return self._hang_up()
            body = self.rfile.read(size)
            if fault is Fault.UNAVAILABLE:
                return self._answer(503, [], b"try again")
            if fault is Fault.HOLD:
                proxy.held.set()
                proxy.go_on.wait()
                return self._hang_up()
            store = http.client.HTTPConnection(upstream)
            store.request(self.command, self.path, body, dict(self.headers))
            answer = store.getresponse()
            data = answer.read()
            store.close()
            if fault is Fault.LOST_ANSWER:
                return self._hang_up()
            if fault is Fault.CHANGED_ANSWER and data:
                data = data[:-1] + bytes([data[-1] ^ 1])
            return self._answer(answer.status, answer.getheaders(), data, half=fault is Fault.HALF_ANSWER)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

        def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, half: bool = False) -> None:
            self.send_response_only(status)
            for key, value in headers:
                if key.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(key, value)
            told = {key.lower(): value for key, value in headers}.get("content-length")
            self.send_header("Content-Length", told if self.command == "HEAD" and told else str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if half else data)
            if half:
                self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    return Handler
