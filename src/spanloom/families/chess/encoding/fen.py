"""Positions in FEN → the 68 tokens of a board, for whole columns at once.

In: a column of FENs (an Arrow array of strings). Out: board indices, uint8 [N, 68], and which of the N are invalid.

    0        start_pos
    1 … 64   squares a1, b1, …, h8
    65       end_pos
    66       castling rights, only those with king and rook on their squares
    67       side to move

A FEN is valid if python-chess accepts it. It has one to six fields; missing fields mean white to move, no castling, no
en passant, 0 and 1. Castling is given as KQkq or as files (HAha). A `~` follows a promoted piece. A castling right is
kept only if a king is on e1 (e8) and a rook on h1 or a1 (h8, a8).

A column is first parsed with NumPy, at about 1 µs a FEN. This handles only the usual spelling. `parse_fen` parses the
other FENs, at about 12 µs each. (python-chess needs about 40 µs.)

    rnbqkbnr/pp1ppppp/8/…        chars     r n b q k b n r / p p 1 p p p p p / 8 / …
                                 widths    1 1 1 1 1 1 1 1 0 1 1 1 1 1 1 1 1 0 8 0
                                 before    0 1 2 3 4 5 6 7 8 8 9 10 …              16 24
    `before` is the sum of the widths to the left of a character. A row is valid only if all its widths sum to 64, and
    `before` is 8, 16, … 56 at the seven slashes. Then `before` of a piece is its square, counted from a8.
"""

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.families.chess.encoding.vocabulary import (
    BLACK_TO_MOVE,
    BOARD_LENGTH,
    CASTLING_INDICES,
    EMPTY,
    END_POS,
    PIECE_INDICES,
    SQUARES,
    START_POS,
    WHITE_TO_MOVE,
)

Boards = npt.NDArray[np.uint8]
"""uint8 [N, 68]: board indices."""

E1, E8 = (1 + SQUARES.index(square) for square in ("e1", "e8"))
WHITE_KING, WHITE_ROOK, BLACK_KING = PIECE_INDICES["K"], PIECE_INDICES["R"], PIECE_INDICES["k"]
_RIGHTS = tuple(
    (king, PIECE_INDICES[symbol], 1 + SQUARES.index(corner), PIECE_INDICES[rook])
    for king, symbol, corner, rook in (
        (E1, "K", "h1", "R"),
        (E1, "K", "a1", "R"),
        (E8, "k", "h8", "r"),
        (E8, "k", "a8", "r"),
    )
)
"""For K, Q, k, q: the king's place, the king, the rook's place, the rook.

A place is a position among the 68 tokens of a board; a piece is a board index.
"""

NO_FEN = "there is none"
_CASTLING_FIELD = re.compile("-|[KQA-H]{0,2}[kqa-h]{0,2}")
_RIGHT_LETTERS = {"K": 1, "H": 1, "Q": 2, "A": 2, "k": 4, "h": 4, "q": 8, "a": 8}

_CHUNK = 4096
"""Rows per chunk, so that their bytes fit into the processor's cache."""
_NO_WIDTH = 65
"""The width of an invalid character: the widths of a row with such a character never sum to 64."""
_WIDTHS = bytearray([_NO_WIDTH]) * 256
_CODES = bytearray([EMPTY]) * 256
_WIDTHS[ord("/")] = 0
for _digit in range(1, 9):
    _WIDTHS[ord(str(_digit))] = _digit
for _symbol, _index in PIECE_INDICES.items():
    _WIDTHS[ord(_symbol)], _CODES[ord(_symbol)] = 1, _index


def _packed(field: str) -> int:
    return int.from_bytes(field.encode().ljust(4, b"\0"), "little")


_USUAL = {
    "".join(letter for bit, letter in enumerate("KQkq") if rights >> bit & 1) or "-": rights for rights in range(16)
}
_USUAL_KEYS = np.array(sorted(map(_packed, _USUAL)), np.uint32)
_USUAL_RIGHTS = np.array(
    [rights for _, rights in sorted((_packed(field), rights) for field, rights in _USUAL.items())], np.uint8
)


