"""Generated games and thinking rows, for trying the family without any data.

In: a number and a seed. Out: rows of both schemas. The same number and seed give the same rows.

The first games are famous games of the nineteenth century. In the others, a small program plays against itself: it
compares material one move ahead, and sometimes plays a random good move. Win, draw and loss are its estimates.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from spanloom.families.chess import defaults
from spanloom.families.chess.encoding.python_chess import require_python_chess, uci_of
from spanloom.families.chess.pgn import SCHEMA, Row, row_of, write_rows
from spanloom.storage.publishing import Upload, publish_files
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri

FAMOUS = {
    "opera_1858": (
        "e4 e5 Nf3 d6 d4 Bg4 dxe5 Bxf3 Qxf3 dxe5 Bc4 Nf6 Qb3 Qe7 Nc3 c6 Bg5 b5 Nxb5 cxb5 Bxb5+ Nbd7 O-O-O Rd8 Rxd7 "
        "Rxd7 Rd1 Qe6 Bxd7+ Nxd7 Qb8+ Nxb8 Rd8#"
    ),
    "immortal_1851": (
        "e4 e5 f4 exf4 Bc4 Qh4+ Kf1 b5 Bxb5 Nf6 Nf3 Qh6 d3 Nh5 Nh4 Qg5 Nf5 c6 g4 Nf6 Rg1 cxb5 h4 Qg6 h5 Qg5 Qf3 Ng8 "
        "Bxf4 Qf6 Nc3 Bc5 Nd5 Qxb2 Bd6 Bxg1 e5 Qxa1+ Ke2 Na6 Nxg7+ Kd8 Qf6+ Nxf6 Be7#"
    ),
    "evergreen_1852": (
        "e4 e5 Nf3 Nc6 Bc4 Bc5 b4 Bxb4 c3 Ba5 d4 exd4 O-O d3 Qb3 Qf6 e5 Qg6 Re1 Nge7 Ba3 b5 Qxb5 Rb8 Qa4 Bb6 Nbd2 Bb7 "
        "Ne4 Qf5 Bxd3 Qh5 Nf6+ gxf6 exf6 Rg8 Rad1 Qxf3 Rxe7+ Nxe7 Qxd7+ Kxd7 Bf5+ Ke8 Bd7+ Kf8 Bxe7#"
    ),
}
"""Game → its moves in SAN: Morphy v Duke of Brunswick and Count Isouard, Anderssen v Kieseritzky, v Dufresne."""

THINKING_SCHEMA = pa.schema(
    [
        ("fen", pa.string()),
        ("variations", pa.string()),
        ("mcts_action", pa.string()),
        ("win", pa.float64()),
        ("draw", pa.float64()),
        ("loss", pa.float64()),
    ]
)
"""The thinking schema."""

_WORTH = {1: 1.0, 2: 3.0, 3: 3.1, 4: 5.0, 5: 9.0, 6: 0.0}
_PLIES = 80


def write_sample(
    out: Path,
    *,
    games: int = defaults.SAMPLE_GAMES,
    thinking: int = defaults.SAMPLE_THINKING_ROWS,
    seed: int = 0,
    files: int = 4,
) -> dict[str, int]:
    """Writes `out/games/*.parquet` and `out/thinking/*.parquet`. Returns counts of games, plies and thinking rows."""
    played = list(sample_games(games, seed))
    rows = list(sample_thinking(thinking, seed))
    for number in range(files):
        if part := [row for game in played[number::files] for row in game]:
            write_rows(part, out / "games" / f"games_{number:05d}.parquet")
        if some := rows[number::files]:
            write_rows(some, out / "thinking" / f"thinking_{number:05d}.parquet", THINKING_SCHEMA)
    return {"games": len(played), "plies": sum(map(len, played)), "thinking_rows": len(rows)}


def run(*, out: str, games: int, thinking: int, seed: int = 0, scratch: Path | None = None) -> dict[str, int]:
    """Runs `write_sample` with a path or URI."""
    with scratch_for("chess-sample", [out], scratch) as staging:
        made = staging.path(out)
        counts = write_sample(made, games=games, thinking=thinking, seed=seed)
        if is_uri(out):
            files = sorted(made.rglob("*.parquet"))
            publish_files([Upload(path=file, uri=parse_uri(out) / file.relative_to(made).as_posix()) for file in files])
    return counts


def sample_games(count: int, seed: int = 0) -> Iterator[list[Row]]:
    """Yields `count` games as rows of the pretraining schema: the famous games, then games of the small program."""
    chess = require_python_chess("making sample games")
    for number in range(count):
        rng = random.Random(f"game {seed} {number}")
        name, moves = list(FAMOUS.items())[number] if number < len(FAMOUS) else (f"sample_{number}", None)
        yield list(_rows(chess, name, None if moves is None else iter(moves.split()), rng))


def _rows(chess: Any, name: str, moves: Iterator[str] | None, rng: random.Random) -> Iterator[Row]:
    board = chess.Board()
    for ply in range(_PLIES if moves is None else 1000):
        ranked = _ranked(chess, board, rng)
        if not ranked:
            return
        best = ranked[0][1]
        if moves is not None:
            san = next(moves, None)
            if san is None:
                return
            move = board.parse_san(san)
        else:
            move = best if rng.random() < 0.8 else rng.choice(ranked[:5])[1]
        values = _wdl(ranked[0][0])
        yield row_of(SCHEMA, name, ply, board.fen(), uci_of(board, move), uci_of(board, best), *values)
        board.push(move)


def sample_thinking(count: int, seed: int = 0) -> Iterator[Row]:
    """Yields `count` rows of the thinking schema, with positions from games of the small program."""
    chess = require_python_chess("making sample games")
    for number in range(count):
        rng = random.Random(f"thinking {seed} {number}")
        board = chess.Board()
        for _ in range(rng.randrange(30)):
            ranked = _ranked(chess, board, rng)
            if len(ranked) < 5:
                break
            board.push(rng.choice(ranked[:4])[1])
        ranked = _ranked(chess, board, rng)
        if not ranked:  # the last move gave mate or stalemate
            board.pop()
            ranked = _ranked(chess, board, rng)
        weights = [2.0 ** (score - ranked[0][0]) for score, _ in ranked[:4]]
        visits = [round(800 * weight / sum(weights)) for weight in weights]
        variations = [
            {
                "root_move": uci_of(board, move),
                "visit_count": visit,
                "visit_fraction": visit / sum(visits),
                "prior": round(1 / len(ranked), 4),
                "nodes": list(_line(chess, board, move, rng, visit)),
            }
            for visit, (_, move) in zip(visits, ranked, strict=False)
        ]
        score, best = ranked[0]
        text = orjson.dumps(variations).decode()
        yield row_of(THINKING_SCHEMA, board.fen(), text, uci_of(board, best), *_wdl(score))


def _line(chess: Any, root: Any, move: Any, rng: random.Random, visits: int) -> Iterator[dict[str, Any]]:
    """Yields the nodes after a root move: the program's best replies, at most six."""
    board = root.copy()
    board.push(move)
    for depth in range(rng.randrange(2, 7)):
        ranked = _ranked(chess, board, rng)
        answer = ranked[0][1] if ranked else None
        yield {
            "fen": board.fen(),
            "move": None if answer is None else uci_of(board, answer),
            "wdl": list(_wdl(ranked[0][0])) if ranked else ([0.0, 0.0, 1.0] if board.is_check() else [0.0, 1.0, 0.0]),
            "visit_count": max(1, visits >> depth),
        }
        if answer is None:
            return
        board.push(answer)


