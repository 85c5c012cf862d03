"""Engine comments → win, draw and loss of the position after a move.

In: the comment after a move, and the side that made the move. Out: Stockfish's estimate for this evaluation, from the
point of view of the side to move.

    [%eval 0.31]  [%eval #-3]          lichess: pawns, or moves to mate, from white's point of view
    +4.90/20 0.78s   -M5/31 1.2s       cutechess: score, depth, time, from the point of view of the side that moved
    d=33, sd=46, …, wv=0.31, …         TCEC: `wv` is the score from white's point of view
"""

import re
from functools import lru_cache

import chess
import chess.engine
from chess.pgn import EVAL_REGEX

_CUTECHESS = re.compile(r"\s*([+-]?)(?:(\d+\.\d+)|M(\d+))/\d+(?:\s+[\d.]+m?s?\b.*)?\s*", re.DOTALL)
_TCEC = re.compile(r"(?:^|[\s,])wv=\s*([+-]?)(?:(\d+\.\d+)|M(\d+))\s*(?:,|$)")

Values = tuple[float, float, float]


def values_of(comment: str, moved: chess.Color | None, turn: chess.Color, ply: int) -> Values | None:
    """Win, draw and loss for the side to move; None for a comment without an evaluation.

    `moved`: the side whose move the comment follows, None at the start of a game; `ply`: the ply of the position.
    """
    if "[%eval" in comment and (match := EVAL_REGEX.search(comment)):
        mate, pawns = match.group("mate"), match.group("cp")
        if mate is not None and int(mate) == 0:  # mated: the side to move has lost
            return _estimate(0, True, ply)
        number = int(mate) if mate is not None else round(float(pawns) * 100)
        return _estimate(number if turn else -number, mate is not None, ply)
    if match := _TCEC.search(comment):
        return _of_match(match, turn, ply)
    if moved is not None and (match := _CUTECHESS.fullmatch(comment)):
        return _of_match(match, turn == moved, ply)
    return None


def _of_match(match: re.Match[str], same_side: bool, ply: int) -> Values:
    sign, pawns, mate = match.groups()
    number = int(mate) if mate is not None else round(float(pawns) * 100)
    return _estimate(-number if (sign == "-") == same_side else number, mate is not None, ply)


@lru_cache(maxsize=100_000)
def _estimate(number: int, mate: bool, ply: int) -> Values:
    """Win, draw and loss for centipawns, or moves to mate, from the point of view of the side to move."""
    score: chess.engine.Score = chess.engine.Mate(number) if mate else chess.engine.Cp(number)
    wdl = score.wdl(model="sf", ply=max(ply, 1))
    total = wdl.total()
    return wdl.wins / total, wdl.draws / total, wdl.losses / total
