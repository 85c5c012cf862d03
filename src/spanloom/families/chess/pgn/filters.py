"""Which games of PGN files are taken. Constants and options alone: it needs no python-chess."""

from dataclasses import dataclass
from typing import Literal

BestMove = Literal["played", "none"]


@dataclass(frozen=True, kw_only=True)
class GameFilter:
    """Which games are taken; what is None, or empty, asks nothing.

    min_rating    of both players, by WhiteElo and BlackElo
    results       `1-0`, `0-1`, `1/2-1/2`, `*`
    min_seconds   of the time control: base and 40 times the increment, as lichess estimates a game
    max_seconds   likewise
    with_values   games with an evaluated position
    """

    min_rating: int | None = None
    results: tuple[str, ...] = ()
    min_seconds: int | None = None
    max_seconds: int | None = None
    with_values: bool = False
