"""Object stores for tests, in this process: a Cloud Storage of our own that honours preconditions, and a proxy that
fails on purpose. The emulator of Google's API and moto's S3 are started by tests/storage/conftest.py."""

import socketserver
import sys
from http.server import ThreadingHTTPServer

socketserver.StreamRequestHandler.disable_nagle_algorithm = True
"""Of all servers here: without it an answer's body waits 40 ms until the client has acknowledged its head."""


class QuietServer(ThreadingHTTPServer):
    """Clients are killed and connections cut here on purpose: that is no news."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
