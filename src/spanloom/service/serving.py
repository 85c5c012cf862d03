"""Runs the application with uvicorn, until it is stopped.

In: an ASGI application, an address. Out: a server; its log goes to stderr as lines of JSON.
"""

import asyncio
import logging
import socket
import sys

import uvicorn
from starlette.types import ASGIApp

from spanloom.errors import SpanloomError
from spanloom.service.connections import CONNECTIONS, timed_protocol
from spanloom.service.defaults import HEADER_SECONDS
from spanloom.service.observed import LOGGER, log_to_stderr
from spanloom.service.work import SWITCH_SECONDS

SHUTDOWN_SECONDS = 10


def serve(app: ASGIApp, *, host: str, port: int, what: str, header_seconds: float = HEADER_SECONDS) -> None:
    """Serves until SIGINT or SIGTERM; answers under way get `SHUTDOWN_SECONDS`. Port 0 uses and logs a free port.

    `header_seconds`: for the head of a request, see `connections`.
    """
    log_to_stderr()
    sys.setswitchinterval(SWITCH_SECONDS)
    listening = _socket(host, port)
    log = logging.getLogger(LOGGER)
    config = uvicorn.Config(
        app,
        http=timed_protocol(header_seconds),
        limit_concurrency=CONNECTIONS,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="off",
    )
    address = listening.getsockname()
    log.info("listening", extra={"said": {"host": address[0], "port": address[1], "serves": what}})
    with listening:
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as refusal:
        raise SpanloomError(
            f"the address cannot be listened on: {refusal.strerror or refusal}",
            where=f"{host}:{port}",
            remedy="give another --host or --port",
        ) from None
    listening.listen(2048)
    return listening
