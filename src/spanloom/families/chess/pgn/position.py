"""A position of standard chess: legal moves in, FENs out, without python-chess.

In: a FEN, then moves as `notation` reads them. Out: each move as the vocabulary spells it, and each position as FEN,
equal to python-chess's `board.fen()`.

Squares are numbered a1 = 0, b1 = 1, …, h8 = 63; a set of squares is an int with a bit for each. A position keeps such a
set for each piece of both sides, and each rank as text, of which a move changes one or two:

    e2e4    rank 2  PPPPPPPP → PPPP1PPP → PPPP1PPP        rank 4  11111111 → 1111P111 → 4P3
"""

from functools import lru_cache

from spanloom.families.chess.encoding.fen import parse_fen
from spanloom.families.chess.encoding.vocabulary import BOARD_TOKENS, EMPTY, PIECE_SYMBOLS, SQUARES, WHITE_TO_MOVE

PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING = range(6)
LETTERS = "PNBRQK"
_LETTERS = (LETTERS.lower(), LETTERS)
SHORT, LONG, ANY = 6, 7, 8
"""Where a move has a piece: castling, and whatever is on the one square that it comes from."""

San = tuple[int, int, int, int]
"""A move as written: piece, or SHORT, LONG or ANY; target square; squares that it may come from; promotion, or 0."""

ALL_SQUARES = (1 << 64) - 1
FILES = tuple(0x0101010101010101 << file for file in range(8))
RANKS = tuple(0xFF << 8 * rank for rank in range(8))
_STEPS = {
    KNIGHT: [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)],
    BISHOP: [(1, 1), (1, -1), (-1, -1), (-1, 1)],
    ROOK: [(0, 1), (1, 0), (0, -1), (-1, 0)],
}
_STEPS[QUEEN] = _STEPS[KING] = _STEPS[BISHOP] + _STEPS[ROOK]


def _walk(square: int, step: tuple[int, int], most: int) -> list[int]:
    """The squares from a square by a step (files, ranks), at most so many."""
    squares = []
    file, rank = square & 7, square >> 3
    for _ in range(most):
        file, rank = file + step[0], rank + step[1]
        if not (0 <= file < 8 and 0 <= rank < 8):
            break
        squares.append(8 * rank + file)
    return squares


def _set(squares: list[int]) -> int:
    return sum(1 << square for square in squares)


def _reach(piece: int, square: int) -> int:
    """The squares that a piece reaches on an empty board."""
    most = 1 if piece in (KNIGHT, KING) else 7
    return _set([target for step in _STEPS[piece] for target in _walk(square, step, most)])


_REACH = ((), *(tuple(_reach(piece, square) for square in range(64)) for piece in (KNIGHT, BISHOP, ROOK, QUEEN, KING)))
_PAWN_HITS = tuple(
    tuple(_set([target for file in (-1, 1) for target in _walk(square, (file, way), 1)]) for square in range(64))
    for way in (-1, 1)
)
"""By side, black first: the squares that a pawn on a square attacks."""
_BETWEEN = [[0] * 64 for _ in range(64)]
"""The squares between two squares of one line; 0 for others, such as those of a knight's move."""
for _square in range(64):
    for _step in _STEPS[QUEEN]:
        _passed = 0
        for _target in _walk(_square, _step, 7):
            _BETWEEN[_square][_target] = _passed
            _passed |= 1 << _target
_UCI = [[SQUARES[source] + SQUARES[target] for target in range(64)] for source in range(64)]

_RIGHTS = ["".join(letter for bit, letter in enumerate("KQkq") if rights >> bit & 1) or "-" for rights in range(16)]
_KEPT = [15] * 64
"""The castling rights that remain after a move from or to a square."""
for _square, _lost in ((4, 3), (7, 1), (0, 2), (60, 12), (63, 4), (56, 8)):
    _KEPT[_square] = 15 ^ _lost
_CODES = {letter: piece for side in (LETTERS, LETTERS.lower()) for piece, letter in enumerate(side)}
_MOST_MOVES = 1_000_000


class PositionError(ValueError):
    """A FEN that is no position of standard chess. `chess960`: whether its castling rights are those of Chess960."""

    def __init__(self, message: str, *, chess960: bool = False) -> None:
        super().__init__(message)
        self.chess960 = chess960


