"""The loop that the chess family replaces, and games to hold the two against each other on.

In: Parquet files of games, or of thinking rows. Out: samples as tensors, one after the other.

The loop does what the original (ChessDecoder) does: it parses every position of every game with python-chess, asks
square by square what is there, joins the tokens of the whole game in a list, cuts the slice out, and writes the
targets position by position. It is given no handicap: on the same files the original itself takes a little longer.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import chess
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from spanloom.families.chess.encoding.tensors import sample
from spanloom.families.chess.encoding.thinking import thinking_row
from spanloom.families.chess.encoding.vocabulary import BOARD_INDICES, ID_TO_INDEX, IGNORE, PAD, TOKEN_IDS
from support.chess_games import game_of, thinking_sample

Row = dict[str, Any]
Tensors = dict[str, torch.Tensor]

CHECKED = 20
_CASTLING = {"e1g1": "e1h1", "e1c1": "e1a1", "e8g8": "e8h8", "e8c8": "e8a8"}


def random_games(count: int, plies: int, seed: int) -> list[list[Row]]:
    """Random legal play, with random values: what the loop does does not hang on how well is played."""
    rng = random.Random(seed)
    games = []
    for number in range(count):
        board, rows = chess.Board(), []
        for ply in range(plies):
            legal = sorted(board.legal_moves, key=str)
            if not legal:
                break
            move = rng.choice(legal)
            win, draw, loss = _values(rng)
            played = _CASTLING.get(move.uci(), move.uci()) if board.is_castling(move) else move.uci()
            rows.append(
                {"game_id": f"game_{number}", "ply": ply, "fen": board.fen(), "played_move": played.removesuffix("n")}
                | {"best_move": played.removesuffix("n"), "win": win, "draw": draw, "loss": loss}
            )
            board.push(move)
        games.append(rows)
    return games


def random_variations(count: int, seed: int, lines: int = 3, depth: int = 5) -> list[Row]:
    """Positions with `lines` variations of `depth` nodes each."""
    rng = random.Random(seed)
    rows: list[Row] = []
    while len(rows) < count:
        board = chess.Board()
        for _ in range(rng.randrange(40)):
            if not (legal := list(board.legal_moves)):
                break
            board.push(rng.choice(legal))
        roots = list(board.legal_moves)
        if len(roots) < lines:
            continue
        variations = []
        for place, root in enumerate(rng.sample(roots, lines)):
            line, nodes = board.copy(), []
            line.push(root)
            for _ in range(depth):
                legal = list(line.legal_moves)
                move = rng.choice(legal) if legal else None
                nodes.append({"fen": line.fen(), "move": move and move.uci(), "wdl": _values(rng), "visit_count": 10})
                if move is None:
                    break
                line.push(move)
            variations.append(
                {"root_move": root.uci(), "visit_count": 300 - place, "visit_fraction": 0.5 - place / 10, "prior": 0.1}
                | {"nodes": nodes}
            )
        win, draw, loss = _values(rng)
        rows.append(
            {"fen": board.fen(), "variations": orjson.dumps(variations).decode()}
            | {"mcts_action": variations[0]["root_move"], "win": win, "draw": draw, "loss": loss}
        )
    return rows


def _values(rng: random.Random) -> tuple[float, float, float]:
    shares = sorted((rng.random(), rng.random()))
    return shares[0], shares[1] - shares[0], 1 - shares[1]


def write_parquet(rows: list[Row], path: Path) -> None:
    """Writes rows of either kind."""
    pq.write_table(pa.Table.from_pylist(rows), path)


def check_equal(games: list[list[Row]], variations: list[Row], length: int) -> None:
    """Raises AssertionError unless loop and family give equal samples, drawn alike, of the first games and rows."""
    rng = random.Random(0)
    for rows in games[:CHECKED]:
        include = [rng.random() > 0.2 for _ in rows]
        include[0] = True
        made, start = plain_sample(rows, include, rng, length)
        _equal(made, sample(game_of(rows), include, start, length, literal_d_targets=True))
    for row in variations[:CHECKED]:
        order = rng.sample(range(3), 3)
        depths = [rng.randint(1, 5) for _ in order]
        _equal(
            plain_thinking_sample(row, order, depths, length), thinking_sample(thinking_row(row), order, depths, length)
        )


def _equal(loop: Tensors | None, family: dict[str, Any] | None) -> None:
    assert (loop is None) == (family is None)
    if loop is None or family is None:
        return
    assert loop.keys() == family.keys(), loop.keys() ^ family.keys()
    for name, array in family.items():
        assert loop[name].dtype == torch.from_numpy(array).dtype, name
        assert np.array_equal(loop[name].numpy(), array), name


def plain_board(fen: str) -> list[int]:
    """The 68 tokens of a position, by python-chess, square by square."""
    board = chess.Board(fen)
    tokens = ["start_pos"]
    for square in chess.SQUARES:
        piece = board.piece_at(square)
        color = "white" if piece and piece.color else "black"
        tokens.append(f"{color}_{chess.piece_name(piece.piece_type)}" if piece else "empty")
    rights = "".join(
        letter
        for letter, has in (
            ("K", board.has_kingside_castling_rights(chess.WHITE)),
            ("Q", board.has_queenside_castling_rights(chess.WHITE)),
            ("k", board.has_kingside_castling_rights(chess.BLACK)),
            ("q", board.has_queenside_castling_rights(chess.BLACK)),
        )
        if has
    )
    tokens += ["end_pos", rights or "no_castling_rights", "white_to_move" if board.turn else "black_to_move"]
    return [TOKEN_IDS[token] for token in tokens]


def plain_games(folder: Path, max_seq_len: int, skip_board_prob: float, seed: int) -> Iterator[Tensors]:
    """The loop over games."""
    rng = random.Random(seed)
    for file in sorted(folder.glob("*.parquet")):
        games: dict[str, list[Row]] = {}
        for row in pq.read_table(file).to_pylist():
            games.setdefault(row["game_id"], []).append(row)
        for rows in games.values():
            ordered = sorted(rows, key=lambda row: int(row["ply"]))
            include = [number == 0 or rng.random() > skip_board_prob for number in range(len(ordered))]
            yield plain_sample(ordered, include, rng, max_seq_len)[0]


def plain_sample(rows: list[Row], include: Sequence[bool], rng: random.Random, length: int) -> tuple[Tensors, int]:
    """One game's sample, and where it starts, which is drawn."""
    ids: list[int] = []
    values, blocks, moves = [], [], []
    for row, written in zip(rows, include, strict=True):
        board = plain_board(row["fen"])
        if written:
            blocks.append(len(ids))
            ids += board
        moves.append((len(ids), row["best_move"]))
        values.append((len(ids) + 1, row["win"] - row["loss"], row["draw"]))
        ids += [TOKEN_IDS[row["played_move"]], TOKEN_IDS["wl_value"], TOKEN_IDS["d_value"]]
    start = rng.choice([0, *(at + 2 for at, _, _ in values[:-1])])
    made = _blank(ids[start : start + length], length)
    for at, best in moves:
        if at - start > 0 and at - start + 2 < length:
            made["board_target_ids"][at - start - 1] = BOARD_INDICES["generic_move"]
            made["move_target_ids"][at - start - 1] = TOKEN_IDS[best]
            made["move_mask"][at - start - 1] = True
    inside = [(at - start, wl, d) for at, wl, d in values if at - start >= 0 and at - start + 1 < length]
    for at, wl, d in inside:
        _write_value(made, at, wl, d)
    for at, wl, d in inside:
        if at >= 2:
            _copy_value(made, at - 2, wl, d)
    _number_blocks(made, [block - start for block in blocks if 0 <= block - start < length])
    return made, start


