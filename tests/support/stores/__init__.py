"""Object stores for tests, in this process: a Cloud Storage of our own that honours preconditions, and a proxy that
fails on purpose. The emulator of Google's API and moto's S3 are started by tests/storage/conftest.py."""

import sys
from http.server import ThreadingHTTPServer


class QuietServer(ThreadingHTTPServer):
    """Clients are killed and connections cut here on purpose: that is no news."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
