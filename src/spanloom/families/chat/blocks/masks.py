"""A finished block → which of its tokens carry loss, and the targets.

In: blocks as they will be trained on, injected tokens included. Out: the loss mask, token-aligned; the targets.

A block is judged by what is in it alone. Loss is on assistant spans, A and E included, that are closed within the
block and follow a user span that is in the block whole; with `strict_user` off, one that was cut and opened again
by an injected U will do.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from spanloom.errors import ChatError
from spanloom.families.chat.markers import ASSISTANT, END, EOS, SYSTEM, USER, Found, Markers, Stream, find_markers
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

    Args: input_ids int32 or int64 [N, B]; injected int32 [N], tokens injected at the start of each block, the last of
    them U: with `strict_user` such a user span never counts as complete. Returns uint8 [N, B].
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
    """The mask of blocks whose markers are known: `marks` counts positions through all rows. `injected`: be strict."""
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

    # What is known of the user at an A: the last marker before it that settles it, in the same block.
    user_closed = closes & (before == USER)
    if injected is not None:
        put_there = (kinds == USER) & (positions - row * width == injected[row] - 1)
        user_closed[1:] &= ~put_there[:-1]
    settles = user_closed | (kinds == USER) | (kinds == SYSTEM) | (kinds == EOS)
    last = np.maximum.accumulate(np.where(settles, number, 0))
    sound = user_closed[last] & (row[last] == row) & (kinds == ASSISTANT)

    closed = np.flatnonzero(closes & (before == ASSISTANT))
    closed = closed[sound[closed - 1]]
    # Lengths of what is between and within the spans, in turn: [to the first A, to its E, to the next A, …, rest].
    edges = np.empty(2 * closed.size + 2, np.int64)
    edges[0], edges[-1] = 0, rows * width
    edges[1:-1:2] = positions[closed - 1]
    edges[2:-1:2] = positions[closed] + 1
    values = np.zeros(edges.size - 1, np.uint8)
    values[1::2] = 1
    return np.repeat(values, np.diff(edges)).reshape(shape)


def targets(input_ids: Stream, mask: Flags) -> npt.NDArray[np.int64]:
    """What each position of `input_ids[:, :-1]` is to predict: the token after it, or `IGNORED` where that has no loss.

    Args: input_ids [N, B]; mask uint8 [N, B], token-aligned. Returns int64 [N, B - 1].
    """
    return np.where(mask[:, 1:] != 0, input_ids[:, 1:], IGNORED).astype(np.int64)