def plain_thinking(folder: Path, max_seq_len: int, seed: int) -> Iterator[Tensors]:
    """The loop over thinking rows, of up to 3 variations of up to 5 nodes."""
    rng = np.random.default_rng(seed)
    for file in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(file).to_pylist():
            variations = sorted(json.loads(row["variations"]), key=lambda one: -int(one["visit_count"]))[:3]
            tau = 0.3 * (1 + (row["win"] + row["loss"]) - (row["win"] - row["loss"]) ** 2)
            scores = [one["visit_fraction"] / tau + rng.gumbel() for one in variations]
            order = sorted(range(len(variations)), key=lambda place: -scores[place])
            depths = [int(rng.integers(1, min(5, len(variations[place]["nodes"])) + 1)) for place in order]
            made = plain_thinking_sample(row, order, depths, max_seq_len)
            if made is not None:
                yield made


def plain_thinking_sample(row: Row, order: Sequence[int], depths: Sequence[int], length: int) -> Tensors | None:
    """One row's sample; None where it is too long. The row's variations stand in the order of their visits."""
    variations = json.loads(row["variations"])
    ids = [*plain_board(row["fen"]), TOKEN_IDS["start_think"]]
    blocks, values, thinking, continued, closed = [0], [], [], [], []
    for place, depth in zip(order, depths, strict=True):
        move = variations[place]["root_move"]
        for number, node in enumerate(variations[place]["nodes"][:depth]):
            if _spelt(move) not in TOKEN_IDS:
                break
            thinking.append((len(ids) - 1, move))
            if number:
                continued.append(len(ids) - 1)
            ids.append(TOKEN_IDS[_spelt(move)])
            values.append((len(ids), node["wdl"][0] - node["wdl"][2], node["wdl"][1]))
            ids += [TOKEN_IDS["wl_value"], TOKEN_IDS["d_value"]]
            blocks.append(len(ids))
            ids += plain_board(node["fen"])
            move = node["move"] or "-"
        closed.append(len(ids))
        ids.append(TOKEN_IDS["end_var"])
    end = len(ids)
    root = (end + 2, row["win"] - row["loss"], row["draw"])
    ids += [TOKEN_IDS["end_think"], TOKEN_IDS[_spelt(row["mcts_action"])], TOKEN_IDS["wl_value"], TOKEN_IDS["d_value"]]
    if len(ids) > length:
        return None
    made = _blank(ids, length)
    for name in ("thinking_move_mask", "continue_var_mask", "new_variation_mask"):
        made[name] = torch.zeros(length, dtype=torch.bool)
    for at, move in [*thinking, (end, row["mcts_action"])]:
        made["move_target_ids"][at] = TOKEN_IDS[_spelt(move)]
        made["move_mask" if at == end else "thinking_move_mask"][at] = True
    for places, target, mask in (
        ([68, end], "generic_move", None),
        (continued, "continue_var", "continue_var_mask"),
        (closed[:-1], "new_variation", "new_variation_mask"),
    ):
        for at in places:
            made["board_target_ids"][at] = BOARD_INDICES[target]
            if mask:
                made[mask][at] = True
    for at, wl, d in [*values, root]:
        _write_value(made, at, wl, d)
    _copy_value(made, end, *root[1:])
    _number_blocks(made, blocks)
    made["first_is_not_best"] = torch.tensor(_spelt(variations[order[0]]["root_move"]) != _spelt(row["mcts_action"]))
    return made


