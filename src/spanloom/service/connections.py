"""uvicorn's protocol with time limits, so that no connection is held forever.

In: the time for the head of a request. Out: a protocol class for `uvicorn.Config(http=…)`. uvicorn closes a connection
that is idle between two requests, but waits forever for the rest of a head, for a body that no route reads, and for a
client that does not read an answer.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from spanloom.service.defaults import HEADER_SECONDS

TAKEN_SECONDS = 60.0
"""After closing starts, the time for a client to read what was sent; then the connection is cut."""

CONNECTIONS = 512
"""Open connections; a request on a further one gets 503."""


class TimedProtocol(H11Protocol):
    """A connection that is closed if no request is under way for `header_seconds`."""

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
        """Starts the timer if no request is under way; bytes of the next head do not restart it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.header_seconds, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        # `close` first sends what is still in the buffer.
        self.transport.close()
        self._timer = self.loop.call_later(TAKEN_SECONDS, self.transport.abort)


def timed_protocol(header_seconds: float) -> type[Any]:
    """The protocol class with this time limit for heads."""
    return type("TimedProtocol", (TimedProtocol,), {"header_seconds": header_seconds})
