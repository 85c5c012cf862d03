"""Requests and replies between a process and its template process, as bytes; the limits of a rendering.

    request  length (8 bytes), pickle of (verb, number of the template, value)
    replies  length (8 bytes), then of each: kind, line, length of text, length of marks (24 bytes), text as UTF-8,
             marks as 6 integers each

A request may be a pickle, since it comes from the parent. A reply must not be: its sender runs foreign code. To
`RENDER` there is a reply for each rendering, in order, otherwise one.
"""

import os
import pickle
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spanloom.tokenizers.traced_text import Mark

PLAIN, TRACED, MARKED = "plain", "traced", "marked"
"""The ways to render: text; text with marks of its fields; text with marks of `{% generation %}`."""

BEGIN_GENERATION, END_GENERATION = "\ue0f0", "\ue0f1"
"""Private-use characters, written around the body of `{% generation %}` in a `MARKED` rendering."""

COMPILE, VARIABLES, RENDER, CALL = "compile", "variables", "render", "call"
"""The verbs. The value of `RENDER` is a list of (way to render, values of the template), that of `CALL` the name of a
module, of a function that returns a text, and its arguments."""

DONE, INVALID, FAILED, FORBIDDEN, RAISED, UNREAD, NO_MEMORY, TOO_LONG = range(8)
"""Kinds of replies. `UNREAD`: to the whole request, which cannot be read. The last two are limits."""

MAX_SECONDS = 20.0
"""One request, compilation included. Real templates take milliseconds."""

MAX_MEMORY = 1 << 30
"""Bytes of address space of the template process, which needs 60 MB of it for itself."""

MAX_OUTPUT = 64 << 20
"""Bytes of a text as UTF-8, and of its marks."""

_MAX_MESSAGE = 4000
_FIRST, _CHUNK = 1 << 16, 1 << 20
"""Bytes of the first read, as many as a pipe holds, and of the next ones. A read of a MiB takes longer than most
renderings, since memory for it is mapped."""

_LENGTH, _REPLY = struct.Struct("=Q"), struct.Struct("=IIQQ")
_MARK_FIELDS = 6


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`seconds` of a request; `memory` in bytes of address space; `output` in bytes of text, and of marks. `modules`:
    what the process imports before it may open no file any more."""

    seconds: float = MAX_SECONDS
    memory: int = MAX_MEMORY
    output: int = MAX_OUTPUT
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reply:
    """`text`: of the template, or what went wrong; `line`: of the template, 0 if unknown; `marks`: of the text."""

    kind: int
    text: str
    line: int = 0
    marks: tuple[Mark, ...] = ()


class GoneError(Exception):
    """The other end of the pipe is closed, or what came from it is no message."""


def request_bytes(verb: str, number: int, value: Any) -> bytes:
    """A request. Raises what pickle raises for a value that it cannot write."""
    body = pickle.dumps((verb, number, value), protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def read_request(descriptor: int) -> tuple[str, int, Any]:
    """The next request. Raises GoneError at the end, and what pickle raises for a class that is not there."""
    head, rest = _read_head(descriptor, _LENGTH.size)
    verb, number, value = pickle.loads(_read_rest(descriptor, rest, *_LENGTH.unpack(head)))
    return verb, number, value


def replies_bytes(replies: Sequence[Reply], most: int) -> bytes:
    """Replies. A text or marks of more than `most` bytes are replaced by a reply `TOO_LONG`."""
    parts = [_reply_bytes(reply, most) for reply in replies]
    return b"".join([_LENGTH.pack(sum(map(len, parts))), *parts])


def _reply_bytes(reply: Reply, most: int) -> bytes:
    text = reply.text if reply.kind == DONE else reply.text[:_MAX_MESSAGE]
    body = text.encode("utf-8", "surrogatepass")
    marks = array("i", chain.from_iterable(reply.marks)).tobytes()
    if max(len(body), len(marks)) > most:
        return _reply_bytes(Reply(kind=TOO_LONG, text=""), most)
    return _REPLY.pack(reply.kind, reply.line, len(body), len(marks)) + body + marks


def read_replies(descriptor: int, count: int, most: int) -> list[Reply]:
    """The replies to a request, `count` of them or one that is for all. Raises GoneError."""
    head, rest = _read_head(descriptor, _LENGTH.size)
    (length,) = _LENGTH.unpack(head)
    if length > count * (_REPLY.size + 2 * most):
        raise GoneError
    body, at, replies = memoryview(_read_rest(descriptor, rest, length)), 0, []
    try:
        while at < length:
            kind, line, text, marks = _REPLY.unpack_from(body, at)
            at += _REPLY.size
            replies.append(_reply(kind, line, body[at : at + text], body[at + text : at + text + marks]))
            at += text + marks
    except (struct.error, ValueError):
        raise GoneError from None
    if len(replies) != count and not (len(replies) == 1 and replies[0].kind in (UNREAD, NO_MEMORY)):
        raise GoneError
    return replies


def _reply(kind: int, line: int, text: memoryview, marks: memoryview) -> Reply:
    """Raises ValueError."""
    decoded = str(text, "utf-8", "surrogatepass")
    return Reply(kind=kind, line=line, text=decoded, marks=tuple(_marks(marks)) if marks else ())


def _marks(body: memoryview) -> Iterator[Mark]:
    numbers = array("i")
    numbers.frombytes(body)
    fields = [iter(numbers)] * _MARK_FIELDS
    for start, end, field, first, last, exact in zip(*fields, strict=True):
        yield start, end, field, first, last, bool(exact)


def template_line(lines: str, line: int) -> int:
    """The line of a template for a line of its compiled code. `lines`: Jinja's table, `template=code&…`."""
    pairs = (pair.split("=") for pair in lines.split("&") if pair)
    return max((int(source) for source, code in pairs if int(code) <= line), default=1)


def write_all(descriptor: int, body: bytes) -> None:
    """Writes all of `body`. Raises OSError."""
    left = memoryview(body)
    while left:
        left = left[os.write(descriptor, left) :]


def _read_head(descriptor: int, size: int) -> tuple[bytes, bytes]:
    """The head of a message and what came with it, which is most often all."""
    body = _read_some(descriptor, _FIRST)
    while len(body) < size:
        body += _read_some(descriptor, _FIRST)
    return body[:size], body[size:]


def _read_rest(descriptor: int, begun: bytes, length: int) -> bytes | bytearray:
    if len(begun) == length:
        return begun
    body = bytearray(begun)
    while len(body) < length:
        body += _read_some(descriptor, min(_CHUNK, length - len(body)))
    return body


def _read_some(descriptor: int, most: int) -> bytes:
    if not (part := os.read(descriptor, most)):
        raise GoneError
    return part
