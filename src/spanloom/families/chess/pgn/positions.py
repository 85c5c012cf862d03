"""Moves and FENs of a game, computed faster than by python-chess, with equal results.

In: a python-chess board, a move in algebraic notation. Out: the move; the board as FEN.

Cases without a shortcut (castling, promotions, several pieces that could move, a king in check) are left to
python-chess. Only for standard chess: Chess960 has other castling rights.
"""

import re
from functools import lru_cache

import chess

from spanloom.families.chess.encoding.python_chess import uci_of

_SAN = re.compile(r"([NBRQK]?)([a-h]?)([1-8]?)x?([a-h][1-8])[+#]?")
_PIECES = {"N": chess.KNIGHT, "B": chess.BISHOP, "R": chess.ROOK, "Q": chess.QUEEN, "K": chess.KING}
_SQUARES = {name: square for square, name in enumerate(chess.SQUARE_NAMES)}
_RUNS = tuple(("1" * length, str(length)) for length in range(8, 1, -1))


def move_of(board: chess.Board, san: str) -> chess.Move:
    """The legal move for a text in algebraic notation. Raises ValueError like `board.parse_san`."""
    return _plain_move(board, san) or board.parse_san(san)


def _plain_move(board: chess.Board, san: str) -> chess.Move | None:
    """The move of a text that fits exactly one piece and is legal; None if the shortcut does not decide."""
    match = _SAN.fullmatch(san)
    if match is None:
        return None
    symbol, file, rank, square = match.groups()
    target = _SQUARES[square]
    own, occupied = board.occupied_co[board.turn], board.occupied
    if own & chess.BB_SQUARES[target]:
        return None
    if not symbol:
        source = _pawn_source(board, file, target) if not rank else None
    else:
        reach = _reach(_PIECES[symbol], target, occupied)
        pieces = board.pieces_mask(_PIECES[symbol], board.turn) & reach
        if file:
            pieces &= chess.BB_FILES[ord(file) - 97]
        if rank:
            pieces &= chess.BB_RANKS[int(rank) - 1]
        source = pieces.bit_length() - 1 if pieces and not pieces & (pieces - 1) else None
    if source is None:
        return None
    move = chess.Move(source, target)
    king = board.king(board.turn)
    if symbol == "K" or king is None or board.checkers_mask():
        return move if board.is_legal(move) else None
    # A piece on a line with its king may be pinned if an enemy slider is on that line too.
    sliders = board.occupied_co[not board.turn] & (board.bishops | board.rooks | board.queens)
    if chess.BB_RAYS[king][source] & sliders:
        return move if board.is_legal(move) else None
    return move


def _reach(kind: int, square: int, occupied: int) -> int:
    """The squares from which a piece can move to a square."""
    if kind == chess.KNIGHT:
        return chess.BB_KNIGHT_ATTACKS[square]
    if kind == chess.KING:
        return chess.BB_KING_ATTACKS[square]
    reach = 0
    if kind != chess.ROOK:
        reach |= chess.BB_DIAG_ATTACKS[square][chess.BB_DIAG_MASKS[square] & occupied]
    if kind != chess.BISHOP:
        reach |= chess.BB_RANK_ATTACKS[square][chess.BB_RANK_MASKS[square] & occupied]
        reach |= chess.BB_FILE_ATTACKS[square][chess.BB_FILE_MASKS[square] & occupied]
    return reach


def _pawn_source(board: chess.Board, file: str, target: int) -> int | None:
    """The origin square of a pawn move; None for promotions, en passant and impossible moves."""
    if chess.square_rank(target) in (0, 7):
        return None
    pawns = board.pawns & board.occupied_co[board.turn]
    back = -8 if board.turn else 8
    if file and ord(file) - 97 != chess.square_file(target):
        if not board.occupied_co[not board.turn] & chess.BB_SQUARES[target]:
            return None
        sources = pawns & chess.BB_PAWN_ATTACKS[not board.turn][target] & chess.BB_FILES[ord(file) - 97]
        return sources.bit_length() - 1 if sources else None
    if board.occupied & chess.BB_SQUARES[target]:
        return None
    source = target + back
    if pawns & chess.BB_SQUARES[source]:
        return source
    from_start = chess.square_rank(target) == (3 if board.turn else 4)
    if from_start and not board.occupied & chess.BB_SQUARES[source] and pawns & chess.BB_SQUARES[source + back]:
        return source + back
    return None


def spelled(board: chess.Board, move: chess.Move) -> str:
    """A move as the vocabulary spells it. `board` is the position before the move."""
    if board.kings & chess.BB_SQUARES[move.from_square]:  # it may be castling
        return uci_of(board, move)
    return move.uci().removesuffix("n")


class FenWriter:
    """Writes boards as FEN, equal to `board.fen()`. Only squares that differ from the previous board are updated."""

    def __init__(self) -> None:
        self._rights: dict[int, str] = {}
        self._before = (0,) * 7
        self._squares = ["1"] * 64
        self._rows = ["8"] * 8

    def fen(self, board: chess.Board) -> str:
        """The FEN of a board."""
        self._place(board)
        rights = "-"
        if board.castling_rights:
            clean = board.clean_castling_rights()
            rights = self._rights.get(clean, "")
            if not rights:
                rights = self._rights[clean] = board.castling_xfen()
        aside = "-"
        if board.ep_square is not None and board.has_legal_en_passant():
            aside = chess.SQUARE_NAMES[board.ep_square]
        turn = "w" if board.turn else "b"
        return f"{'/'.join(self._rows)} {turn} {rights} {aside} {board.halfmove_clock} {board.fullmove_number}"

    def _place(self, board: chess.Board) -> None:
        """Updates the rows, from the eighth to the first, to those of a board."""
        white, black = board.occupied_co[chess.WHITE], board.occupied_co[chess.BLACK]
        pawns, knights, bishops, rooks, queens = board.pawns, board.knights, board.bishops, board.rooks, board.queens
        # Kings need no mask of their own: a king's square is in its colour's mask and in none of the other five.
        before = self._before
        changed = (before[0] ^ pawns) | (before[1] ^ knights) | (before[2] ^ bishops) | (before[3] ^ rooks)
        changed |= (before[4] ^ queens) | (before[5] ^ white) | (before[6] ^ black)
        self._before = (pawns, knights, bishops, rooks, queens, white, black)
        rows = 0
        while changed:
            square = changed.bit_length() - 1
            mask = 1 << square
            changed ^= mask
            rows |= 1 << (square >> 3)
            if pawns & mask:
                letter = "p"
            elif knights & mask:
                letter = "n"
            elif bishops & mask:
                letter = "b"
            elif rooks & mask:
                letter = "r"
            elif queens & mask:
                letter = "q"
            else:
                letter = "k"
            if white & mask:
                letter = letter.upper()
            elif not black & mask:
                letter = "1"
            self._squares[square] = letter
        while rows:
            row = rows.bit_length() - 1
            rows ^= 1 << row
            self._rows[7 - row] = _row_text("".join(self._squares[8 * row : 8 * row + 8]))


@lru_cache(maxsize=100_000)
def _row_text(squares: str) -> str:
    """`11P11111` → `2P5`."""
    for ones, count in _RUNS:
        squares = squares.replace(ones, count)
    return squares
