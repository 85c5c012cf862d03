"""A proxy that fails and lies on purpose: between a client and a store it drops connections, holds them, answers in the
store's place, or changes what the store answers.

In: requests to its `address`; and `fault(request)`, which decides about each. Out: the store's answers, or not.
"""

import http.client
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from support.stores import QuietServer


class Fault(Enum):
    UNAVAILABLE = "answers 503; the store hears nothing"
    DROP = "takes the whole request and hangs up; the store hears nothing"
    HALF_REQUEST = "takes half of what is sent and hangs up; the store hears nothing"
    CHANGED_REQUEST = "changes a byte of what is sent"
    LOST_ANSWER = "the store does it, and the client does not hear of it"
    HALF_ANSWER = "hangs up in the middle of the answer"
    CUT_CHUNKS = "sends the answer in chunks and hangs up before the last"
    CHANGED_ANSWER = "changes a byte of the answer"
    SLOW_ANSWER = "sends the body one byte at a time, with pauses"
    SLOW_HEADERS = "sends the headers one byte at a time, with pauses"
    SLOW_REQUEST = "takes what is sent one byte at a time, with pauses; the store hears nothing"
    HOLD = "sets `held` and waits for `go_on`"
    UNCONDITIONAL = "takes the condition of a create-only write out of what is sent"
    NOT_HTTP = "answers with something that is not HTTP"


@dataclass(frozen=True, kw_only=True)
class Request:
    number: int
    method: str
    path: str
    bytes: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def does(self) -> str:
        """`describe`, `read`, `list`, `delete`, or what an upload is made of: `begin`, `send`, `finish`, `ask`."""
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if self.method == "DELETE":
            return "delete"
        if "/storage/v1/b/" in path:
            return self._google(path, query)
        if self.method in ("PUT", "POST"):
            return "begin" if "uploads" in query else "finish" if self.method == "POST" else "send"
        return "describe" if self.method == "HEAD" else "list" if "list-type" in query else "read"

    def _google(self, path: str, query: dict[str, list[str]]) -> str:
        if path.startswith("/upload"):
            if "upload_id" not in query:
                return "begin" if query["uploadType"] == ["resumable"] else "send"
            return "ask" if self.bytes == 0 else "send"
        if "media" in query.get("alt", []):
            return "read"
        return "list" if unquote(path).endswith("/o") else "describe"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`length` is what Content-Length says, None for the truth."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    length: int | None = None


Lie = Fault | Answer | Callable[[Answer], Answer] | None
"""A fault; an answer in the store's place, which hears nothing; or what becomes of the store's answer."""


def without_condition(*does: str) -> Callable[[Request], Lie]:
    """For `fault`: the store hears of no condition in the requests that do this."""
    return lambda request: Fault.UNCONDITIONAL if request.does in does else None


class Proxy:
    """Stands before the store at `upstream` until it is closed; `requests` came, `faults` were done to some of them."""

    def __init__(self, upstream: str, fault: Callable[[Request], Lie] = lambda _request: None) -> None:
        self.fault = fault
        self.requests: list[Request] = []
        self.faults: list[Lie] = []
        self.held, self.go_on = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._server = QuietServer(("127.0.0.1", 0), _handler(self, urlsplit(upstream).netloc))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def came(self, method: str, path: str, size: int, headers: dict[str, str]) -> Lie:
        with self._lock:
            request = Request(number=len(self.requests), method=method, path=path, bytes=size, headers=headers)
            self.requests.append(request)
            fault = self.fault(request)
            if fault is not None:
                self.faults.append(fault)
        return fault


def every(count: int, *faults: Lie) -> Callable[[Request], Lie]:
    """Every `count`-th request meets the next of the faults, in turn, for ever."""
    return lambda request: (
        faults[request.number // count % len(faults)] if request.number % count == count - 1 else None
    )


def when(does: str, fault: Lie, times: int | None = None) -> Callable[[Request], Lie]:
    """Requests that do this meet the fault: the first `times` of them, or all."""
    met: list[Request] = []

    def decide(request: Request) -> Lie:
        if request.does != does or len(met) == times:
            return None
        met.append(request)
        return fault

    return decide


def _handler(proxy: Proxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            fault = proxy.came(self.command, self.path, size, dict(self.headers))
            if fault is Fault.HALF_REQUEST:
                self.rfile.read(size // 2)
                return self._hang_up()
            if fault is Fault.SLOW_REQUEST:
                while not proxy.go_on.wait(0.02):
                    self.rfile.read(1)
                return self._hang_up()
            body = self.rfile.read(size)
            if fault is Fault.DROP:
                return self._hang_up()
            if fault is Fault.NOT_HTTP:
                self.wfile.write(b"220 mail.example.com ESMTP\r\n")
                return self._hang_up()
            if fault is Fault.HOLD:
                proxy.held.set()
                proxy.go_on.wait()
                return self._hang_up()
            if fault is Fault.UNAVAILABLE:
                fault = Answer(status=503, data=b"try again")
            if isinstance(fault, Answer):
                return self._answer(fault)
            if fault is Fault.CHANGED_REQUEST and body:
                at = len(body) // 2
                body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
            answer = self._upstream(body, conditional=fault is not Fault.UNCONDITIONAL)
            if fault is Fault.LOST_ANSWER:
                return self._hang_up()
            if callable(fault):
                return self._answer(fault(answer))
            if fault is Fault.CHANGED_ANSWER and answer.data:
                changed = answer.data[:-1] + bytes([answer.data[-1] ^ 1])
                answer = Answer(status=answer.status, headers=answer.headers, data=changed)
            return self._answer(answer, fault)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

        def _upstream(self, body: bytes, *, conditional: bool) -> Answer:
            store = http.client.HTTPConnection(upstream)
            path, headers = self.path, dict(self.headers)
            if not conditional:
                path = path.replace("&ifGenerationMatch=0", "")
                headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
            store.request(self.command, path, body, headers)
            answer = store.getresponse()
            data = answer.read()
            store.close()
            headers = {key: value for key, value in answer.getheaders() if key.lower() not in _FRAMING}
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
            return Answer(status=answer.status, headers=headers, data=data, length=None if size is None else int(size))

        def _answer(self, answer: Answer, fault: Fault | None = None) -> None:
            data = b"" if self.command == "HEAD" else answer.data
            self.send_response_only(answer.status)
            for key, value in answer.headers.items():
                self.send_header(key, value)
            if fault is Fault.CUT_CHUNKS:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(len(data) if answer.length is None else answer.length))
            if fault is Fault.SLOW_HEADERS:
                head = b"".join(self._headers_buffer)
                self._headers_buffer = []
                self._slowly(head + b"X-Slow: " + bytes(60_000))
                return
            self.end_headers()
            if fault is Fault.SLOW_ANSWER:
                self._slowly(data)
                return
            if fault is Fault.CUT_CHUNKS:
                half = data[: len(data) // 2]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(half), half) if half else b"")
            else:
                self.wfile.write(data[: len(data) // 2] if fault is Fault.HALF_ANSWER else data)
            if fault in (Fault.HALF_ANSWER, Fault.CUT_CHUNKS) or (answer.length or 0) > len(data):
                self._hang_up()

        def _slowly(self, data: bytes) -> None:
            for at in range(len(data)):
                self.wfile.write(data[at : at + 1])
                if proxy.go_on.wait(0.02):
                    break
            self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    return Handler


_FRAMING = ("connection", "transfer-encoding", "content-length")
