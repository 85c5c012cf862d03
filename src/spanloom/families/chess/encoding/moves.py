"""Moves in UCI → token ids, in the vocabulary's one spelling of each move.

In: strings, and the boards on which the moves are made. Out: ids 0 … 1923, `NO_MOVE` for a missing move (null, ''),
`UNKNOWN_MOVE` for a move that is not in the vocabulary.

A promotion to a knight loses its n (a7a8n → a7a8). Castling is written as the king taking its rook: e1g1 becomes e1h1
if, and only if, a king is on e1; a rook's e1g1 stays. Legality is not checked.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.families.chess.encoding.fen import BLACK_KING, E1, E8, WHITE_KING, Boards
from spanloom.families.chess.encoding.vocabulary import MOVE_IDS, MOVES, NO_MOVE

MoveIds = npt.NDArray[np.int16]
"""int16 [N]: token ids or NO_MOVE; UNKNOWN_MOVE only where documented."""

UNKNOWN_MOVE = -2

_CASTLING = {
    MOVE_IDS[standard]: (place, MOVE_IDS[normal])
    for standard, place, normal in (
        ("e1g1", E1, "e1h1"),
        ("e1c1", E1, "e1a1"),
        ("e8g8", E8, "e8h8"),
        ("e8c8", E8, "e8a8"),
    )
}
"""Id of a castling move in standard UCI → the king's place, and the id of the vocabulary's spelling.

The move is castling only if a king is at this place.
"""


def move_id(move: Any, board: npt.NDArray[np.uint8]) -> int:
    """The id of a move made on `board`, uint8 [68]; NO_MOVE for None, NaN and '', UNKNOWN_MOVE for any other value."""
    if not move or move != move:  # only NaN differs from itself
        return NO_MOVE
    code = _lookup(move) if isinstance(move, str) else UNKNOWN_MOVE
    if code in _CASTLING:
        place, normal = _CASTLING[code]
        return normal if board[place] in (WHITE_KING, BLACK_KING) else code
    return code


def column_ids(moves: pa.Array, boards: Boards) -> MoveIds:
    """The ids of a column of moves, each made on its row's board; like `move_id`."""
    encoded = moves.cast(pa.string()).dictionary_encode()
    known = [_lookup(move) if move else NO_MOVE for move in encoded.dictionary.to_pylist()]
    table = np.array([*known, NO_MOVE], np.int16)  # the last entry is for null
    ids: MoveIds = table[np.asarray(encoded.indices.fill_null(len(known)))]
    for standard, (place, normal) in _CASTLING.items():
        if standard in known:
            rows = np.flatnonzero(ids == standard)
            kings = np.isin(boards[rows, place], (WHITE_KING, BLACK_KING))
            ids[rows[kings]] = normal
    return ids


def move_name(move: int) -> str | None:
    """The move in UCI, or None for NO_MOVE and UNKNOWN_MOVE."""
    return MOVES[move] if move >= 0 else None


def _lookup(move: str) -> int:
    return MOVE_IDS.get(move[:4] if len(move) == 5 and move[4] == "n" else move, UNKNOWN_MOVE)
