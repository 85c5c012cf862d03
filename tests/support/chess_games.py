"""Games, thinking rows and Parquet files of them for tests of the chess family.

Positions come from random legal play; the arrays of a `Game` may hold any of them in any order, since its functions do
not ask whether moves are legal.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import chess
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from spanloom.families.chess.encoding.fen import parse_fen
from spanloom.families.chess.encoding.games import Game, Include, written_boards
from spanloom.families.chess.encoding.moves import move_name
from spanloom.families.chess.encoding.tensors import Tensors
from spanloom.families.chess.encoding.thinking import Depths, ThinkingRow, length_of, lines_of, written
from spanloom.families.chess.encoding.vocabulary import (
    BOARD_LENGTH,
    D_VALUE,
    INDEX_TO_ID,
    MOVE_COUNT,
    TOKEN_IDS,
    WL_VALUE,
)
from spanloom.families.chess.pgn import SCHEMA
from spanloom.families.chess.reading.source import raise_first, read_games

BAD_FEN = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP w KQkq - 0 1"


@cache
def positions(count: int = 40, seed: int = 7) -> tuple[str, ...]:
    """FENs of random legal play."""
    rng = random.Random(seed)
    board, fens = chess.Board(), []
    while len(fens) < count:
        fens.append(board.fen())
        board.push(rng.choice(sorted(board.legal_moves, key=str)))
        if board.is_game_over():
            board = chess.Board()
    return tuple(fens)


@cache
def parsed_positions() -> np.ndarray[Any, Any]:
    return np.array([parse_fen(fen) for fen in positions()])


def board_by_python_chess(fen: str) -> list[int]:
    """The 68 token ids of a FEN, by python-chess alone. Raises ValueError where it refuses."""
    board = chess.Board(fen)
    tokens = ["start_pos"]
    for square in chess.SQUARES:
        piece = board.piece_at(square)
        if piece is None:
            tokens.append("empty")
        else:
            tokens.append(f"{chess.COLOR_NAMES[piece.color]}_{chess.piece_name(piece.piece_type)}")
    rights = board.castling_xfen().replace("-", "no_castling_rights")
    tokens += ["end_pos", rights, "white_to_move" if board.turn else "black_to_move"]
    return [TOKEN_IDS[token] for token in tokens]


@st.composite
def games(draw: st.DrawFn, min_rows: int = 1, max_rows: int = 12) -> Game:
    """Games as arrays: any boards, moves with holes, best moves with more of them, values with gaps."""
    rows = draw(st.integers(min_rows, max_rows))
    move = st.integers(0, MOVE_COUNT - 1)
    number = st.one_of(st.just(float("nan")), st.floats(0, 1, width=32))
    column = lambda of: draw(st.lists(of, min_size=rows, max_size=rows))  # noqa: E731
    return Game(
        boards=parsed_positions()[column(st.integers(0, len(parsed_positions()) - 1))],
        played=np.array(column(st.one_of(move, move, move, st.just(-1))), np.int16),
        best=np.array(column(st.one_of(move, move, st.just(-1))), np.int16),
        values=np.array(column(st.tuples(number, number, number)), np.float64).reshape(-1, 3),
    )


@st.composite
def slices(draw: st.DrawFn) -> tuple[Game, np.ndarray[Any, Any], int]:
    """A game, which of its boards are asked for, and a length."""
    game = draw(games())
    include = np.array(draw(st.lists(st.booleans(), min_size=len(game), max_size=len(game))), np.bool_)
    return game, include, draw(st.integers(1, 400))


def game_of(rows: Iterable[Mapping[str, Any]]) -> Game:
    """The one game of these rows, as a file of them gives it. Raises ChessError for a bad one."""
    with TemporaryDirectory() as folder:
        path = write_games(Path(folder) / "game.parquet", ({"game_id": "g", **row} for row in rows))
        table = read_games(path)
        raise_first(table.rejects, path)
        return table.game(0)


def game_to_token_ids(
    game: Game, include: Sequence[bool] | Include | None = None
) -> tuple[list[int], list[Any], list[Any], list[Any]]:
    """The whole sequence of a game row by row, and what is where in it.

    Returns `ids`; `wdl_data` (position of the move, best move or None, [win, draw, loss], valid) and `value_data`
    (position of wl_value, of d_value, win - loss, draw, valid) of each ply; `block_boundaries` (start, end) of each
    board. A missing component counts as 0, and its ply is not valid. `include` None writes every board.
    """
    written = written_boards(game.played, np.ones(len(game), np.bool_) if include is None else include)
    ids: list[int] = []
    wdl_data: list[Any] = []
    blocks: list[Any] = []
    value_data: list[Any] = []
    for row in range(len(game)):
        if written[row]:
            blocks.append((len(ids), len(ids) + BOARD_LENGTH))
            ids += INDEX_TO_ID[game.boards[row]].tolist()
        if game.played[row] < 0:
            continue
        valid = not np.isnan(game.values[row]).any()
        win, draw, loss = np.nan_to_num(game.values[row], nan=0.0).tolist()
        wdl_data.append((len(ids), move_name(game.best[row]), [win, draw, loss], valid))
        value_data.append((len(ids) + 1, len(ids) + 2, win - loss, draw, valid))
        ids += [int(game.played[row]), WL_VALUE, D_VALUE]
    return ids, wdl_data, blocks, value_data


def played_game(name: str | int, plies: int, seed: int) -> list[dict[str, Any]]:
    """Rows of one random legal game, with values that add up to 1."""
    rng = random.Random(f"{name} {seed}")
    board, rows = chess.Board(), []
    for ply in range(plies):
        legal = sorted(board.legal_moves, key=str)
        if not legal:
            break
        move = rng.choice(legal)
        win = round(rng.random() / 2, 3)
        draw = round(rng.random() / 2, 3)
        rows.append(
            {"game_id": name, "ply": ply, "fen": board.fen(), "played_move": move.uci()}
            | {"best_move": rng.choice(legal).uci(), "win": win, "draw": draw, "loss": 1 - win - draw}
        )
        board.push(move)
    return rows


def thinking_rows(count: int, seed: int = 3, lines: int = 3, depth: int = 5) -> Iterator[dict[str, Any]]:
    """Rows of the thinking schema with legal lines."""
    rng = random.Random(seed)
    for number in range(count):
        board = chess.Board(positions()[number % 30])
        legal = sorted(board.legal_moves, key=str)
        variations = []
        for place, root in enumerate(rng.sample(legal, min(lines, len(legal)))):
            line, nodes = board.copy(), []
            line.push(root)
            for _ in range(rng.randint(1, depth)):
                replies = sorted(line.legal_moves, key=str)
                move = rng.choice(replies) if replies else None
                nodes.append({"fen": line.fen(), "move": move and move.uci(), "wdl": [0.5, 0.3, 0.2], "visit_count": 3})
                if move is None:
                    break
                line.push(move)
            variations.append(
                {"root_move": root.uci(), "visit_count": 90 - place, "visit_fraction": 0.5 - place / 10, "nodes": nodes}
            )
        yield {"fen": board.fen(), "variations": json.dumps(variations), "mcts_action": variations[0]["root_move"]} | {
            "win": 0.4,
            "draw": 0.35,
            "loss": 0.25,
        }


def write_games(path: Path, rows: Iterable[Mapping[str, Any]], schema: pa.Schema | None = SCHEMA) -> Path:
    """Writes rows as a Parquet file; with `schema` None the types are those that Arrow infers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)
    return path


def write_thinking(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    return write_games(path, rows, schema=None)


def folder_of_games(folder: Path, sizes: Sequence[int], plies: int = 6, seed: int = 0) -> Path:
    """A folder with a file for each number in `sizes`, of so many games each."""
    for number, size in enumerate(sizes):
        rows = [row for game in range(size) for row in played_game(f"f{number}g{game}", plies, seed)]
        write_games(folder / f"part_{number:02d}.parquet", rows)
    return folder


def thinking_sample(
    row: ThinkingRow, order: Sequence[int], depths: Depths, max_seq_len: int, *, cot_values: bool = False
) -> Tensors | None:
    """The sample with the row's variations in `order`, cut to `depths` (None: the variation is left out).

    None without a usable variation or final move, or if the sample is longer than `max_seq_len`.
    """
    lines = lines_of(row, order, depths)
    if row.final < 0 or not lines or length_of(lines) > max_seq_len:
        return None
    return written(row, lines, max_seq_len, cot_values=cot_values)
