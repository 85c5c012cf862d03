"""JSON as RFC 8259 has it, and without repeated keys: openai-harmony would silently take the last of them.

In: a JSON text. Out: its value. orjson parses; it takes the last of two equal keys as well, so what it made is held
against the text: every string of the text, key or value, must have come through. Whatever is not plainly fine is parsed
again by the standard library, slowly, which then decides and says what is wrong.

    {"a": "x", "b": ["y"]}    10 quotes / 2 = 5 strings, and the value holds 5
    {"a": "x", "a": ["y"]}    10 quotes / 2 = 5 strings, and the value holds 3
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import orjson


class RepeatedKeyError(ValueError):
    """An object holds the key `key` twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} twice in one object")
        self.key = key


def loads(text: str, quotes: int | None = None) -> Any:
    """The value of a JSON text. Raises RepeatedKeyError, ValueError (not JSON) or RecursionError (nested too deep).

    `quotes`: those of the text that begin or end a string, where `count_quotes` has counted them already.
    """
    try:
        value = orjson.loads(text)
        if 2 * _strings(value) == (_quotes(text) if quotes is None else quotes):
            return value
    except (ValueError, RecursionError):
        pass
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def count_quotes(texts: Sequence[str | None]) -> list[int | None]:
    """How many quotes of each text begin or end a string (all but the escaped ones), counted over all texts at once.

    None where that takes a closer look: no text, or an escaped backslash before a quote.
    """
    raw = b"\n".join([b"" if text is None else text.encode("utf-8", "surrogatepass") for text in texts])
    flat = np.frombuffer(b"\n\n" + raw + b"\n", dtype=np.uint8)
    at = np.flatnonzero(flat == ord('"'))
    escaped = flat[at - 1] == ord("\\")
    unclear = at[escaped & (flat[at - 2] == ord("\\"))]
    ends = np.flatnonzero(flat == ord("\n"))[2:]
    if ends.size != len(texts):  # a line feed between the tokens of some text
        return [None] * len(texts)
    counts = np.diff(np.searchsorted(at[~escaped], ends), prepend=0).tolist()
    for row in np.unique(np.searchsorted(ends, unclear)).tolist():
        counts[row] = None
    return [None if text is None else count for text, count in zip(texts, counts, strict=True)]


def _quotes(text: str) -> int:
    """What `count_quotes` counts, of one text and in any case."""
    if "\\" not in text:
        return text.count('"')
    # A run of backslashes begins with an escape, so pairing from its left is what a parser does.
    unpaired = text.replace("\\\\", "") if "\\\\" in text else text
    return unpaired.count('"') - unpaired.count('\\"')


def _strings(value: Any) -> int:
    """Keys and string values inside `value`. Raises ValueError at a float: orjson makes one of an integer too big."""
    kind = type(value)
    if kind is str:
        return 1
    if kind is dict:
        count = len(value)
        for item in value.values():
            count += 1 if type(item) is str else _strings(item)
        return count
    if kind is list:
        return sum(map(_strings, value))
    if kind is float:
        raise ValueError
    return 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
