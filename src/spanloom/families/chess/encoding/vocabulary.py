"""The chess vocabulary: 1,968 token ids, the 41 of them that the board head predicts, and the moves.

In: nothing. Out: constants and lookup tables.

    0 … 1923      moves, in UCI: every move of a queen or a knight on an empty board, then promotions to queen, rook
                  and bishop. A promotion without a letter (a7a8) is to a knight. Castling is the king taking its own
                  rook (e1h1).
    1924 … 1935   pieces
    1936 … 1947   start_pos … end_think
    1948 … 1963   castling rights
    1964 … 1967   end_var, continue_var, new_variation, generic_move
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt

FILES, RANKS = "abcdefgh", "12345678"
SQUARES = tuple(file + rank for rank in RANKS for file in FILES)
"""a1, b1, …, h8: the order of squares in a board's tokens and in the table of moves."""


def _move_strings() -> list[str]:
    moves = []
    for source in range(64):
        for target in range(64):
            across, up = abs(source % 8 - target % 8), abs(source // 8 - target // 8)
            queen = source != target and (across == 0 or up == 0 or across == up)
            if queen or {across, up} == {1, 2}:
                moves.append(SQUARES[source] + SQUARES[target])
    for last, final in (("7", "8"), ("2", "1")):
        for file in range(8):
            for aside in (file - 1, file, file + 1):
                if 0 <= aside < 8:
                    moves += [f"{FILES[file]}{last}{FILES[aside]}{final}{piece}" for piece in "qrb"]
    return moves


PIECES = tuple(
    f"{color}_{piece}"
    for color in ("white", "black")
    for piece in ("king", "queen", "rook", "bishop", "knight", "pawn")
)
SPECIALS = (
    *("start_pos", "end_pos", "white_to_move", "black_to_move", "empty", "pad", "bos", "eos"),
    *("wl_value", "d_value", "start_think", "end_think"),
)
CASTLING = (
    *("".join(rights) for size in range(1, 5) for rights in combinations("KQkq", size)),
    "no_castling_rights",
)
SIGNALS = ("end_var", "continue_var", "new_variation", "generic_move")

MOVES = tuple(_move_strings())
TOKENS = (*MOVES, *PIECES, *SPECIALS, *CASTLING, *SIGNALS)
TOKEN_IDS = {token: number for number, token in enumerate(TOKENS)}
MOVE_IDS = {move: number for number, move in enumerate(MOVES)}
VOCABULARY_SIZE, MOVE_COUNT = len(TOKENS), len(MOVES)

BOARD_TOKENS = (
    *PIECES,
    *("start_pos", "end_pos", "white_to_move", "black_to_move", "empty", "wl_value", "d_value"),
    *CASTLING,
    *SIGNALS,
    *("end_think", "start_think"),
)
"""The tokens that the board head predicts, in the order of its indices: no moves, pad, bos or eos."""
BOARD_INDICES = {token: number for number, token in enumerate(BOARD_TOKENS)}
BOARD_SIZE = len(BOARD_TOKENS)

BOARD_LENGTH = 68
"""Tokens of a board: start_pos, 64 squares, end_pos, castling rights, side to move."""
PLY_LENGTH = 3
"""Tokens of a ply after its board: move, wl_value, d_value."""
IGNORE = -100
NO_MOVE = -1
"""A missing or unknown move in an array of move ids."""

PAD = TOKEN_IDS["pad"]
WL_VALUE, D_VALUE = TOKEN_IDS["wl_value"], TOKEN_IDS["d_value"]
START_THINK, END_THINK, END_VAR = (TOKEN_IDS[token] for token in ("start_think", "end_think", "end_var"))

INDEX_TO_ID: npt.NDArray[np.int64] = np.array([TOKEN_IDS[token] for token in BOARD_TOKENS], np.int64)
"""int64 [41]: the id of each board index."""
ID_TO_INDEX: npt.NDArray[np.int64] = np.full(VOCABULARY_SIZE, IGNORE, np.int64)
"""int64 [1968]: the board index of each id; -100 for ids that the board head does not predict."""
ID_TO_INDEX[INDEX_TO_ID] = np.arange(BOARD_SIZE)

EMPTY = BOARD_INDICES["empty"]
START_POS, END_POS = BOARD_INDICES["start_pos"], BOARD_INDICES["end_pos"]
WHITE_TO_MOVE, BLACK_TO_MOVE = BOARD_INDICES["white_to_move"], BOARD_INDICES["black_to_move"]
PIECE_INDICES = {symbol: BOARD_INDICES[token] for symbol, token in zip("KQRBNPkqrbnp", PIECES, strict=True)}
"""The board index of each letter of a FEN."""
PIECE_SYMBOLS = {index: symbol for symbol, index in PIECE_INDICES.items()}
CASTLING_INDICES: npt.NDArray[np.uint8] = np.array(
    [
        BOARD_INDICES["".join(right for bit, right in enumerate("KQkq") if rights >> bit & 1) or "no_castling_rights"]
        for rights in range(16)
    ],
    np.uint8,
)
"""uint8 [16]: the board index of each set of castling rights; K is bit 0, Q bit 1, k bit 2, q bit 3."""
