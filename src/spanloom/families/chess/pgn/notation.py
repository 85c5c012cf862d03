"""A move in algebraic notation → what it says: piece, target, where it may come from, promotion.

In: a token of PGN. Out: a `San` for `Position.play`; None for a token that is no move.

As lenient as python-chess: `e8Q`, `e8(Q)`, `0-0`, `Ng1-f3`, `e2e4`, `g1f3`, a missing `x`, signs of check and
annotation at the end. Other languages have other letters: a `Notation` each, one where several have the same letters.
"""

import re

from spanloom.families.chess.pgn.position import (
    ALL_SQUARES,
    ANY,
    FILES,
    KING,
    LETTERS,
    LONG,
    PAWN,
    QUEEN,
    RANKS,
    SHORT,
    San,
)

_SIGNS = r"(?:\+\+|[+#†‡])?[!?]{0,2}(?:\+/?[-=]|[-=]/?\+|[=±∓⩲⩱∞])?"
_CASTLING = re.compile(rf"[O0o][-–—‑][O0o]([-–—‑][O0o])?{_SIGNS}")
_LONGEST = 16
"""No move is longer: `Qa1xb2+!?`, `exd6e.p.#!?`."""


class Notation(dict[str, San | None]):
    """The moves of one language by their text, each read once. `letters`: of king, queen, rook, bishop and knight."""

    def __init__(self, name: str, letters: str) -> None:
        super().__init__()
        self.name = name
        pieces = dict(zip(letters.split(), (KING, QUEEN, *(LETTERS.index(each) for each in "RBN"), PAWN), strict=False))
        self._pieces = {spelling: piece for each, piece in pieces.items() for spelling in each.split("/")}
        spellings = "|".join(sorted(self._pieces, key=len, reverse=True))
        promotions = f"{spellings}|[qrbn]" if name == "English" else spellings
        self._move = re.compile(
            rf"({spellings})?([a-h])?([1-8])?[-–—‑x:×]?([a-h])([1-8])(?:[=/]?({promotions})|\(({promotions})\))?"
            rf"(?:e\.?p\.?)?{_SIGNS}"
        )

    def __missing__(self, token: str) -> San | None:
        move = self._read(token)
        if len(self) > 100_000:
            self.clear()
        if len(token) <= _LONGEST:
            self[token] = move
        return move

    def _read(self, token: str) -> San | None:
        if match := _CASTLING.fullmatch(token):
            return (LONG if match.group(1) else SHORT), 0, 0, 0
        if (match := self._move.fullmatch(token)) is None:
            return None
        letter, file, rank, to_file, to_rank, *promotions = match.groups()
        piece = self._pieces[letter] if letter else PAWN
        target = "abcdefgh".index(to_file) + 8 * (int(to_rank) - 1)
        sources = ALL_SQUARES
        if file or piece == PAWN:  # a pawn that names no file moves straight on
            sources &= FILES["abcdefgh".index(file or to_file)]
        if rank:
            sources &= RANKS[int(rank) - 1]
        promoted = promotions[0] or promotions[1]
        promotion = (self._pieces.get(promoted) or LETTERS.index(promoted.upper())) if promoted else 0
        if promotion == KING or (promoted and not promotion):
            return None
        if not letter and file and rank:
            return ANY, target, sources, promotion
        if bool(promotion) != (piece == PAWN and to_rank in "18"):
            return None
        return piece, target, sources, promotion


ENGLISH = Notation("English", "K Q R B N")
FOREIGN = tuple(
    Notation(name, letters)
    for name, letters in (
        ("figurines", "♔/♚ ♕/♛ ♖/♜ ♗/♝ ♘/♞ ♙/♟"),
        ("English with P", "K Q R B N P"),
        ("German, Danish, Norwegian, Swedish, Croatian or Slovene", "K D T L S"),
        ("Dutch", "K D T L P"),
        ("French", "R D T F C"),
        ("Spanish, Italian or Catalan", "R D T A C"),
        ("Portuguese", "R D T B C"),
        ("Polish", "K H W G S"),
        ("Czech or Slovak", "K D V S J"),
        ("Hungarian", "K V B F H"),
        ("Romanian", "R D T N C"),
        ("Finnish", "K D T L R"),
        ("Estonian", "K L V O R"),
        ("Latvian", "K D T L Z"),
        ("Icelandic", "K D H B R"),
        ("Turkish", "Ş V K F A"),
        ("Russian", "Кр Ф Л С К"),
        ("Bulgarian", "Ц Д Т О К"),
        ("Greek", "Ρ Β Π Α Ι"),
    )
)
"""The letters of other languages, king first."""


def is_foreign(token: str) -> bool:
    """Whether a token is a move in another language and none in English."""
    return ENGLISH[token] is None and any(notation[token] is not None for notation in FOREIGN)
