"""Streamed answers: made row by row in a thread while they are sent, with one connection held until the end.

In: an iterator of bytes that may block, and the resources that it holds. Out: a response. If the client disconnects or
the iterator fails, the resources are released. A failure aborts the transfer, so that no client takes a part for the
whole. A client that reads nothing for `SEND_SECONDS` also aborts it.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack

from anyio import CancelScope, fail_after
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from spanloom.service.observed import LOGGER

CHUNK_BYTES = 65_536
SEND_SECONDS = 60.0
"""For one chunk: even a slow client reads it in this time."""


class HeldStream(StreamingResponse):
    """`held` is closed when the answer ends, in any case. HEAD gets only the headers."""

    def __init__(
        self,
        lines: Iterator[bytes],
        held: ExitStack,
        *,
        headers: Mapping[str, str],
        media_type: str,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        # `content-type` is set in full: for text Starlette would add a charset.
        super().__init__(_chunks(lines), headers={**headers, "content-type": media_type})
        self._held, self._send_seconds = held, send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stuck = False

        async def patient(message: Message) -> None:
            nonlocal stuck
            try:
                with fail_after(self._send_seconds):
                    await send(message)
            except TimeoutError:
                stuck = True
                raise

        try:
            if scope["method"] == "HEAD":
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": b""})
            else:
                await super().__call__(scope, receive, patient)
        except* TimeoutError:
            if not stuck:
                raise
            # The server closes a connection whose answer has no end.
            logging.getLogger(LOGGER).warning("a client took nothing of an answer for %s s", self._send_seconds)
        finally:
            with CancelScope(shield=True):
                await run_in_threadpool(self._held.close)


async def _chunks(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    while chunk := await run_in_threadpool(_next_chunk, lines):
        yield chunk


def _next_chunk(lines: Iterator[bytes]) -> bytes:
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= CHUNK_BYTES:
            break
    return bytes(chunk)
