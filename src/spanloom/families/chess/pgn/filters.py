"""Filters for the games of PGN files. This module has only types and options: importing it needs no python-chess."""

from dataclasses import dataclass
from typing import Literal

BestMove = Literal["played", "none"]


@dataclass(frozen=True, kw_only=True)
class GameFilter:
    """The conditions for using a game. None, an empty value and False switch a condition off.

    min_rating    minimum of both WhiteElo and BlackElo
    results       allowed results: `1-0`, `0-1`, `1/2-1/2`, `*`
    min_seconds   minimum duration by the time control: base plus 40 times the increment, lichess's estimate
    max_seconds   maximum duration, by the same estimate
    with_values   whether at least one position must be evaluated
    """

    min_rating: int | None = None
    results: tuple[str, ...] = ()
    min_seconds: int | None = None
    max_seconds: int | None = None
    with_values: bool = False