def _ranked(chess: Any, board: Any, rng: random.Random) -> list[tuple[float, Any]]:
    """The legal moves with the program's score for the side to move, best first."""
    scored = []
    for move in sorted(board.legal_moves, key=str):
        board.push(move)
        if board.is_checkmate():
            score = 50.0
        else:
            score = _material(board, not board.turn) + 0.05 * _reach(chess, move)
            taken = max((_worth_taken(board, reply) for reply in board.generate_legal_captures()), default=0.0)
            score -= 0.9 * taken
        board.pop()
        scored.append((score + rng.random() * 0.3, move))
    return sorted(scored, key=lambda pair: -pair[0])


def _material(board: Any, side: bool) -> float:
    return sum(
        worth * (len(board.pieces(piece, side)) - len(board.pieces(piece, not side))) for piece, worth in _WORTH.items()
    )


def _worth_taken(board: Any, move: Any) -> float:
    piece: int | None = board.piece_type_at(move.to_square)
    return _WORTH[piece or 1]  # en passant: the captured pawn is on another square


def _reach(chess: Any, move: Any) -> float:
    """A score that is higher for moves towards the centre."""
    file, rank = chess.square_file(move.to_square), chess.square_rank(move.to_square)
    return float(3.5 - max(abs(file - 3.5), abs(rank - 3.5)))


def _wdl(score: float) -> tuple[float, float, float]:
    """win, draw and loss for a score in pawns; they add up to 1."""
    win = 1 / (1 + 10 ** (-(score - 1.5) / 3))
    loss = 1 / (1 + 10 ** ((score + 1.5) / 3))
    win, loss = round(win, 4), round(loss, 4)
    return win, round(1 - win - loss, 4), loss
