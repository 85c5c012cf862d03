"""The parts of an answer: prose, calls, and the arguments of calls, so that a loss can weight each separately.

In: `assistant_raw`, and the characters of each trained token. Out: the span id of each of these tokens.

    answer   Let me look.<|python_tag|>{"name": "f", "parameters": {"q": 1}}<|eom_id|>
    part     1111111111112222222222222222222222222222222222223333333322222222222

A call is the tag, the JSON after it except the arguments, and the end tokens that close it. Its arguments are the
object under `parameters`, or else under `arguments`, with its braces; of duplicate keys the last counts. The text after
a tag that is no valid call counts as a call without arguments. All other text is prose, except that blanks next to
a call belong to the call. A token belongs to the part in which it begins.
"""

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.families.toolcalls.format.calls import Call, parse_calls
from spanloom.families.toolcalls.format.control import END_TOKENS, PYTHON_TAG
from spanloom.supervision import Flags
from spanloom.tokenizers.character_spans import Offsets

SPAN_NAMES = ("context", "prose", "call", "arguments")
PROSE, CALL, ARGUMENTS = 1, 2, 3

_CLOSING = re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, END_TOKENS))}))*")
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def parts_of_answer(raw: str) -> list[tuple[int, int]]:
    """The start of each part: (character, span id), ascending, the first at character 0; empty for an empty text."""
    parts: list[tuple[int, int]] = []
    behind = 0  # the end of the previous call
    calls = parse_calls(raw)
    for number, call in enumerate(calls):
        tag = raw.index(PYTHON_TAG, behind)
        parts.append((behind, PROSE if raw[behind:tag].strip() else CALL))
        parts.append((tag, CALL))
        place = _arguments(raw, call)
        if place is not None:
            parts += [(place[0], ARGUMENTS), (place[1], CALL)]
        if call.valid and (closing := _CLOSING.match(raw, call.end)):
            behind = closing.end()
        elif number + 1 < len(calls):
            behind = raw.index(PYTHON_TAG, tag + 1)
        else:
            behind = len(raw)
    if not calls or raw[behind:].strip():
        parts.append((behind, PROSE))
    # Of several parts that begin at the same character, all except the last are empty.
    return [part for part, following in pairwise([*parts, (len(raw), 0)]) if part[0] < following[0]]


def _arguments(raw: str, call: Call) -> tuple[int, int] | None:
    """The characters [start, end) of a call's arguments; None if it has no arguments."""
    if not isinstance(call.value, dict):
        return None
    key = next((name for name in ("parameters", "arguments") if isinstance(call.value.get(name), dict)), None)
    if key is None:
        return None
    place = None
    at = raw.index("{", call.start) + 1
    try:
        while (at := _behind_blanks(raw, at)) < call.end and raw[at] != "}":
            if raw[at] == ",":
                at = _behind_blanks(raw, at + 1)
            name, at = _value(raw, at)
            start = _behind_blanks(raw, _behind_blanks(raw, at) + 1)  # after the colon
            _, at = _value(raw, start)
            if name == key:
                place = (start, at)
    except RecursionError:  # nested too deep to parse: all of it counts as the call
        return None
    return place


def _value(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at character `at`, and its end."""
    value, end = _DECODER.raw_decode(text, at)
    return value, end


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANK.match(text, at)
    return at if blanks is None else blanks.end()


def spans_of_tokens(raw: str, start: int, offsets: Offsets) -> Flags:
    """The span id of each trained token: uint8 [K], 1 to 3.

    Args: `raw`: the answer; `start`: its start in the text; `offsets`: the characters of the trained tokens, int
    [K, 2], in code points of the text. A token without characters belongs to the part of the previous token.
    """
    pairs = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    begins = np.where(pairs[:, 1] > pairs[:, 0], pairs[:, 0] - start, 0)
    begins = np.maximum.accumulate(begins)
    parts = np.array(parts_of_answer(raw), dtype=np.int64).reshape(-1, 2)
    places: npt.NDArray[np.int64] = np.searchsorted(parts[:, 0], begins, side="right") - 1
    spans: Flags = parts[places, 1].astype(np.uint8)
    return spans
