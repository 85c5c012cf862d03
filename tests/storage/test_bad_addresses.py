"""An address or a certificate that no later try makes right: a message that names the variable, without waiting."""

import http.server
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloom.errors import StorageError
from spanloom.storage.staging import find
from spanloom.storage.uri import Uri, parse_uri
from support.certificates import Authority
from support.object_stores import CREDENTIALS, REGION, Enter
from support.stores import QuietServer
from support.stores.gcs import CloudStorage

DEADLINE = 3600
"""Seconds for which a fault that may pass is tried again: with these a test that waits does not end."""


class TlsServer(QuietServer):
    """Answers 404 to everything, over TLS; `connections` counts how often a client came."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _NotFound)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.connections = 0
        self.address = f"https://127.0.0.1:{self.server_address[1]}"

    def verify_request(self, *_: object) -> bool:
        self.connections += 1
        return True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses the certificate ends the handshake."""


class _NotFound(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Iterator[TlsServer]:
    server = TlsServer(authority.server_context())
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


VARIABLES = {"s3": ("AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"), "gs": ("STORAGE_EMULATOR_HOST", "REQUESTS_CA_BUNDLE")}


@pytest.fixture(params=["s3", "gs"])
def scheme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, enter: Enter) -> str:
    for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    keys = {name.upper(): value for name, value in CREDENTIALS.items()}
    enter({"AWS_DEFAULT_REGION": REGION, "SPANLOOM_STORAGE_DEADLINE": str(DEADLINE), **keys})
    return str(request.param)


def refusal(uri: Uri) -> StorageError:
    with pytest.raises(StorageError) as caught:
        find(uri)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("address", ["localhost:9000", "127.0.0.1:9000", "store.example"])
def test_an_address_without_http(scheme: str, enter: Enter, address: str) -> None:
    variable, _ = VARIABLES[scheme]
    enter({variable: address})
    error = refusal(Uri(scheme, "bucket", "key"))
    assert error.what == f"{variable}={address!r} is not the address of a server"
    assert f"{variable}=http://{address}" in str(error.remedy)


def test_a_certificate_of_an_unknown_authority_is_refused_by_the_first_connection(
    scheme: str, server: TlsServer, enter: Enter
) -> None:
    address, ca_file = VARIABLES[scheme]
    enter({address: server.address})
    error = refusal(Uri(scheme, "bucket", "key"))
    assert "certificate was refused: unable to get local issuer certificate" in error.what
    assert ca_file in str(error.remedy)
    assert server.connections == 1


def test_with_the_file_of_the_authority_the_store_is_reached(
    scheme: str, server: TlsServer, authority: Authority, enter: Enter
) -> None:
    address, ca_file = VARIABLES[scheme]
    enter({address: server.address, ca_file: str(authority.ca_file)})
    assert find(Uri(scheme, "bucket", "key")) is None


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), ("no PEM", "not PEM with certificates")])
def test_a_ca_file_that_is_missing_or_none(
    scheme: str, server: TlsServer, enter: Enter, tmp_path: Path, content: str | None, why: str
) -> None:
    address, variable = VARIABLES[scheme]
    ca_file = tmp_path / "other.pem"
    if content is not None:
        ca_file.write_text(content)
    enter({address: server.address, variable: str(ca_file)})
    error = refusal(Uri(scheme, "bucket", "key"))
    assert str(ca_file) in error.what
    assert why in error.what
    assert variable in str(error.remedy)
    assert server.connections == 0


def test_a_ca_file_that_waits_for_a_writer(scheme: str, server: TlsServer, enter: Enter, tmp_path: Path) -> None:
    address, variable = VARIABLES[scheme]
    os.mkfifo(tmp_path / "fifo.pem")
    enter({address: server.address, variable: str(tmp_path / "fifo.pem")})
    assert "no regular file" in refusal(Uri(scheme, "bucket", "key")).what


def test_a_ca_file_is_not_looked_at_where_there_is_no_tls(cloud_storage: CloudStorage, enter: Enter) -> None:
    enter({"STORAGE_EMULATOR_HOST": cloud_storage.address, "REQUESTS_CA_BUNDLE": "/nonexistent/ca.pem"})
    cloud_storage.objects.setdefault("bucket", {})
    assert find(Uri("gs", "bucket", "key")) is None


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("minio://mlpipeline/kd", "s3://mlpipeline/kd"),
        ("s3a://bucket/kd", "s3://bucket/kd"),
        ("gcs://bucket/kd", "gs://bucket/kd"),
    ],
)
def test_another_word_for_a_store_is_told_what_to_write(text: str, instead: str) -> None:
    with pytest.raises(StorageError, match="neither a local path nor a URI") as caught:
        parse_uri(text)
    assert instead in str(caught.value.remedy)
    assert ("AWS_ENDPOINT_URL" in str(caught.value.remedy)) == instead.startswith("s3:")