def parse_fen(fen: str) -> npt.NDArray[np.uint8]:
    """The board of one FEN: uint8 [68]. Raises ValueError, naming the fault, for a FEN that python-chess rejects."""
    fields = fen.split()
    if not fields:
        raise ValueError("the FEN is empty")
    if len(fields) > 6:
        raise ValueError(f"a FEN has at most 6 fields, this one {len(fields)}: {fen!r}")
    placement, turn, castling, en_passant, halfmoves, moves = (*fields, *("w", "-", "-", "0", "1")[len(fields) - 1 :])
    if turn not in ("w", "b"):
        raise ValueError(f"the side to move is {turn!r}, not w or b: {fen!r}")
    if not _CASTLING_FIELD.fullmatch(castling):
        raise ValueError(f"{castling!r} is no castling field: {fen!r}")
    if en_passant != "-" and en_passant not in SQUARES:
        raise ValueError(f"{en_passant!r} is no en passant square: {fen!r}")
    for count in (halfmoves, moves):
        try:
            negative = int(count) < 0
        except ValueError:
            raise ValueError(f"{count!r} is no count of moves: {fen!r}") from None
        if negative:
            raise ValueError(f"a count of moves is negative: {fen!r}")
    squares, promoted = _placement(placement, fen)
    board = np.empty(BOARD_LENGTH, np.uint8)
    board[0], board[65] = START_POS, END_POS
    board[1:65] = squares
    board[67] = WHITE_TO_MOVE if turn == "w" else BLACK_TO_MOVE
    rights = 0
    for letter in castling.replace("-", ""):
        rights |= _RIGHT_LETTERS.get(letter, 0)
    white_kings = [square for square in range(64) if squares[square] == WHITE_KING and square not in promoted]
    if "Q" in castling and WHITE_ROOK not in squares[:7] and white_kings and white_kings[-1] > 7:
        # Q means the leftmost rook if this rook is left of the king. If there are several kings, the one on the highest
        # square counts, so the rook on h1 may qualify.
        rights |= 1
    for bit, (place, king, corner, rook) in enumerate(_RIGHTS):
        # A promoted king cannot castle.
        if board[place] != king or place - 1 in promoted or board[corner] != rook:
            rights &= ~(1 << bit)
    board[66] = CASTLING_INDICES[rights]
    return board


def _placement(placement: str, fen: str) -> tuple[list[int], set[int]]:
    """The squares a1 … h8 of the first field, and which of them have a promoted piece."""
    ranks = placement.split("/")
    if len(ranks) != 8:
        raise ValueError(f"a board has 8 ranks, this one {len(ranks)}: {fen!r}")
    squares: list[int] = []
    promoted: set[int] = set()
    for number, rank in enumerate(reversed(ranks)):
        before = ""
        row: list[int] = []
        for symbol in rank:
            # lower() turns one non-ASCII letter, the Kelvin sign, into k. So the Kelvin sign counts as a king.
            piece = symbol.lower().upper() if symbol.isupper() else symbol
            if symbol in "12345678":
                if before == "digit":
                    raise ValueError(f"two digits in a row, in rank {rank!r}: {fen!r}")
                row += [EMPTY] * int(symbol)
                before = "digit"
            elif symbol == "~":
                if before != "piece":
                    raise ValueError(f"~ is behind no piece, in rank {rank!r}: {fen!r}")
                promoted.add(8 * number + len(row) - 1)
                before = "~"
            elif piece in PIECE_INDICES:
                row.append(PIECE_INDICES[piece])
                before = "piece"
            else:
                raise ValueError(f"{symbol!r} is no piece: {fen!r}")
        if len(row) != 8:
            raise ValueError(f"rank {rank!r} has {len(row)} squares, not 8: {fen!r}")
        squares += row
    return squares, promoted


