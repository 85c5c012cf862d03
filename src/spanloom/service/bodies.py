"""JSON bodies: their memory and items are estimated before parsing, and only a few errors are reported.

In: the bytes of a body. Out: its JSON value; 413 for a body whose values would take far more memory than its bytes,
400 for a list of too many items. Scanning takes constant memory: `SCANNED` bytes at a time.

    [{},{}]  →  two empty objects and a comma: 64 + 64 + 9 bytes as Python values, 24 for each byte of a long list
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np
from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError

MEMORY_FACTOR = 28
"""Maximum bytes of memory per byte of a body, for its values, its text and the body itself. A list of empty objects
takes 26. Later processing of the values takes less than 2 more."""

MEMORY_ALWAYS = 1 << 20
"""Bytes that any body may take, so that a small body is never refused for its shape."""

_NEVER_TOO_MUCH = MEMORY_ALWAYS // 64
"""Bodies up to this size are always accepted: no byte of JSON takes 64 bytes of memory."""

SCANNED = 1 << 18

# CPython 3.11 on 64 bits, rounded up to its allocator's 16 bytes. A dict allocates room for five members at once, a
# parsed list for four items.
_EMPTY, _DICT, _LIST, _MEMBER, _ITEM, _NUMBER, _TEXT = 64, 192, 96, 40, 9, 32, 64
_SPACE = np.isin(np.arange(256), np.frombuffer(b" \t\r\n", np.uint8))
_MARK = np.isin(np.arange(256), np.frombuffer(b'{}[],:"', np.uint8))
_DEPTH = np.zeros(256, np.int8)
_DEPTH[np.frombuffer(b"{[", np.uint8)] = 1
_DEPTH[np.frombuffer(b"}]", np.uint8)] = -1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Size of a body's values. `items`: of the top-level list, 0 for other bodies. `memory`: estimate, in bytes."""

    items: int
    memory: int


def shape(body: bytes) -> Shape:
    """The shape of a body, valid JSON or not. 10 to 50 ns per byte.

    Depths of `[1,[2,3]]` after each mark: [ 1, comma 1, [ 2, comma 2, ] 1, ] 0. Items: the commas at depth 1, plus one.
    """
    objects = lists = no_members = no_items = members = commas = numbers = texts = wide = items = depth = 0
    quoted, last = 0, ord(",")
    opened = None  # start of a text without an end quote so far
    top = b""  # the first two non-space characters: whether the body is a list, and whether it is empty
    for start, piece in _pieces(body):
        codes = np.frombuffer(piece, np.uint8)
        quotes = codes == ord('"')
        inside = (np.cumsum(quotes, dtype=np.uint8) + np.uint8(quoted)) & 1  # only the parity matters
        # All bytes after an opening quote are inside; the opening quote itself is kept as a mark.
        kept = codes[((inside == 0) | quotes) & ~_SPACE[codes]]
        places = np.flatnonzero(quotes) + start
        if opened is not None:
            places = np.concatenate([[opened], places])
        opened = int(places[-1]) if len(places) % 2 else None
        ends, begins = places[1::2], places[: len(places) // 2 * 2 : 2]
        texts += int((ends - begins > 2).sum())  # shorter ones are shared by the interpreter
        wide += int((ends - begins).sum())
        quoted = int(inside[-1]) if len(inside) else quoted
        if not len(kept):
            continue
        top += kept[: 2 - len(top)].tobytes()
        before = np.concatenate([np.array([last], np.uint8), kept[:-1]])
        last = int(kept[-1])
        is_mark = _MARK[kept]
        marks = kept[is_mark]
        # A number of one digit is shared too. The last number of a piece counts as a longer one.
        numbers += int((_MARK[before] & ~is_mark & ~np.append(is_mark[1:], False)).sum())
        objects += int((marks == ord("{")).sum())
        lists += int((marks == ord("[")).sum())
        members += int((marks == ord(":")).sum())
        commas += int((marks == ord(",")).sum())
        no_members += int(((before == ord("{")) & (kept == ord("}"))).sum())
        no_items += int(((before == ord("[")) & (kept == ord("]"))).sum())
        depths = np.cumsum(_DEPTH[marks], dtype=np.int64) + depth
        items += int(((marks == ord(",")) & (depths == 1)).sum())
        depth = int(depths[-1]) if len(depths) else depth
    full = objects - no_members
    containers = full * _DICT + (lists - no_items) * _LIST + (no_members + no_items) * _EMPTY
    factor = _bytes_of_a_character(body)
    memory = (
        containers
        + max(0, members - full) * _MEMBER
        + commas * _ITEM
        + numbers * _NUMBER
        + texts * _TEXT
        + wide * factor
        + len(body) * factor
        + len(body)
    )
    return Shape(items=items + 1 if top[:1] == b"[" and top != b"[]" else 0, memory=memory)


def _pieces(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The body in pieces without escaped characters, and the position of each piece in their concatenation."""
    start = at = 0
    while at < len(body):
        end = min(at + SCANNED, len(body))
        piece = body[at:end]
        odd = (len(piece) - len(piece.rstrip(b"\\"))) % 2
        if odd and end < len(body):  # the escaped character is in the next piece
            piece += body[end : end + 1]
            end += 1
        at = end
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        yield start, piece
        start += len(piece)


def _bytes_of_a_character(body: bytes) -> int:
    """Bytes per character of the body as one text: those of the widest character."""
    if body.isascii():
        return 1
    widest = max(int(np.frombuffer(body[at : at + SCANNED], np.uint8).max()) for at in range(0, len(body), SCANNED))
    return 4 if widest >= 0xF0 else 2 if widest >= 0xC4 else 1


def check_memory(body: bytes, measured: Shape | None = None, *, factor: int = MEMORY_FACTOR) -> None:
    """Raises HTTPException 413 if the values of a body would take more than `factor` times its size.

    `measured`: its shape, if already known.
    """
    size = len(body)
    if size <= _NEVER_TOO_MUCH:
        return
    if (memory := (measured or shape(body)).memory) > factor * size + MEMORY_ALWAYS:
        raise HTTPException(
            413,
            f"The values of the body would take about {memory:,} bytes of memory, more than {factor} for each "
            f"of its {size:,}: send less at once, or fewer small objects and lists",
        )


def json_value(body: bytes) -> Any:
    """The value of a body that `check_memory` let pass. Raises RequestValidationError if it is not JSON."""
    try:
        return json.loads(body)
    except json.JSONDecodeError as fault:
        raise RequestValidationError(
            [{"type": "json_invalid", "loc": ("body", fault.pos), "msg": "JSON decode error"}]
        ) from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "There was an error parsing the body") from None


def is_json(content_type: str | None) -> bool:
    """Whether a header `Content-Type` means JSON."""
    message = Message()
    message["content-type"] = content_type or ""
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A model's JSON Schema without `$defs`, for `openapi_extra`, in which references could not be resolved."""
    definitions = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return put(definitions[value["$ref"].rsplit("/", 1)[1]])
            return {key: put(item) for key, item in value.items()}
        return [put(item) for item in value] if isinstance(value, list) else value

    return dict(put(schema))
