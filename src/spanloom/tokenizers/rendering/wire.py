"""Requests and replies between a process and its template process, as bytes; the limits of a rendering.

    request  length (8 bytes), pickle of (verb, number of the template, value)
    reply    kind, line, length of text, length of marks (24 bytes), text as UTF-8, marks as 6 integers each

A request may be a pickle, since it comes from the parent. A reply must not be: its sender runs foreign code.
"""

import os
import pickle
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spanloom.tokenizers.traced_text import Mark

PLAIN, TRACED, MARKED = "plain", "traced", "marked"
"""The ways to render: text; text with marks of its fields; text with marks of `{% generation %}`."""

BEGIN_GENERATION, END_GENERATION = "\ue0f0", "\ue0f1"
"""Private-use characters, written around the body of `{% generation %}` in a `MARKED` rendering."""

COMPILE, VARIABLES = "compile", "variables"
"""The verbs beside the ways to render."""

DONE, INVALID, FAILED, FORBIDDEN, RAISED, NO_MEMORY, TOO_LONG = range(7)
"""Kinds of replies. The last two are limits."""

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

_REQUEST, _REPLY = struct.Struct("=Q"), struct.Struct("=IIQQ")
_MARK_FIELDS = 6


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`seconds` of a request; `memory` in bytes of address space; `output` in bytes of text, and of marks."""

    seconds: float = MAX_SECONDS
    memory: int = MAX_MEMORY
    output: int = MAX_OUTPUT


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
    return _REQUEST.pack(len(body)) + body


def read_request(descriptor: int) -> tuple[str, int, Any]:
    """The next request. Raises GoneError at the end, and what pickle raises for a class that is not there."""
    head, rest = _read_head(descriptor, _REQUEST.size)
    verb, number, value = pickle.loads(_read_rest(descriptor, rest, *_REQUEST.unpack(head)))
    return verb, number, value


def reply_bytes(reply: Reply, most: int) -> bytes:
    """A reply. A text or marks of more than `most` bytes are replaced by a reply `TOO_LONG`."""
    text = reply.text if reply.kind == DONE else reply.text[:_MAX_MESSAGE]
    body = text.encode("utf-8", "surrogatepass")
    marks = array("i", chain.from_iterable(reply.marks)).tobytes()
    if max(len(body), len(marks)) > most:
        return reply_bytes(Reply(kind=TOO_LONG, text=""), most)
    return _REPLY.pack(reply.kind, reply.line, len(body), len(marks)) + body + marks


def read_reply(descriptor: int, most: int) -> Reply:
    """The next reply. Raises GoneError."""
    head, rest = _read_head(descriptor, _REPLY.size)
    kind, line, length, length_of_marks = _REPLY.unpack(head)
    if max(length, length_of_marks) > most or length_of_marks % (_MARK_FIELDS * array("i").itemsize):
        raise GoneError
    body = memoryview(_read_rest(descriptor, rest, length + length_of_marks))
    try:
        text = str(body[:length], "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise GoneError from None
    return Reply(kind=kind, line=line, text=text, marks=tuple(_marks(body[length:])) if length_of_marks else ())


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
    body = os.read(descriptor, _FIRST)
    while 0 < len(body) < size:
        body += os.read(descriptor, _FIRST)
    if not body:
        raise GoneError
    return body[:size], body[size:]


def _read_rest(descriptor: int, begun: bytes, length: int) -> bytes | bytearray:
    if len(begun) == length:
        return begun
    body = bytearray(begun)
    while len(body) < length:
        part = os.read(descriptor, min(_CHUNK, length - len(body)))
        if not part:
            raise GoneError
        body += part
    return body
