"""A finished block → its loss mask and its targets.

In: blocks as they will be trained on, including injected tokens. Out: the loss mask, token-aligned; the targets.

The mask depends on nothing outside the block. An assistant span, A and E included, has loss if it is closed within the
block and follows a user span that is wholly in the block. With `strict_user` off, a user span that was cut and reopened
by an injected U also counts as whole.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import (
    ASSISTANT,
    END,
    EOS,
    SYSTEM,
    USER,
    Found,
    Markers,
    Stream,
    find_markers,
)
from spanloom.supervision import IGNORED

Flags = npt.NDArray[np.uint8]


def loss_mask(
    input_ids: Stream,
    *,
    markers: Markers,
    injected: npt.NDArray[np.int32] | None = None,
    strict_user: bool = True,
) -> Flags:
    """The mask of blocks.

        [U 7 E A 8 E X]   →  [0 0 0 1 1 1 0]
        [U 7 E A 8 9 X]   →  [0 0 0 0 0 0 0]   an assistant span that is not closed

    Args: input_ids int32 or int64 [N, B]; injected int32 [N], tokens injected at the start of each block. The last of
    them is U: with `strict_user`, the user span that it opens never counts as complete. Returns uint8 [N, B].
    """
    if input_ids.ndim != 2:
        raise ChatError(f"blocks must have two dimensions, got {input_ids.shape}")
    if strict_user and injected is None:
        raise ChatError(
            "strict_user needs `injected`: which blocks begin with a user marker that was put there",
            remedy="give it, or strict_user=False",
        )
    marks = find_markers(cast(Stream, np.ascontiguousarray(input_ids).reshape(-1)), markers)
    return mask_of(marks, input_ids.shape, injected if strict_user else None)


def mask_of(marks: Found, shape: tuple[int, int], injected: npt.NDArray[np.int32] | None = None) -> Flags:
    """The mask of blocks with known markers, whose positions are flat over all rows. `injected`: strict user spans."""
    rows, width = shape
    positions, kinds = marks.positions, marks.kinds
    if not kinds.size:
        return np.zeros(shape, np.uint8)
    row = positions // width
    number = np.arange(kinds.size)

    ends = kinds == END
    follows = np.empty(kinds.size, np.bool_)  # the marker before is in the same block
    follows[0] = False
    np.equal(row[1:], row[:-1], out=follows[1:])
    before = np.empty_like(kinds)
    before[0] = EOS
    before[1:] = kinds[:-1]
    closes = ends & follows  # E after U or A, nothing between them, closes that span

    # The user span before each A: the last marker before it, in the same block, that decides whether it is complete.
    user_closed = closes & (before == USER)
    if injected is not None:
        put_there = (kinds == USER) & (positions - row * width == injected[row] - 1)
        user_closed[1:] &= ~put_there[:-1]
    settles = user_closed | (kinds == USER) | (kinds == SYSTEM) | (kinds == EOS)
    last = np.maximum.accumulate(np.where(settles, number, 0))
    sound = user_closed[last] & (row[last] == row) & (kinds == ASSISTANT)

    closed = np.flatnonzero(closes & (before == ASSISTANT))
    closed = closed[sound[closed - 1]]
    # Lengths outside and inside the spans, alternating: [to the first A, to its E, to the next A, …, rest].
    edges = np.empty(2 * closed.size + 2, np.int64)
    edges[0], edges[-1] = 0, rows * width
    edges[1:-1:2] = positions[closed - 1]
    edges[2:-1:2] = positions[closed] + 1
    values = np.zeros(edges.size - 1, np.uint8)
    values[1::2] = 1
    return np.repeat(values, np.diff(edges)).reshape(shape)


def targets(input_ids: Stream, mask: Flags) -> npt.NDArray[np.int64]:
    """The target of each position of `input_ids[:, :-1]`: the next token, or `IGNORED` if that token has no loss.

    Args: input_ids [N, B]; mask uint8 [N, B], token-aligned. Returns int64 [N, B - 1].
    """
    return np.where(mask[:, 1:] != 0, input_ids[:, 1:], IGNORED).astype(np.int64)
