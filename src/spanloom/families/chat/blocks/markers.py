"""The control strings of a transcript, their ids, and their positions in a stream of tokens.

In: a tokenizer's ids; flat tokens. Out: `Markers`, checked; `Found`, the markers of a stream in order.

Only the five markers change the state of a stream (role, span, conversation); all other tokens are copied. So code that
works on a stream finds the markers once and then handles only those, a few in a thousand tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ChatError
from spanloom.records.scalars import is_integer

PAD_STRING = "<|PAD|>"
EOS_STRING = "<|EOS|>"
SYSTEM_STRING = "<|SYSTEM|>"
USER_STRING = "<|USER|>"
ASSISTANT_STRING = "<|ASSISTANT|>"
END_STRING = "<|END|>"
CONTROL_STRINGS = (PAD_STRING, EOS_STRING, SYSTEM_STRING, USER_STRING, ASSISTANT_STRING, END_STRING)
"""No message text may contain one of these: it would be read as structure."""

MARKER_NAMES = {text.strip("<|>").lower(): text for text in CONTROL_STRINGS}
"""`pad`, `eos`, …: their names in `Markers` and manifests."""

EOS, SYSTEM, USER, ASSISTANT, END = range(5)
"""Kinds of markers, in the order of `Markers.ids`."""

Stream = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]

_CHUNK = 1 << 16
"""Tokens searched at once: few enough that the next operation still finds them in the CPU cache."""


@dataclass(frozen=True, kw_only=True)
class Markers:
    """The ids of the control strings. The five markers are required and must differ; only padded blocks need `pad`.

    Raises ChatError, a ValueError, naming the strings whose ids are missing or equal.
    """

    eos: int
    system: int
    user: int
    assistant: int
    end: int
    pad: int | None = None

    def __post_init__(self) -> None:
        named: dict[str, Any] = {text: getattr(self, name) for name, text in MARKER_NAMES.items()}
        if self.pad is None:
            del named[PAD_STRING]
        remedy = "use a tokenizer in which each control string is one token"
        if missing := [name for name, token in named.items() if token is None]:
            raise ChatError(f"the tokenizer has no id for {', '.join(missing)}", remedy=remedy)
        for name, token in named.items():
            if not is_integer(token) or not 0 <= token < 2**63:
                raise ChatError(f"the id of {name} is {token!r}, not a number from 0 to 2**63 - 1")
            object.__setattr__(self, name.strip("<|>").lower(), int(token))
        same = [name for name, token in named.items() if list(named.values()).count(token) > 1]
        if same:
            shared = ", ".join(f"{name} {named[name]}" for name in same)
            raise ChatError(f"control strings share an id: {shared}", remedy=remedy)

    @property
    def ids(self) -> tuple[int, int, int, int, int]:
        """Ids by kind: `ids[USER]`."""
        return (self.eos, self.system, self.user, self.assistant, self.end)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The markers of a stream, in order.

    positions  int64 [M]  index of each in the stream
    kinds      uint8 [M]  EOS, SYSTEM, USER, ASSISTANT or END
    """

    positions: Positions
    kinds: Kinds


def find_markers(tokens: Stream, markers: Markers) -> Found:
    """The markers in flat tokens, int32 or int64 [T], none of them negative.

    [7 7 U 7 E A]  →  positions [2 4 5]  kinds [USER END ASSISTANT]

    """
    unsigned = tokens.view(np.uint32 if tokens.dtype == np.int32 else np.uint64)
    number = unsigned.dtype.type
    reachable = [token for token in sorted(markers.ids) if token <= np.iinfo(tokens.dtype).max]
    kind_of_rank = np.array([markers.ids.index(token) for token in reachable] or [EOS], np.uint8)
    runs = _runs(reachable)
    size = min(_CHUNK, tokens.size)
    distance, hits, more = np.empty(size, unsigned.dtype), np.zeros(size, np.bool_), np.empty(size, np.bool_)
    positions, ids = [np.empty(0, np.int64)], [tokens[:0]]
    for start in range(0, tokens.size, _CHUNK):
        chunk = unsigned[start : start + _CHUNK]
        matches = hits[: chunk.size]
        for turn, (first, last) in enumerate(runs):
            into = more[: chunk.size] if turn else matches
            if first == last:
                np.equal(chunk, number(first), out=into)
            else:  # one comparison for a run of ids: a smaller id wraps around to a large unsigned number
                np.subtract(chunk, number(first), out=distance[: chunk.size])
                np.less_equal(distance[: chunk.size], number(last - first), out=into)
            if turn:
                np.logical_or(matches, into, out=matches)
        indices = np.flatnonzero(matches)
        positions.append(indices + start)
        ids.append(tokens[start : start + _CHUNK][indices])
    which: npt.NDArray[Any] = np.concatenate(ids)
    rank = np.zeros(which.size, np.uint8)
    for token in reachable[1:]:
        rank += which >= token
    return Found(positions=np.concatenate(positions), kinds=kind_of_rank[rank])


def _runs(ids: list[int]) -> list[tuple[int, int]]:
    """Sorted ids as runs of consecutive ids: [0, 10, 11, 12] → [(0, 0), (10, 12)]."""
    runs: list[tuple[int, int]] = []
    for token in ids:
        if runs and runs[-1][1] + 1 == token:
            runs[-1] = (runs[-1][0], token)
        else:
            runs.append((token, token))
    return runs
