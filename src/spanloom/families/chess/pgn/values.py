"""Engine comments → win, draw and loss of the position after a move.

In: the comment after a move, and the side that made the move. Out: Stockfish 16.1's estimate for this evaluation, from
the point of view of the side to move.

    [%eval 0.31]  [%eval #-3]          lichess: pawns, or moves to mate, from white's point of view
    [%eval 31,17]                      ChessBase, ChessOK: centipawns, and the depth
    +4.90/20 0.78s   -M5/31 1.2s       cutechess: score, depth, time, from the point of view of the side that moved
    d=33, sd=46, …, wv=0.31, …         TCEC: `wv` is the score from white's point of view

A number with a decimal point is pawns. A whole number is what the whole file says, by `unit_of`; 0 is the same in both.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Literal

Unit = Literal["pawns", "centipawns", "unclear"]
"""What whole numbers in `[%eval …]` are in a file."""

_EVAL = re.compile(r"\[%eval\s+(?:#([+-]?\d{1,9})|([+-]?)(?:(\d{0,9}\.\d{1,9})|(\d{1,9})\.?))(?:,\d+)?\s*\]")
_ALL_EVALS = re.compile(rb"\[%eval\s+[+-]?(\d*)(\.?\d*)(,?)")
_FEWEST = 20
"""A position is hardly ever evaluated with more pawns, and more centipawns are common."""
_CUTECHESS = re.compile(r"\s*([+-]?)(?:(\d+\.\d+)|M(\d+))/\d+(?:\s+[\d.]+m?s?\b.*)?\s*", re.DOTALL)
_TCEC = re.compile(r"(?:^|[\s,])wv=\s*([+-]?)(?:(\d+\.\d+)|M(\d+))\s*(?:,|$)")

Values = tuple[float, float, float]


class UnclearEvaluation(ValueError):
    """An `[%eval …]` that cannot be read, or whose unit is unclear."""


def unit_of(blocks: Iterable[bytes]) -> Unit:
    """What the whole numbers among all evaluations of a file are.

    Centipawns if there are no others and one has a depth (`28,17`) or is beyond 20. Pawns if there are decimals, at
    most one in ten is a whole number but 0, and none of these has a depth: programs write 1 for 1.00. Else unclear.
    """
    decimals = whole = 0
    depth = high = False
    rest = b""
    for block in chain(blocks, [b""]):
        text, rest = rest + block, b""
        place = text.find(b"[", max(0, len(text) - 32)) if block else -1
        if place >= 0:  # an evaluation that may go on in the next block
            text, rest = text[:place], text[place:]
        for digits, fraction, comma in _ALL_EVALS.findall(text):
            if len(fraction) > 1:
                decimals += 1
            elif digits.strip(b"0"):
                whole += 1
                depth = depth or bool(comma)
                high = high or len(digits) > 9 or int(digits) > _FEWEST
    if not decimals and (depth or high):
        return "centipawns"
    return "pawns" if decimals and not depth and 10 * whole <= decimals + whole else "unclear"


def may_evaluate(comment: str) -> bool:
    """Whether `values_of` has to look at a comment."""
    return "[%eval" in comment or "/" in comment or "wv=" in comment


def values_of(comment: str, moved: bool | None, turn: bool, ply: int, unit: Unit) -> Values | None:
    """Win, draw and loss for the side to move; None for a comment without an evaluation.

    `moved`: whether the comment follows a move of white, None at the start of a game; `turn`: whether white is to move;
    `ply`: the ply of the position. Raises UnclearEvaluation.
    """
    if (place := comment.find("[%eval")) >= 0:
        if (match := _EVAL.match(comment, place)) is None:
            raise UnclearEvaluation(comment)
        mate, sign, pawns, whole = match.groups()
        if mate is not None:
            if int(mate) == 0:  # mated: the side to move has lost
                return 0.0, 0.0, 1.0
            return _estimate(int(mate) if turn else -int(mate), True, ply)
        if whole is not None and unit == "unclear" and int(whole):
            raise UnclearEvaluation(comment)
        number = round(float(pawns) * 100) if whole is None else int(whole) * (100 if unit == "pawns" else 1)
        return _estimate(number if (sign != "-") == turn else -number, False, ply)
    if "wv=" in comment and (match := _TCEC.search(comment)):
        return _of_match(match, turn, ply)
    if "/" in comment and moved is not None and (match := _CUTECHESS.fullmatch(comment)):
        return _of_match(match, turn == moved, ply)
    return None


def _of_match(match: re.Match[str], same_side: bool, ply: int) -> Values:
    sign, pawns, mate = match.groups()
    number = int(mate) if mate is not None else round(float(pawns) * 100)
    return _estimate(-number if (sign == "-") == same_side else number, mate is not None, ply)


@lru_cache(maxsize=100_000)
def _estimate(number: int, mate: bool, ply: int) -> Values:
    """Win, draw and loss for centipawns, or moves to mate, from the point of view of the side to move."""
    if mate:
        return (1.0, 0.0, 0.0) if number > 0 else (0.0, 0.0, 1.0)
    middle, slope = _model(ply)
    score = number * 356 / 100
    if not -4000 <= score <= 4000:
        score = 4000.0 if score > 0 else -4000.0
    wins = int(0.5 + 1000 / (1 + math.exp((middle - score) / slope)))
    losses = int(0.5 + 1000 / (1 + math.exp((middle + score) / slope)))
    return wins / 1000, (1000 - wins - losses) / 1000, losses / 1000


@lru_cache(maxsize=1024)
def _model(ply: int) -> tuple[float, float]:
    """Where half of the games are won, and how fast that changes: `win_rate_model` in Stockfish 16.1's `uci.cpp`."""
    moves = min(120, max(8, ply / 2 + 1)) / 32
    middle = ((-1.06249702 * moves + 7.42016937) * moves + 0.89425629) * moves + 348.60356174
    slope = ((-5.33122190 * moves + 39.57831533) * moves - 90.84473771) * moves + 123.40620748
    return middle, slope