def fen_fault(fen: str | None) -> str | None:
    """The fault of a FEN; None if it is valid."""
    try:
        parse_fen(fen or "")
    except ValueError as fault:
        return NO_FEN if fen is None else str(fault)
    return None


_parse_again = lru_cache(maxsize=4096)(parse_fen)


def parse_column(fens: pa.Array) -> tuple[Boards, npt.NDArray[np.bool_]]:
    """The boards of a column of strings, and which of its rows are null or invalid: uint8 [N, 68], bool [N].

    The boards of invalid rows are undefined; `fen_fault` names the fault of one.
    """
    rows = len(fens)
    boards = np.empty((rows, BOARD_LENGTH), np.uint8)
    bad = np.zeros(rows, np.bool_)
    for first in range(0, rows, _CHUNK):
        part = slice(first, min(first + _CHUNK, rows))
        _parse_chunk(fens.slice(first, part.stop - first), boards[part], bad[part])
    return boards, bad


def _parse_chunk(fens: pa.Array, boards: Boards, bad: npt.NDArray[np.bool_]) -> None:
    """Writes one chunk's results into `boards` and `bad`."""
    fens = fens.cast(pa.large_string())
    _, offsets_buffer, data_buffer = fens.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[fens.offset : fens.offset + len(fens) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    usual = _parse_usual(data, offsets - offsets[0], boards)
    for row in np.flatnonzero(~usual):
        fen = fens[int(row)].as_py()
        try:
            boards[row] = _parse_again(fen or "")
        except ValueError:
            bad[row] = True


def _parse_usual(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], boards: Boards) -> npt.NDArray[np.bool_]:
    """Writes the boards of the rows in the usual spelling. Returns which rows these are: bool [n].

    Args: the rows' UTF-8 end to end; the start of each, int64 [n + 1]; boards uint8 [n, 68].
    """
    begins, ends = offsets[:-1], offsets[1:]
    spaces = np.flatnonzero(data == ord(" "))
    spaces_before = np.searchsorted(spaces, offsets)
    first_space, count = spaces_before[:-1], np.diff(spaces_before)
    # The usual spelling: all six fields, or four without the two move counters.
    usual = np.asarray(((count == 5) | (count == 3)) & (ends > begins))
    chosen = np.flatnonzero(usual)
    if not chosen.size:
        return usual
    begins, ends, full = begins[chosen], ends[chosen], count[chosen] == 5
    at = first_space[chosen][:, None] + np.arange(5)
    border = np.where(
        full[:, None] | (np.arange(5) < 3),
        spaces[np.minimum(at, spaces.size - 1)],
        ends[:, None],
    )  # the end of each of the first five fields
    good, turns, rights = _parse_fields(data, border, ends, full)
    good &= border[:, 0] > begins

    # The first field of all rows, end to end. Rows without exactly 64 squares and 7 slashes are removed first, so that
    # the squares before a row are 64 times its number.
    lengths = border[:, 0] - begins
    lengths[~good] = 0
    kept = np.flatnonzero(good)
    chars = _fields(data, begins[kept], lengths[kept])
    widths = np.frombuffer(chars.tobytes().translate(bytes(_WIDTHS)), np.uint8)
    starts = np.concatenate([[0], np.cumsum(lengths[kept])])
    right = np.zeros(kept.size, np.bool_)
    if kept.size:
        right = np.add.reduceat(widths, starts[:-1], dtype=np.int32) == 64
        right &= np.add.reduceat(chars == ord("/"), starts[:-1], dtype=np.int32) == 7
    if not right.all():
        inside = np.repeat(right, lengths[kept])
        chars, widths = chars[inside], widths[inside]
        good[kept[~right]] = False
        kept = kept[right]
        starts = np.concatenate([[0], np.cumsum(lengths[kept])])
    before = np.cumsum(widths, dtype=np.int32) - widths
    slashes = before[chars == ord("/")].reshape(-1, 7) - 64 * np.arange(kept.size, dtype=np.int32)[:, None]
    in_place = (slashes == np.arange(8, 64, 8)).all(axis=1)
    codes = np.frombuffer(chars.tobytes().translate(bytes(_CODES)), np.uint8)
    digits = (codes == EMPTY) & (widths > 0)
    doubled = np.flatnonzero(digits[:-1] & digits[1:]) + 1
    in_place[np.searchsorted(starts, doubled[~np.isin(doubled, starts)], "right") - 1] = False

    rows = chosen[kept]
    made = np.empty((kept.size, BOARD_LENGTH), np.uint8)
    made[:, 0], made[:, 65] = START_POS, END_POS
    squares = np.full(64 * kept.size, EMPTY, np.uint8)
    pieces = np.flatnonzero(codes != EMPTY)
    squares[before[pieces] ^ 56] = codes[pieces]  # a8 b8 … h1 → a1 b1 … h8: mirrors the rank, keeps the file
    made[:, 1:65] = squares.reshape(-1, 64)
    made[:, 67] = turns[kept]
    held = rights[kept]
    # The right Q, no rook on a1, a rook on h1: with several kings, Q may mean the rook on h1, so `parse_fen` decides.
    stale = (held & 2 > 0) & (made[:, 1] != WHITE_ROOK) & (made[:, 8] == WHITE_ROOK) & (made[:, E1] == WHITE_KING)
    for bit, (place, king, corner, rook) in enumerate(_RIGHTS):
        held &= ~(((made[:, place] != king) | (made[:, corner] != rook)).astype(np.uint8) << np.uint8(bit))
    made[:, 66] = CASTLING_INDICES[held]
    boards[rows] = made
    usual[:] = False
    usual[rows[in_place & ~stale]] = True
    return usual


