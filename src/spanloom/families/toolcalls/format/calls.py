"""The tool calls in the text of an assistant turn.

In: `assistant_raw`. Out: one `Call` for each `<|python_tag|>`, with its JSON value where it has one.

    Let me look.<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|><|python_tag|>{oops
                              └── call 0: value, valid                               └── call 1: not valid
"""

import json
from typing import Any, NamedTuple, NoReturn

import orjson

from spanloom.families.toolcalls.format.control import END_TOKENS, EOM, EOT, PYTHON_TAG


class Call(NamedTuple):
    """What is behind one `<|python_tag|>`, up to the next.

    valid       one JSON value, then nothing, or an end token and anything
    value       the value; None where it is not valid
    start, end  the characters of the JSON value in the text, blanks at its ends included
    """

    valid: bool
    value: Any
    start: int
    end: int


def parse_calls(text: str) -> list[Call]:
    """The calls of a text, in order; none where it has no tag."""
    parts = text.split(PYTHON_TAG)
    at = len(parts[0])
    calls = []
    for part in parts[1:]:
        at += len(PYTHON_TAG)
        calls.append(_parse(part, at))
        at += len(part)
    return calls


def _parse(part: str, start: int) -> Call:
    # What most calls look like: the value, one end token, nothing behind it.
    value_text = part.rstrip()
    if value_text.endswith(EOM):
        value_text = value_text[: -len(EOM)]
    elif value_text.endswith(EOT):
        value_text = value_text[: -len(EOT)]
    try:
        return Call(True, orjson.loads(value_text), start, start + len(value_text))
    except ValueError:
        return _parse_slowly(part, start)


def _parse_slowly(part: str, start: int) -> Call:
    """An end token inside of a string, text behind the end token, or no JSON at all."""
    blank = len(part) - len(part.lstrip())
    try:
        value, length = _DECODER.raw_decode(part, blank)
        # Half of a surrogate pair, written as an escape, is no text.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return Call(False, None, start, start)
    rest = part[length:].lstrip()
    if rest and not rest.startswith(END_TOKENS):
        return Call(False, None, start, start)
    return Call(True, value, start, start + length)


def no_constant(name: str) -> NoReturn:
    """Refuses NaN and the infinities, which Python reads and JSON does not have. Raises ValueError."""
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=no_constant)
