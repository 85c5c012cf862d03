"""Bodies are counted as they come, in however many pieces a server hands them on."""

import asyncio

import pytest
from fastapi import HTTPException
from starlette.types import Message, Receive, Scope, Send

from spanloom.service.limits import BodyLimit, LimitedBodies

LIMIT = 100


def body_read(pieces: list[bytes], path: str = "/limited") -> bytes:
    """What an application reads of a body behind the middleware, without a header that says its length."""
    waiting: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, start=1)
    ]
    read = b""

    async def application(_: Scope, receive: Receive, __: Send) -> None:
        nonlocal read
        more = True
        while more:
            message = await receive()
            read += message["body"]
            more = message["more_body"]

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(_: Message) -> None:
        raise AssertionError("the application answers nothing")

    limited = LimitedBodies(application, limits=[BodyLimit(path="/limited", max_bytes=LIMIT)], otherwise=1000)
    asyncio.run(limited({"type": "http", "path": path, "headers": []}, receive, send))
    return read


@pytest.mark.parametrize("pieces", [[b"x" * 100], [b"x" * 60, b"x" * 40], [b"x"] * 100, [b"", b"x" * 100, b""]])
def test_a_body_of_the_limit_is_read_whole(pieces: list[bytes]) -> None:
    assert body_read(pieces) == b"x" * LIMIT


@pytest.mark.parametrize("pieces", [[b"x" * 101], [b"x" * 60, b"x" * 41], [b"x"] * 101, [b"x" * 100, b"", b"x"]])
def test_a_body_of_one_byte_more_is_refused_however_it_is_cut(pieces: list[bytes]) -> None:
    with pytest.raises(HTTPException) as refusal:
        body_read(pieces)
    assert (refusal.value.status_code, refusal.value.detail) == (413, "Payload size exceeds maximum of 100 bytes")
    assert body_read(pieces, "/elsewhere") == b"x" * 101