def _spelt(move: str) -> str:
    return _CASTLING.get(move, move).removesuffix("n")


def _blank(ids: list[int], length: int) -> Tensors:
    made = {
        "input_ids": torch.full((length,), PAD),
        **{name: torch.full((length,), IGNORE) for name in ("board_target_ids", "move_target_ids")},
        **{name: torch.zeros(length, dtype=torch.bool) for name in ("move_mask", "wl_positions", "d_positions")},
        **{name: torch.zeros(length) for name in ("wl_targets", "d_targets")},
        "wdl_valid": torch.zeros(length, dtype=torch.bool),
    }
    made["input_ids"][: len(ids)] = torch.tensor(ids)
    for at in range(len(ids) - 1):
        made["board_target_ids"][at] = int(ID_TO_INDEX[made["input_ids"][at + 1].item()])
    return made


def _write_value(made: Tensors, at: int, wl: float, d: float) -> None:
    made["wl_positions"][at], made["d_positions"][at + 1] = True, True
    made["wl_targets"][at], made["d_targets"][at + 1] = wl, d
    made["wdl_valid"][at], made["wdl_valid"][at + 1] = True, True


def _copy_value(made: Tensors, at: int, wl: float, d: float) -> None:
    made["wl_targets"][at], made["d_targets"][at], made["wdl_valid"][at] = wl, d, True


def _number_blocks(made: Tensors, begins: list[int]) -> None:
    length = made["input_ids"].numel()
    made["block_id"] = torch.arange(length) + len(begins)
    for number, begin in enumerate(begins):
        made["block_id"][begin : min(begin + 68, length)] = number
