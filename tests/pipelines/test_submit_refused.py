"""`make submit` against servers that do not create a run: exit 1, a message with a remedy; and the login."""

import io
import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from pipelines.submit import main
from support.certificates import Authority

PIPELINE = REPOSITORY / "pipelines/synth_kd.yaml"
API = "/apis/v2beta1"
RUN = ("source_uri=gs://b/source", "dataset_root=gs://b/kd")
LOGIN_PAGE = b"<!DOCTYPE html><html><head><title>Log in to Your Account</title></head></html>"


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


def in_json(value: dict[str, Any]) -> Reply:
    return Reply(body=json.dumps(value).encode(), headers={"Content-Type": "application/json"})


HEALTHY = {
    f"{API}/healthz": in_json({"multi_user": False}),
    f"{API}/experiments": in_json({"experiment_id": "e-1", "display_name": "spanloom"}),
    f"{API}/runs": in_json({"run_id": "r-1", "experiment_id": "e-1"}),
}


class Server(ThreadingHTTPServer):
    """Answers by path; a path that is not among them gets `other`. `requests` has (method, path, headers, body)."""

    daemon_threads = True

    def __init__(self, replies: dict[str, Reply], other: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies, self.other = replies, other
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.scheme = "http"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _handle(self) -> None:
        path = self.path.split("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, path, headers, body))
        reply = self.server.replies.get(path, self.server.other)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_POST = _handle

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(
    replies: dict[str, Reply] | None = None, other: Reply | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    server = Server(replies or {}, other or Reply(status=404))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Ended:
    """How the command ended: its exit code, what it printed, and the message of its error."""

    code: int
    output: str
    message: str


def submit(endpoint: str, *words: str) -> Ended:
    """The command in this process: an exception that is no exit fails the test. A fresh process takes seconds."""
    output, before = io.StringIO(), sys.argv
    sys.argv = ["submit", "--endpoint", endpoint, "--pipeline", str(PIPELINE), *words, *RUN]
    try:
        with redirect_stdout(output):
            main()
    except SystemExit as exit_:  # with a text: Python prints it to stderr and exits with 1
        return Ended(1 if isinstance(exit_.code, str) else int(exit_.code or 0), output.getvalue(), str(exit_.code))
    finally:
        sys.argv = before
    return Ended(0, output.getvalue(), "")


def refused(endpoint: str, *words: str) -> str:
    """The message of a submit that fails before anything is sent: with a remedy, and nothing on stdout."""
    ended = submit(endpoint, *words)
    assert (ended.code, ended.output) == (1, "")
    assert ended.message.startswith("error: ")
    assert "\n  remedy: " in ended.message
    return ended.message


@pytest.mark.parametrize(
    "page",
    [
        Reply(body=LOGIN_PAGE, headers={"Content-Type": "text/html"}),
        Reply(status=302, headers={"Location": "/dex/auth?client_id=kubeflow-oidc-authservice"}),
    ],
    ids=["page", "redirect"],
)
def test_a_login_page_is_no_run(page: Reply) -> None:
    with serving(other=page) as server:
        message = refused(server.address)
        assert "login page" in message
        assert "--token-file" in message
        assert "--cookie-file" in message
        assert ("Log in to Your Account" in message) != ("/dex/auth" in message)
        assert [(method, path) for method, path, _, _ in server.requests] == [("GET", f"{API}/healthz")]


def test_a_login_page_in_place_of_the_run_alone_is_no_run() -> None:
    """The session ends between two requests."""
    page = Reply(body=LOGIN_PAGE, headers={"Content-Type": "text/html"})
    with serving({**HEALTHY, f"{API}/runs": page}) as server:
        done = submit(server.address)
    assert done.code == 1
    assert "error: the API answered without a run id" in done.message
    assert "None" not in done.message


@pytest.mark.parametrize("path", ["healthz", "runs"])
@pytest.mark.parametrize("status", [401, 403])
def test_no_permission(status: int, path: str) -> None:
    refusal = Reply(status=status, body=b'{"error": "RBAC: access denied"}')
    with serving({**HEALTHY, f"{API}/{path}": refusal}) as server:
        done = submit(server.address)
    assert done.code == 1
    assert f"refused with HTTP {status}" in done.message
    assert "RBAC: access denied" in done.message
    assert "--token-file" in done.message
    assert "--namespace" in done.message


def test_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        message = refused(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert "does not answer" in message
    assert "port-forward" in message


@pytest.mark.parametrize("endpoint", ["localhost:8080", "ftp://localhost", "http://"])
def test_an_endpoint_that_is_no_address(endpoint: str) -> None:
    assert "with http:// or https://" in refused(endpoint)


def test_another_server() -> None:
    with serving(other=Reply(status=404, body=b"no such page")) as server:
        message = refused(server.address)
    assert "HTTP 404" in message
    assert "--endpoint" in message


def test_several_users_and_no_namespace() -> None:
    with serving({**HEALTHY, f"{API}/healthz": in_json({"multi_user": True})}) as server:
        assert "--namespace NAME" in refused(server.address)
        assert all(method == "GET" for method, *_ in server.requests)


@pytest.mark.parametrize("content", [None, "", "a\nb\n", "tökén"], ids=["missing", "empty", "two lines", "not ASCII"])
@pytest.mark.parametrize("option", ["--token-file", "--cookie-file"])
def test_a_login_file_that_holds_no_value(tmp_path: Path, option: str, content: str | None) -> None:
    file = tmp_path / "login"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with serving(HEALTHY) as server:
        message = refused(server.address, option, str(file))
        assert f"{option} {file}" in message
        assert server.requests == []


def test_a_run_carries_login_namespace_service_account_and_pipeline_root(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "cookie").write_text("authservice_session=secret-cookie\n")
    replies = {**HEALTHY, f"{API}/healthz": in_json({"multi_user": True})}
    with serving(replies) as server:
        done = submit(
            server.address,
            *("--namespace", "team-a", "--service-account", "builder", "--pipeline-root", "s3://bucket/root"),
            *("--token-file", str(tmp_path / "token"), "--cookie-file", str(tmp_path / "cookie")),
        )
        requests = server.requests
    assert done.code == 0, done.message
    assert done.output.splitlines()[-1] == f"r-1  {server.address}/#/runs/details/r-1"
    assert "secret" not in done.output + done.message
    assert all(headers["authorization"] == "Bearer secret-token" for _, _, headers, _ in requests)
    assert all(headers["cookie"] == "authservice_session=secret-cookie" for _, _, headers, _ in requests)
    (run,) = (json.loads(body) for method, path, _, body in requests if (method, path) == ("POST", f"{API}/runs"))
    assert run["service_account"] == "builder"
    assert run["runtime_config"]["pipeline_root"] == "s3://bucket/root"


def test_a_certificate_of_an_unknown_authority_and_with_its_file_a_run(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with serving(HEALTHY, tls=authority.server_context()) as server:
        message = refused(server.address)
        assert "certificate verify failed" in message
        assert "--ca-file" in message
        done = submit(server.address, "--ca-file", str(authority.ca_file))
    assert done.code == 0, done.message
    assert done.output.splitlines()[-1].startswith("r-1  https://127.0.0.1:")


def test_a_ca_file_that_is_missing_or_none() -> None:
    with serving(HEALTHY) as server:
        assert "No such file" in refused(server.address, "--ca-file", "/nonexistent/ca.pem")
        assert "not a PEM file" in refused(server.address, "--ca-file", str(REPOSITORY / "README.md"))
        assert server.requests == []
