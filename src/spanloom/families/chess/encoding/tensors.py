"""A slice of a game's sequence → the arrays of one training sample.

In: a `Game`, which boards are written, the start and the length S of the slice. Out, each of length S:

    input_ids         int64    token ids, then pad
    board_target_ids  int64    board index of the next token; generic_move before a move; -100: ignored
    move_target_ids   int64    the best move at positions that predict a move; elsewhere -100
    move_mask         bool     True at these positions
    wl_positions      bool     the wl_value tokens      d_positions   the d_value tokens
    wl_targets        float32  win - loss               d_targets     draw
    wdl_valid         bool     whether win, draw and loss are all given
    block_id          int64    the tokens of one board share a number; every other position has its own

A ply with a written board (its move is at position k), then a ply whose board was skipped:

    position          k-1        k      k+1   k+2   |  k+3    k+4   k+5
    token             to move    move   wl    d     |  move   wl    d
    board_target_ids  generic    wl     d     generic  wl     d     …
    move_target_ids   best       -100   -100  best'    …
    wl_targets        wl         0      wl    wl'      0      wl'   0
    d_targets         d          0      0     d        0      0     d'

Position k+2 predicts the second ply (best', wl'), but its d_targets is d, the first ply's draw value. The reason: the
model reads d_targets as an input at this position, so d' would leak the next value to the model. `literal_d_targets`
nevertheless writes d' there, to reproduce runs that did so.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.families.chess.encoding.games import Game, Include, row_offsets, written_boards
from spanloom.families.chess.encoding.vocabulary import (
    BOARD_INDICES,
    BOARD_LENGTH,
    D_VALUE,
    ID_TO_INDEX,
    IGNORE,
    INDEX_TO_ID,
    PAD,
    PLY_LENGTH,
    WL_VALUE,
)
from spanloom.families.chess.errors import ChessError

Tensors = dict[str, npt.NDArray[Any]]

GENERIC_MOVE = BOARD_INDICES["generic_move"]
_UNIT = BOARD_LENGTH + PLY_LENGTH
_SHORT_IDS = INDEX_TO_ID.astype(np.int16)
_BOARD_PLACES = np.arange(BOARD_LENGTH)


def sample(
    game: Game,
    include: Sequence[bool] | Include,
    start: int,
    max_seq_len: int,
    *,
    literal_d_targets: bool = False,
) -> Tensors:
    """The sample of `max_seq_len` tokens from `start` on. Raises ChessError if no row begins at `start`."""
    written = written_boards(game.played, include)
    return cut(
        game, written, row_offsets(game.played, written), start, max_seq_len, literal_d_targets=literal_d_targets
    )


def cut(
    game: Game,
    written: Include,
    offsets: npt.NDArray[np.int64],
    start: int,
    max_seq_len: int,
    *,
    literal_d_targets: bool = False,
) -> Tensors:
    """Like `sample`, with the results of `written_boards` and `row_offsets` as arguments."""
    first = int(np.searchsorted(offsets, start))
    if first >= len(game) or offsets[first] != start:
        raise ChessError(f"no row of the game begins at token {start}", remedy="give one of valid_starts")
    rows = slice(first, int(np.searchsorted(offsets[:-1], start + max_seq_len)))
    boards = written[rows]
    moves = game.played[rows] >= 0
    begins = offsets[rows] - start

    ids = _tokens(game.boards[rows], game.played[rows], boards, moves)[:max_seq_len]
    made = blank(ids, max_seq_len)
    number_blocks(made, begins[boards])

    at = (begins + BOARD_LENGTH * boards)[moves]  # the positions of the moves
    kept = int(np.searchsorted(at, max_seq_len - 2))  # moves whose values are inside the slice
    at, best, values = at[:kept], game.best[rows][moves][:kept], game.values[rows][moves][:kept]
    wl, d, valid = values_of(values)
    write_values(made, at + 1, wl, d, valid)

    # The position that predicts each move. If the slice begins with a move, no position predicts it.
    unseen = 1 if kept and at[0] == 0 else 0
    before, best, wl, d, valid = at[unseen:] - 1, best[unseen:], wl[unseen:], d[unseen:], valid[unseen:]
    made["board_target_ids"][before] = GENERIC_MOVE
    named = best >= 0
    made["move_target_ids"][before[named]] = best[named]
    made["move_mask"][before[named]] = True
    made["wl_targets"][before] = wl
    if literal_d_targets:
        made["d_targets"][before] = d
        made["wdl_valid"][before] = valid
    else:
        taken = made["d_positions"][before]  # these positions have the draw value of the previous ply
        made["d_targets"][before[~taken]] = d[~taken]
        made["wdl_valid"][before] = valid & (made["wdl_valid"][before] | ~taken)
    return made


def blank(ids: npt.NDArray[Any], max_seq_len: int) -> Tensors:
    """The arrays of a sample with only its tokens, and the next tokens as board targets."""
    made: Tensors = {
        "input_ids": np.full(max_seq_len, PAD, np.int64),
        "board_target_ids": np.full(max_seq_len, IGNORE, np.int64),
        "move_target_ids": np.full(max_seq_len, IGNORE, np.int64),
        "move_mask": np.zeros(max_seq_len, np.bool_),
        "wl_positions": np.zeros(max_seq_len, np.bool_),
        "d_positions": np.zeros(max_seq_len, np.bool_),
        "wl_targets": np.zeros(max_seq_len, np.float32),
        "d_targets": np.zeros(max_seq_len, np.float32),
        "wdl_valid": np.zeros(max_seq_len, np.bool_),
    }
    made["input_ids"][: ids.size] = ids
    made["board_target_ids"][: max(ids.size - 1, 0)] = ID_TO_INDEX[ids[1:]]
    return made


def number_blocks(made: Tensors, begins: npt.NDArray[np.int64]) -> None:
    """Adds `block_id`. `begins`: the starts of the boards, ascending; the last board may be cut."""
    length = made["input_ids"].size
    block_id = np.arange(begins.size, begins.size + length)
    inside = (begins[:, None] + _BOARD_PLACES).ravel()
    inside = inside[: np.searchsorted(inside, length)]
    block_id[inside] = np.repeat(np.arange(begins.size), BOARD_LENGTH)[: inside.size]
    made["block_id"] = block_id


def values_of(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """win - loss, draw, and whether no value is missing, from win, draw and loss [N, 3]. Missing values count as 0."""
    missing = np.isnan(values)
    filled = np.where(missing, 0.0, values)
    valid = np.asarray(~missing.any(axis=1))
    return filled[:, 0] - filled[:, 2], filled[:, 1], valid


def write_values(
    made: Tensors,
    at: npt.NDArray[np.int64],
    wl: npt.NDArray[np.float64],
    d: npt.NDArray[np.float64],
    valid: npt.NDArray[np.bool_] | bool,
) -> None:
    """Writes values at their own tokens. `at`: the positions of the wl_value tokens; each d_value token follows."""
    made["wl_positions"][at] = True
    made["d_positions"][at + 1] = True
    made["wl_targets"][at] = wl
    made["d_targets"][at + 1] = d
    made["wdl_valid"][at] = valid
    made["wdl_valid"][at + 1] = valid


def _tokens(
    boards: npt.NDArray[np.uint8], played: npt.NDArray[np.int16], written: Include, moves: Include
) -> npt.NDArray[np.int16]:
    """The rows' tokens end to end. Every row is laid out in full; then the tokens that are not written are removed."""
    laid = np.empty((played.size, _UNIT), np.int16)
    laid[:, :BOARD_LENGTH] = _SHORT_IDS[boards]
    laid[:, BOARD_LENGTH] = played
    laid[:, BOARD_LENGTH + 1] = WL_VALUE
    laid[:, BOARD_LENGTH + 2] = D_VALUE
    kept = np.empty(laid.shape, np.bool_)
    kept[:, :BOARD_LENGTH] = written[:, None]
    kept[:, BOARD_LENGTH:] = moves[:, None]
    return laid[kept]