def _parse_fields(
    data: npt.NDArray[np.uint8],
    border: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    full: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Parses the fields after the placement.

    Returns which rows have the usual spelling, the sides to move, and the castling rights.
    """
    last = data.size - 1
    side = data[np.minimum(border[:, 0] + 1, last)]
    good = (border[:, 1] == border[:, 0] + 2) & ((side == ord("w")) | (side == ord("b")))
    turns = np.where(side == ord("w"), WHITE_TO_MOVE, BLACK_TO_MOVE).astype(np.uint8)

    length = border[:, 2] - border[:, 1] - 1
    good &= (length >= 1) & (length <= 4)
    letters = data[np.minimum(border[:, 1, None] + np.arange(1, 5), last)]
    letters[np.arange(4) >= length[:, None]] = 0
    keys = np.ascontiguousarray(letters).view("<u4")[:, 0]
    index = np.minimum(np.searchsorted(_USUAL_KEYS, keys), _USUAL_KEYS.size - 1)
    good &= _USUAL_KEYS[index] == keys

    length = border[:, 3] - border[:, 2] - 1
    file, rank = (data[np.minimum(border[:, 2] + ahead, last)] for ahead in (1, 2))
    good &= np.where(
        length == 1,
        file == ord("-"),
        (length == 2) & (file >= ord("a")) & (file <= ord("h")) & (rank >= ord("1")) & (rank <= ord("8")),
    )
    for start, end in ((border[:, 3], border[:, 4]), (border[:, 4], ends)):
        length = end - start - 1
        counts = data[np.minimum(start[:, None] + np.arange(1, 5), last)]
        digits = ((counts >= ord("0")) & (counts <= ord("9"))) | (np.arange(4) >= length[:, None])
        good &= ~full | ((length >= 1) & (length <= 4) & digits.all(axis=1))
    return good, turns, _USUAL_RIGHTS[index]


def _fields(
    data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """The slices data[begins[i] : begins[i] + lengths[i]] of all i, end to end."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(data[np.repeat(begins - before, lengths) + np.arange(lengths.sum())])
