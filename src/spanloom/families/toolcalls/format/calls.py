"""The tool calls in the text of an assistant turn.

In: `assistant_raw`. Out: one `Call` for each `<|python_tag|>`, with its JSON value if it is valid.

    Let me look.<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|><|python_tag|>{oops
                              └── call 0: value, valid                               └── call 1: not valid
"""

import json
from typing import Any, NamedTuple, NoReturn

import orjson

from spanloom.families.toolcalls.format.control import END_TOKENS, EOM, EOT, PYTHON_TAG


class Call(NamedTuple):
    """The text between one `<|python_tag|>` and the next, as a call.

    valid       whether it is one JSON value, followed by nothing, or by an end token and any text
    value       the JSON value; None if not valid
    start, end  the characters [start, end) of the JSON value in the text, including blanks around it
    """

    valid: bool
    value: Any
    start: int
    end: int


def parse_calls(text: str) -> list[Call]:
    """The calls of a text, in order; an empty list if it has no tag."""
    parts = text.split(PYTHON_TAG)
    at = len(parts[0])
    calls = []
    for part in parts[1:]:
        at += len(PYTHON_TAG)
        calls.append(_parse(part, at))
        at += len(part)
    return calls


def _parse(part: str, start: int) -> Call:
    # The fast path for most calls: the value, one end token, nothing after it.
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
    """Parses the other cases: an end token inside a string, text after the end token, or invalid JSON."""
    blank = len(part) - len(part.lstrip())
    try:
        value, length = _DECODER.raw_decode(part, blank)
        # Fails for a lone surrogate written as an escape: it cannot be encoded.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return Call(False, None, start, start)
    rest = part[length:].lstrip()
    if rest and not rest.startswith(END_TOKENS):
        return Call(False, None, start, start)
    return Call(True, value, start, start + length)


def no_constant(name: str) -> NoReturn:
    """Raises ValueError for NaN and the infinities, which Python's parser accepts although JSON does not have them."""
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=no_constant)