class Position:
    """A position, changed by `play`. Begins as FEN says, by default as every game does.

    Raises PositionError for a FEN that python-chess rejects, without one king a side, with a pawn on the first or last
    rank, with a promoted piece (`~`), or with castling rights of Chess960.
    """

    __slots__ = (
        *("aside", "halfmoves", "mine", "number", "others", "own", "passed", "ranks", "rights", "short", "theirs"),
        "white",
    )

    def __init__(self, fen: str = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1") -> None:
        ranks, sides, self.rights, self.white, self.passed, self.halfmoves, self.number = _parsed(fen)
        self.ranks = list(ranks)
        self.short = [_short(rank) for rank in reversed(ranks)]
        self.mine, self.theirs = list(sides[self.white]), list(sides[not self.white])
        self.own, self.others = sum(self.mine), sum(self.theirs)
        self.aside = self._aside()

    @property
    def ply(self) -> int:
        """The half-moves before this position, by the number of the move."""
        return 2 * (self.number - 1) + (not self.white)

    def fen(self) -> str:
        """The position as FEN. The en passant square is there only if a pawn can legally capture on it."""
        side = "w" if self.white else "b"
        placement = "/".join(self.short)
        return f"{placement} {side} {_RIGHTS[self.rights]} {self.aside} {self.halfmoves} {self.number}"

    def play(self, move: San) -> str | None:
        """Plays a move and returns it as the vocabulary spells it: castling is the king taking its rook, a promotion to
        a knight has no letter. Returns None, and changes nothing, if not exactly one legal move is meant."""
        piece, target, sources, promotion = move
        if piece > KING:
            if piece != ANY:
                return self._castle(piece)
            place = sources.bit_length() - 1
            if not self.own >> place & 1:
                return None
            piece = _CODES[self.ranks[place >> 3][place & 7]]
            if bool(promotion) != (piece == PAWN and target >> 3 in (0, 7)):
                return None
            if piece == KING and place in (4, 60) and abs(place - target) == 2:
                return self._castle(SHORT if target > place else LONG)
        bit = 1 << target
        own, others = self.own, self.others
        if own & bit:
            return None
        occupied = own | others
        captured = bit & others
        if piece:
            candidates = self.mine[piece] & sources & _REACH[piece][target]
        else:
            candidates = self.mine[PAWN] & sources
            if sources & FILES[target & 7]:  # a step, or two
                behind = bit >> 8 if self.white else bit << 8
                if captured:
                    return None
                if not behind & candidates and target >> 3 == (3 if self.white else 4) and not behind & occupied:
                    behind = behind >> 8 if self.white else behind << 8
                candidates &= behind
            else:
                candidates &= _PAWN_HITS[not self.white][target]
                if not captured:
                    if target != self.passed:
                        return None
                    captured = bit >> 8 if self.white else bit << 8
        source = -1
        between = _BETWEEN[target]
        while candidates:
            place = candidates.bit_length() - 1
            candidates ^= 1 << place
            if between[place] & occupied:
                continue
            king = target if piece == KING else self.mine[KING].bit_length() - 1
            if self._attacked(king, (occupied ^ (1 << place)) & ~captured | bit, captured):
                continue
            if source >= 0:
                return None  # two pieces could move there
            source = place
        if source < 0:
            return None
        self._move(piece, source, target, captured, promotion)
        return _UCI[source][target] + (" nbrq"[promotion] if promotion > KNIGHT else "")

    def _castle(self, side: int) -> str | None:
        king = 4 if self.white else 60
        if not self.rights & ((1 if side == SHORT else 2) << (0 if self.white else 2)):
            return None
        rook, way = (king + 3, 1) if side == SHORT else (king - 4, -1)
        occupied = self.own | self.others
        if _BETWEEN[king][rook] & occupied or any(self._attacked(king + way * step, occupied, 0) for step in range(3)):
            return None
        self._move(KING, king, king + 2 * way, 0, 0)
        # The rook follows: as a move of the same side, which is no longer the side to move.
        self.theirs[ROOK] ^= 1 << rook | 1 << king + way
        self.others ^= 1 << rook | 1 << king + way
        letter = "r" if self.white else "R"
        self._write(rook, "1")
        self._write(king + way, letter)
        return _UCI[king][rook]

    def _move(self, piece: int, source: int, target: int, captured: int, promotion: int) -> None:
        """Moves a piece; then the other side is to move. `captured`: the captured piece's square, as a set."""
        mine, theirs, white, ranks = self.mine, self.theirs, self.white, self.ranks
        if captured:
            place = captured.bit_length() - 1
            theirs[_CODES[ranks[place >> 3][place & 7]]] ^= captured
            self.others ^= captured
            if place != target:
                self._write(place, "1")
        change = 1 << source | 1 << target
        self.own ^= change
        if promotion:
            mine[PAWN] ^= 1 << source
            mine[promotion] ^= 1 << target
        else:
            mine[piece] ^= change
        self.rights &= _KEPT[source] & _KEPT[target]
        # As `_write` does, without the calls: these lines are a third of the time.
        rank, file, short = source >> 3, source & 7, self.short
        row = ranks[rank]
        ranks[rank] = row = row[:file] + "1" + row[file + 1 :]
        if rank != target >> 3:
            short[7 - rank] = _short(row)
            rank = target >> 3
            row = ranks[rank]
        file = target & 7
        ranks[rank] = row = row[:file] + _LETTERS[white][promotion or piece] + row[file + 1 :]
        short[7 - rank] = _short(row)
        self.halfmoves = self.halfmoves + 1 if piece and not captured else 0
        self.number += not white
        self.white = not white
        self.mine, self.theirs = theirs, mine
        self.own, self.others = self.others, self.own
        if piece or abs(source - target) != 16:
            self.passed, self.aside = -1, "-"
        else:
            self.passed = (source + target) // 2
            self.aside = self._aside()

    def _write(self, square: int, letter: str) -> None:
        rank, file = square >> 3, square & 7
        row = self.ranks[rank]
        self.ranks[rank] = row = row[:file] + letter + row[file + 1 :]
        self.short[7 - rank] = _short(row)

    def _attacked(self, square: int, occupied: int, captured: int) -> bool:
        """Whether the other side, without its captured piece, attacks a square."""
        pawns, knights, bishops, rooks, queens, king = self.theirs
        if (
            _PAWN_HITS[self.white][square] & pawns & ~captured
            or _REACH[KNIGHT][square] & knights & ~captured
            or _REACH[KING][square] & king
        ):
            return True
        sliders = _REACH[ROOK][square] & (rooks | queens) | _REACH[BISHOP][square] & (bishops | queens)
        sliders &= ~captured
        between = _BETWEEN[square]
        while sliders:
            place = sliders.bit_length() - 1
            if not between[place] & occupied:
                return True
            sliders ^= 1 << place
        return False

    def _aside(self) -> str:
        """The square that a pawn may capture on in passing, `-` if none may."""
        if self.passed < 0:
            return "-"
        pawns = self.mine[PAWN] & _PAWN_HITS[not self.white][self.passed]
        captured = 1 << (self.passed - 8 if self.white else self.passed + 8)
        king = self.mine[KING].bit_length() - 1
        while pawns:
            source = pawns & -pawns
            occupied = (self.own | self.others) ^ source ^ captured | 1 << self.passed
            if not self._attacked(king, occupied, captured):
                return SQUARES[self.passed]
            pawns ^= source
        return "-"


@lru_cache(maxsize=1 << 16)
def _short(rank: str) -> str:
    """`11P11111` → `2P5`."""
    rank = rank.replace("11111111", "8").replace("1111111", "7").replace("111111", "6").replace("11111", "5")
    return rank.replace("1111", "4").replace("111", "3").replace("11", "2")


@lru_cache(maxsize=64)
def _parsed(fen: str) -> tuple[tuple[str, ...], tuple[list[int], list[int]], int, bool, int, int, int]:
    """The ranks from the first; the squares of each piece, of black and of white; castling rights; whether white is to
    move; the square that a pawn has just passed or -1; half-moves since a capture or pawn move; number of the move."""
    try:
        board = parse_fen(fen)
    except ValueError as fault:
        raise PositionError(str(fault)) from None
    fields = fen.split()
    castling, passed_over, halfmoves, number = (*fields[2:], *("-", "-", "0", "1")[max(0, len(fields) - 2) :])
    if "~" in fields[0]:
        raise PositionError(f"a piece is promoted, as in Crazyhouse: {fen!r}")
    squares = "".join("1" if index == EMPTY else PIECE_SYMBOLS[index] for index in board[1:65].tolist())
    ranks = tuple(squares[start : start + 8] for start in range(0, 64, 8))
    if squares.count("K") != 1 or squares.count("k") != 1:
        raise PositionError(f"not one king a side: {fen!r}")
    if "p" in (ranks[0] + ranks[7]).lower():
        raise PositionError(f"a pawn on the first or last rank: {fen!r}")
    white = bool(board[67] == WHITE_TO_MOVE)
    rights = _RIGHTS.index(BOARD_TOKENS[board[66]].replace("no_castling_rights", "-"))
    if _of_chess960(ranks, castling, _RIGHTS[rights]):
        raise PositionError(f"castling rights {castling!r} of Chess960: {fen!r}", chess960=True)
    if max(int(halfmoves), int(number)) > _MOST_MOVES:
        raise PositionError(f"a count of moves is more than {_MOST_MOVES:,}: {fen[:200]!r}")
    passed = SQUARES.index(passed_over) if passed_over != "-" else -1
    if passed >= 0:
        ahead, behind = (-8, 8) if white else (8, -8)
        right = passed >> 3 == (5 if white else 2) and squares[passed] == squares[passed + behind] == "1"
        if not (right and squares[passed + ahead] == ("p" if white else "P")):
            passed = -1  # no pawn can have passed there
    sides = ([0] * 6, [0] * 6)
    for square, letter in enumerate(squares):
        if letter != "1":
            sides[letter.isupper()][_CODES[letter]] |= 1 << square
    return ranks, sides, rights, white, passed, int(halfmoves), max(int(number), 1)


def _of_chess960(ranks: tuple[str, ...], castling: str, rights: str) -> bool:
    """Whether a castling field has a right that `rights` lacks, but king and rook are placed for it as in Chess960."""
    for letter in castling.replace("-", ""):
        rank, king, rook = (ranks[0], "K", "R") if letter.isupper() else (ranks[7], "k", "r")
        place = rank.find(king)
        if place < 0:
            continue
        side = letter.lower()
        if side in "kq":  # the outermost rook of that side
            there = rook in (rank[place:] if side == "k" else rank[:place])
        else:
            there = rank["abcdefgh".index(side)] == rook
            side = {"a": "q", "h": "k"}.get(side, side)
        if there and (side.upper() if king == "K" else side) not in rights:
            return True
    return False
