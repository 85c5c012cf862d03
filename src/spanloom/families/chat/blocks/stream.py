"""A stream of tokens for packing: two arrays read as one, and the positions of user and system spans.

In: flat tokens and their markers. Out: slices of the stream, copied together; the slices to inject before a block.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import END, EOS, SYSTEM, USER, Found, Markers, Stream, find_markers

Tokens = Stream | Sequence[int]


def as_stream(tokens: Tokens, dtype: np.dtype[Any]) -> Stream:
    """Tokens as a flat array of `dtype`; no copy if they already are. Raises ChatError."""
    try:
        array = np.asarray(tokens)
    except (OverflowError, ValueError) as refusal:
        raise ChatError(f"these are no tokens: {refusal}") from None
    if array.ndim != 1:
        raise ChatError(f"tokens come as one flat stream, got an array of shape {array.shape}")
    if not array.size:
        return np.empty(0, dtype)
    if array.dtype.kind not in "iu":
        # Numbers too large for numpy's integers arrive as objects or floats.
        odd = next((token for token in tokens if isinstance(token, int) and not -(2**63) <= token < 2**63), None)
        if odd is not None:
            raise ChatError(f"token id {odd} is not a number from 0 to 2**63 - 1")
        raise ChatError(f"tokens are whole numbers, got an array of {array.dtype}")
    if array.dtype.kind == "i" and array.min() < 0:
        index = int(np.argmax(array < 0))
        raise ChatError(f"token id {array[index]} is negative", where=f"token {index} of those handed over")
    highest = np.iinfo(dtype).max
    if np.iinfo(array.dtype).max > highest and array.max() > highest:
        index = int(np.argmax(array > highest))
        raise ChatError(
            f"token id {array[index]} does not fit into {dtype.name}",
            where=f"token {index} of those handed over",
            remedy="pack with dtype=int64" if array[index] < 2**63 else None,
        )
    stream: Stream = np.ascontiguousarray(array, dtype)
    return stream


class JoinedStream:
    """Two arrays read as one: the held tokens and the new ones. The second is large, so joining does not copy it."""

    def __init__(self, held: Stream, fed: Stream) -> None:
        self._held, self._fed = held, fed
        self._border = held.size
        self.size = held.size + fed.size

    def find(self, markers: Markers) -> Found:
        first, second = find_markers(self._held, markers), find_markers(self._fed, markers)
        return Found(
            positions=np.concatenate([first.positions, second.positions + self._border]),
            kinds=np.concatenate([first.kinds, second.kinds]),
        )

    def between(self, start: int, stop: int) -> Stream:
        """One slice; a view if it lies within one array."""
        border = self._border
        if stop <= border:
            return self._held[start:stop]
        if start >= border:
            return self._fed[start - border : stop - border]
        joined: Stream = np.concatenate([self._held[start:], self._fed[: stop - border]])
        return joined

    def gather(self, slices: list[tuple[int, int]]) -> Stream:
        """The slices, concatenated with one copy."""
        border = self._border
        held, fed = self._held.data, self._fed.data
        pieces: list[memoryview] = []
        for start, stop in slices:
            if start >= border:
                pieces.append(fed[start - border : stop - border])
            elif stop <= border:
                pieces.append(held[start:stop])
            else:
                pieces += (held[start:], fed[: stop - border])
        gathered: Any = np.frombuffer(bytearray().join(pieces), self._held.dtype)
        return cast(Stream, gathered)


class StreamSpans:
    """Positions of the user and system spans of a stream. Lists, since a block reads only a few single values.

    begins, nexts  position of each U, and of the next marker after it; the stream's end if there is none yet
    systems        the complete system spans, as slices: E follows S with no other marker between
    stops          position of each X
    """

    def __init__(self, marks: Found, size: int, width: int) -> None:
        positions, kinds = marks.positions, marks.kinds
        self._width = width
        users = np.flatnonzero(kinds == USER)
        self.begins: list[int] = positions[users].tolist()
        self.nexts: list[int] = np.append(positions, size)[users + 1].tolist()
        ends = np.flatnonzero((kinds[1:] == END) & (kinds[:-1] == SYSTEM)) + 1
        self._system_to: list[int] = (positions[ends] + 1).tolist()
        self._system_of: list[int] = positions[ends - 1].tolist()
        self.stops: list[int] = positions[kinds == EOS].tolist()

    def system_at(self, at: int) -> tuple[int, int] | None:
        """The system span in force at a position, if a block has room for it: the last complete one since the last X.

        One that is too long is not injected, but still replaces the ones before it.
        """
        number = bisect_right(self._system_to, at) - 1
        if number < 0:
            return None
        start, stop = self._system_of[number], self._system_to[number]
        stops = bisect_left(self.stops, at)
        if stops and self.stops[stops - 1] >= stop:
            return None
        return (start, stop) if stop - start + 1 <= self._width - 1 else None

    def injected_at(self, at: int) -> list[tuple[int, int]]:
        """The slices of the stream to inject at the beginning of a block that starts at `at`."""
        span = bisect_left(self.begins, at) - 1
        if span < 0 or at > self.nexts[span]:
            return []
        begin = self.begins[span]
        system = self.system_at(begin)
        return [(begin, begin + 1)] if system is None else [system, (begin, begin + 1)]


def moved(marks: Found, slices: list[tuple[int, int]]) -> Found:
    """The markers of the concatenated slices. Slices may be in any order and may overlap."""
    if not slices:
        return Found(positions=marks.positions[:0], kinds=marks.kinds[:0])
    bounds = np.array(slices, np.int64)
    lengths = bounds[:, 1] - bounds[:, 0]
    shifts = np.cumsum(lengths) - lengths - bounds[:, 0]
    edges = np.searchsorted(marks.positions, bounds)
    counts = edges[:, 1] - edges[:, 0]
    firsts = edges[:, 0] - (np.cumsum(counts) - counts)
    taken = np.arange(int(counts.sum())) + np.repeat(firsts, counts)
    return Found(positions=marks.positions[taken] + np.repeat(shifts, counts), kinds=marks.kinds[taken])
