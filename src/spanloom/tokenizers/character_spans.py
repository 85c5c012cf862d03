"""A span of characters in a text → the tokens that start inside it.

In: the offsets of each token, as the tokenizers package gives them: int [T, 2], start and end in code points; and the
span. Out: a mask, and the first and the last token. A token with empty offsets (one that the tokenizer adds) is in no
span. A token that starts before the span and reaches into it is not in the span; such tokens are counted.

    text      p r o m p t : y e s .          span [7, 11)
    offsets   (0,0) (0,6) (6,8) (8,10) (10,11)
    mask        0     0     0     1      1      one token straddles the start
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.supervision import Flags

Offsets = npt.NDArray[np.int64] | Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class TokensOfSpan:
    """The tokens of a span of characters.

    mask        uint8 [T]  1 = starts inside the span, and has characters
    first       the first such token; T if there is none
    end         the last such token + 1; T if there is none
    straddling  number of tokens that start before the span and end inside or after it
    """

    mask: Flags
    first: int
    end: int
    straddling: int

    def __bool__(self) -> bool:
        return self.first < self.end


def tokens_of_span(offsets: Offsets, start: int, end: int | None = None) -> TokensOfSpan:
    """The tokens that start in the characters [start, end); without `end`, at `start` or later.

    Args: offsets int [T, 2], in code points of the same text as `start` and `end`. Raises ValueError for another shape,
    a negative start, or an end before it.
    """
    pairs = np.asarray(offsets, dtype=np.int64) if len(offsets) else np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"offsets must be of shape [T, 2], got {pairs.shape}")
    if start < 0 or (end is not None and end < start):
        raise ValueError(f"not a character span: [{start}, {end})")
    begins, ends = pairs[:, 0], pairs[:, 1]
    inside = (begins >= start) & (ends > begins)
    if end is not None:
        inside &= begins < end
    positions = np.flatnonzero(inside)
    return TokensOfSpan(
        mask=inside.astype(np.uint8),
        first=int(positions[0]) if positions.size else len(pairs),
        end=int(positions[-1]) + 1 if positions.size else len(pairs),
        straddling=int(np.count_nonzero((begins < start) & (ends > start))),
    )
