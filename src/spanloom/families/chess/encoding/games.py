"""A game as arrays, and the layout of its rows as a sequence of tokens.

In: one `Game`, and which of its boards are written. Out: the starts of its rows, and the valid starts of samples.

    board 0 (68) | move 0 | wl_value | d_value | board 1 (68) | move 1 | wl_value | d_value | move 2 | …
    └ block 0 ─┘                               └ block 1 ─┘                                └ board 2 was skipped

The first board is always written. The board after a row without a move is also always written, because it cannot be
derived from a move.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.families.chess.encoding.fen import Boards
from spanloom.families.chess.encoding.moves import MoveIds
from spanloom.families.chess.encoding.vocabulary import BOARD_LENGTH, PLY_LENGTH
from spanloom.families.chess.errors import ChessError

Include = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Game:
    """The P rows of one game in the order of their plies.

    `boards`   uint8 [P, 68], board indices
    `played`   int16 [P], move ids; NO_MOVE if no move was played (the last position of a game)
    `best`     int16 [P], move ids; NO_MOVE if missing or unknown
    `values`   float64 [P, 3], win, draw, loss for the side to move; NaN if missing
    """

    boards: Boards
    played: MoveIds
    best: MoveIds
    values: Values

    def __len__(self) -> int:
        return len(self.played)


def written_boards(played: MoveIds, include: Sequence[bool] | Include) -> Include:
    """Which boards are written if those in `include` are requested: bool [P].

    played    e2e4  e7e5   –    g8e7  f3d4
    include   T     F     F     F     F
    written   T     F     F     T     F      the first, and the one after the row without a move
    """
    written = np.array(include, np.bool_)
    if written.shape != played.shape:
        raise ChessError(f"include has {written.size} values for a game of {played.size} rows")
    written[:1] = True
    written[1:] |= played[:-1] < 0
    return written


def row_offsets(played: MoveIds, written: Include) -> npt.NDArray[np.int64]:
    """The start of each row in the sequence, then the sequence's length: int64 [P + 1]."""
    offsets = np.zeros(played.size + 1, np.int64)
    np.cumsum(BOARD_LENGTH * written + PLY_LENGTH * (played >= 0), out=offsets[1:])
    return offsets


def valid_starts(
    played: MoveIds, written: Include, offsets: npt.NDArray[np.int64], *, start_on_board: bool = False
) -> npt.NDArray[np.int64]:
    """The valid starts of a sample: the game's start, and after the d_value of every ply except the last. int64 [N].

    `start_on_board` keeps only those with a written board.
    """
    starts = np.zeros(max(int(np.count_nonzero(played >= 0)), 1), np.int64)
    starts[1:] = offsets[1:][played >= 0][:-1]
    return starts[np.isin(starts, offsets[:-1][written])] if start_on_board else starts
