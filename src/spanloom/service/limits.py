"""Limits request bodies while they are read: the size of each, the size of all together, and the time to arrive.

In: an ASGI application, limits by path, a total, a deadline. Out: the same application.

    413  a body above its limit: at once if its header says so, otherwise as soon as too many bytes have arrived
    503  a body that, with the bodies of all other requests under way, exceeds the total
    408  a body that arrives too slowly
    415  a body that is encoded in another way than gzip; limits are of its bytes as they come, and unpacked

A body counts in the total until its request ends. After a body was refused, the bytes that still arrive are discarded
for a while: a client whose connection is cut while it sends cannot read the answer.
"""

import asyncio
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from anyio import to_thread
from fastapi import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanloom.service.answers import problem
from spanloom.service.defaults import BODIES_MAX_BYTES, BODY_SECONDS

MEMBERS = 1_000
"""Most gzip files in a body: of each, the rest of the body is copied."""

DRAINED_BYTES = 1 << 27
DRAIN_SECONDS = 5.0
"""Limits for discarding a refused body: bytes and seconds."""

BYTES_PER_SECOND = 65_536
"""A body has `BODY_SECONDS`, plus one second for each `BYTES_PER_SECOND` received."""


@dataclass(frozen=True, kw_only=True)
class BodyLimit:
    """Paths that match `path`, a regular expression, accept bodies of at most `max_bytes`."""

    path: str
    max_bytes: int


class LimitedBodies:
    """The middleware. The first matching entry of `limits` applies, otherwise the limit `otherwise`.

    total     bytes of the bodies of all requests under way
    seconds   see `BODY_SECONDS`
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Sequence[BodyLimit],
        otherwise: int,
        total: int = BODIES_MAX_BYTES,
        seconds: float = BODY_SECONDS,
    ) -> None:
        self._app, self._otherwise, self._total, self._seconds = app, otherwise, total, seconds
        self._limits = [(re.compile(limit.path), limit.max_bytes) for limit in limits]
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = next((limit for path, limit in self._limits if path.fullmatch(scope["path"])), self._otherwise)
        limit = min(limit, self._total)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > limit:
            await _refused(problem(413, _text(limit), _CLOSE), receive, send)
            return
        encoding = dict(scope["headers"]).get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"gzip", b"x-gzip"):
            await _refused(problem(415, "A body may be encoded as gzip, and in no other way", _CLOSE), receive, send)
            return
        body = _Body(receive, limit=limit, seconds=self._seconds, gzip=encoding != b"identity")

        async def counted() -> Message:
            message = await body.receive()
            size = len(message.get("body", b""))
            if self._held + size > self._total:
                body.refuse(503, "The bodies of the requests under way are too large together", {"retry-after": "1"})
            self._held += size
            body.held += size
            return message

        async def lingering(message: Message) -> None:
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if not (last and body.refused and body.more):
                await send(message)
                return
            await _end_late(message, receive, send)

        try:
            await self._app(scope, counted, lingering)
        finally:
            self._held -= body.held


_CLOSE = {"connection": "close"}


class _Body:
    """The body of one request. `more`: whether more of it is expected."""

    def __init__(self, receive: Receive, *, limit: int, seconds: float, gzip: bool = False) -> None:
        self._receive, self._limit, self._seconds = receive, limit, seconds
        self._gzip, self._inflate = gzip, zlib.decompressobj(wbits=31)
        self._inflated, self._members = 0, 1
        self._began = asyncio.get_running_loop().time()
        self._read = 0
        self.more, self.refused, self.held = True, False, 0

    async def receive(self) -> Message:
        """The next message. Raises HTTPException 408 or 413, which FastAPI lets through while it reads a body."""
        if not self.more:  # the next message is the client's disconnect
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._began + self._seconds + self._read / BYTES_PER_SECOND):
                message = await self._receive()
        except TimeoutError:
            self.refuse(408, f"The body did not come in {self._seconds:g} s and one more for each 64 KiB")
        self._read += len(message.get("body", b""))
        self.more = message.get("more_body", False)
        if self._read > self._limit:
            self.refuse(413, _text(self._limit))
        return message if not self._gzip else {**message, "body": await self._plain(message.get("body", b""))}

    async def _plain(self, data: bytes) -> bytes:
        """The bytes that a piece of a gzip body stands for, at most one more than the limit. 256 KiB may stand for
        256 MiB: unpacking stops at the limit, and runs beside the event loop."""
        room = self._limit + 1 - self._inflated
        try:
            plain = await to_thread.run_sync(self._unpacked, data, room)
        except zlib.error:
            self.refuse(400, f"The body is not gzip, as its header says, or has more than {MEMBERS:,} parts")
        self._inflated += len(plain)
        if self._inflated > self._limit:
            self.refuse(413, _text(self._limit))
        if not self.more and not self._inflate.eof:
            self.refuse(400, "The gzip body ends too early")
        return plain

    def _unpacked(self, data: bytes, room: int) -> bytes:
        """At most `room` bytes. A gzip file may be several, one after the other."""
        plain = b""
        while data and len(plain) < room:
            if self._inflate.eof:
                self._inflate, self._members = zlib.decompressobj(wbits=31), self._members + 1
                if self._members > MEMBERS:
                    raise zlib.error
            plain += self._inflate.decompress(data, room - len(plain))
            data = self._inflate.unused_data
        return plain

    def refuse(self, status: int, detail: str, headers: dict[str, str] | None = None) -> NoReturn:
        """Raises HTTPException."""
        self.refused = True
        raise HTTPException(status, detail, headers={**_CLOSE, **(headers or {})})


async def _refused(answer: Response, receive: Receive, send: Send) -> None:
    """Sends a complete answer before any of the body was read, and then ends the connection."""
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await _end_late({"type": "http.response.body", "body": bytes(answer.body)}, receive, send)


async def _end_late(message: Message, receive: Receive, send: Send) -> None:
    """Sends the last piece of an answer to a refused body. The answer ends after the rest of the body is discarded."""
    await send({**message, "more_body": True})
    await _drain(receive)
    await send({"type": "http.response.body", "body": b""})


async def _drain(receive: Receive) -> None:
    """Discards the bytes of a body that still arrive, for a while."""
    left = DRAINED_BYTES
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        pass


def _text(most: int) -> str:
    return f"Payload size exceeds maximum of {most} bytes"
