"""Connections that are not held without end: uvicorn's own protocol, with a time for the head of each request.

In: how long a head may take. Out: a protocol class for `uvicorn.Config(http=…)`. uvicorn ends a connection that is
silent between two requests, but waits for ever for the rest of a head, for a body that no route reads, and for a client
that does not take an answer.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from spanloom.service.defaults import HEADER_SECONDS

TAKEN_SECONDS = 60.0
"""From then on, for a client to take what it was sent; then the connection is cut."""

CONNECTIONS = 512
"""Open at once; a request on one more gets 503."""


class TimedProtocol(H11Protocol):
    """A connection that ends `header_seconds` after there was a request under way."""

    header_seconds = HEADER_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Starts the time where no request is under way; what comes of the next head does not start it again."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.header_seconds, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        # `close` waits for what is still to be sent.
        self.transport.close()
        self._timer = self.loop.call_later(TAKEN_SECONDS, self.transport.abort)


def timed_protocol(header_seconds: float) -> type[Any]:
    """The protocol with this time for heads."""
    return type("TimedProtocol", (TimedProtocol,), {"header_seconds": header_seconds})
