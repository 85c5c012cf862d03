"""JSON of RFC 8259 that refuses repeated keys; most parsers silently keep the last of them.

In: a JSON text. Out: its value. orjson parses; it keeps the last of two equal keys, too. So the strings of its value
are counted, keys and values, and compared with the text. If the counts differ, or in doubt, the slower standard library
parses the text again, decides, and raises the error.

    {"a": "x", "b": ["y"]}    10 quotes / 2 = 5 strings, and the value holds 5
    {"a": "x", "a": ["y"]}    10 quotes / 2 = 5 strings, and the value holds 3
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import orjson
import pyarrow as pa

SHORT = 2000
"""Texts below this many bytes: `bytes.count` counts quotes faster than NumPy."""


class RepeatedKeyError(ValueError):
    """An object holds `key` more than once."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} twice in one object")
        self.key = key


def loads(text: str | bytes, quotes: int | None = None) -> Any:
    """The value of a JSON text. Raises RepeatedKeyError, UnicodeDecodeError (bytes that are not UTF-8), ValueError (not
    JSON) or RecursionError (nested too deep).

    `quotes`: the number of quotes that begin or end a string, if `count_quotes` has counted them already.
    """
    try:
        value = orjson.loads(text)
    except ValueError:
        return slowly(text)
    return checked(value, text, quotes)


def checked(value: Any, text: str | bytes, quotes: int | None = None) -> Any:
    """Like `loads`, for a text that orjson has already parsed to `value`."""
    try:
        if 2 * _strings(value) == (_quotes(text) if quotes is None else quotes):
            return value
    except (ValueError, RecursionError):
        pass
    return slowly(text)


def slowly(text: str | bytes) -> Any:
    """Like `loads`, with the standard library alone."""
    return json.loads(_decoded(text), object_pairs_hook=_unique, parse_constant=_no_constant)


def count_quotes(texts: pa.LargeBinaryArray) -> list[int | None]:
    """The number of unescaped quotes of each text, which begin or end a string; counted over all texts at once.

    None for a text with two backslashes before a quote: `loads` counts its quotes itself.
    """
    if not len(texts):
        return []
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset :][: len(texts) + 1]
    flat = np.frombuffer(data or b"", dtype=np.uint8)[bounds[0] : bounds[-1]]
    return _counted(flat, bounds - bounds[0])


def count_quotes_of_lines(lines: Sequence[bytes]) -> list[int | None]:
    """Like `count_quotes`, for a list of texts. No text may be empty."""
    bounds = np.cumsum([0, *map(len, lines)])
    return _counted(np.frombuffer(b"".join(lines), dtype=np.uint8), bounds)


def _counted(flat: "np.ndarray[Any, Any]", bounds: "np.ndarray[Any, Any]") -> list[int | None]:
    """`flat`: the bytes of all texts, uint8. `bounds`: the start of each text and the end of the last, int64."""
    at = np.flatnonzero(flat == ord('"'))
    # The bytes before a text belong to the previous text. That is harmless: no JSON object begins with `"` or `\"`.
    escaped = flat[at - 1] == ord("\\")
    unclear = at[escaped & (flat[np.maximum(at - 2, 0)] == ord("\\"))]
    counts: list[int | None] = np.diff(np.searchsorted(at[~escaped], bounds)).tolist()
    for row in np.unique(np.searchsorted(bounds, unclear, side="right") - 1).tolist():
        counts[row] = None
    return counts


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode()


def _quotes(text: str | bytes) -> int:
    """The number of unescaped quotes of one text, also with escaped backslashes before quotes."""
    data = text.encode() if isinstance(text, str) else text
    if b"\\" not in data:
        return data.count(b'"')
    if len(data) < SHORT:
        # A run of backslashes begins with an escape, so pairing from its left is what a parser does.
        unpaired = data.replace(b"\\\\", b"")
        return unpaired.count(b'"') - unpaired.count(b'\\"')
    flat = np.frombuffer(data, dtype=np.uint8)
    quotes, backslashes = flat == ord('"'), flat == ord("\\")
    after_one = quotes[1:] & backslashes[:-1]
    after_two = after_one[1:] & backslashes[:-2]
    ends = 0
    for start in np.flatnonzero(after_two).tolist():  # an even run of backslashes escapes itself, and not the quote
        before = start
        while before >= 0 and data[before] == ord("\\"):
            before -= 1
        ends += (start + 1 - before) % 2 == 0
    return int(np.count_nonzero(quotes)) - int(np.count_nonzero(after_one)) + ends


def _strings(value: Any) -> int:
    """The number of keys and string values inside `value`. Raises ValueError at a float, which may be an integer beyond
    64 bits that orjson parsed as a float."""
    kind = type(value)
    if kind is dict:
        count, items = len(value), value.values()
    elif kind is list:
        count, items = 0, value
    else:
        if kind is float:
            raise ValueError
        return 1 if kind is str else 0
    for item in items:
        kind = type(item)
        if kind is str:
            count += 1
        elif kind is dict or kind is list or kind is float:
            count += _strings(item)
    return count


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        times = Counter(key for key, _ in pairs)
        raise RepeatedKeyError(next(key for key, count in times.items() if count > 1))
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
