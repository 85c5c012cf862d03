"""A position and the variations that a search found there → the arrays of one thinking sample.

In: a `ThinkingRow`, the order and the depth of its variations, or random numbers to draw them from. Out: the arrays of
`tensors`, and also three masks and a flag:

    thinking_move_mask   bool [S]  positions that predict a move of a line, given in move_target_ids
    continue_var_mask    bool [S]  positions that predict the next move of the same line (board target continue_var)
    new_variation_mask   bool [S]  positions that predict the first move of a further line (board target new_variation)
    first_is_not_best    bool []   whether the first line's root move differs from the final move

    [root board] start_think
      root_move wl d [board]  move wl d [board]  …  end_var        one unit of 71 tokens per written node of the line
      root_move wl d [board]  …                     end_var
    end_think final_move wl d

wl and d of a unit are the values of the position after its move; they precede that position's board.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from spanloom.families.chess import defaults
from spanloom.families.chess.encoding.draws import uniforms
from spanloom.families.chess.encoding.fen import Boards, parse_fen
from spanloom.families.chess.encoding.games import Values
from spanloom.families.chess.encoding.moves import MoveIds, move_id
from spanloom.families.chess.encoding.tensors import (
    GENERIC_MOVE,
    Tensors,
    blank,
    number_blocks,
    values_of,
    write_values,
)
from spanloom.families.chess.encoding.vocabulary import (
    BOARD_INDICES,
    BOARD_LENGTH,
    D_VALUE,
    END_THINK,
    END_VAR,
    INDEX_TO_ID,
    NO_MOVE,
    PLY_LENGTH,
    START_THINK,
    WL_VALUE,
)
from spanloom.families.chess.errors import ChessError
from spanloom.records.scalars import is_number

CONTINUE_VAR, NEW_VARIATION = BOARD_INDICES["continue_var"], BOARD_INDICES["new_variation"]
UNIT = BOARD_LENGTH + PLY_LENGTH
FRAME = BOARD_LENGTH + 2 + PLY_LENGTH
"""Tokens around the variations: the root board, start_think, end_think, the final ply."""
_SHORT_IDS = INDEX_TO_ID.astype(np.int16)

NO_VARIATIONS = "no variations"
NO_USABLE = "no usable variation"
NO_FINAL_MOVE = "no usable final move"
TOO_LONG = "too long"
NO_TEMPERATURE = "win and loss give no temperature"

Depths = Sequence[int | None]


@dataclass(frozen=True, kw_only=True)
class ThinkingRow:
    """A position with its V variations, in the order of the row, and their M nodes, end to end.

    `board`        uint8 [68], the root
    `final`        the final move: token id, or NO_MOVE
    `values`       float64 [3], win, draw, loss at the root; NaN if missing
    `root_moves`   int16 [V], token ids; NO_MOVE if missing or unknown
    `visits`       float64 [V]      `fractions`   float64 [V], shares of the visits
    `node_offsets` int64 [V + 1], the start of each variation's nodes
    `node_boards`  uint8 [M, 68]    `node_values` float64 [M, 3], win, draw, loss
    `node_moves`   int16 [M], the move made at a node; NO_MOVE if missing or unknown
    """

    board: npt.NDArray[np.uint8]
    final: int
    values: Values
    root_moves: MoveIds
    visits: npt.NDArray[np.float64]
    fractions: npt.NDArray[np.float64]
    node_offsets: npt.NDArray[np.int64]
    node_boards: Boards
    node_moves: MoveIds
    node_values: Values

    def __len__(self) -> int:
        return len(self.root_moves)


@dataclass(frozen=True, kw_only=True)
class ThinkingRules:
    """The limits on variations and depth, and the temperature of their order (docs/families/chess.md)."""

    max_variations: int = defaults.MAX_VARIATIONS
    max_depth: int = defaults.MAX_DEPTH
    tau_base: float = defaults.TAU_BASE
    tau_alpha: float = defaults.TAU_ALPHA


@dataclass(frozen=True, kw_only=True)
class Line:
    """A written variation: its number in the row, and how many of its nodes are written."""

    variation: int
    depth: int


def decoded(variations: Any) -> list[dict[str, Any]]:
    """The variations in a cell, given as JSON text or a list; empty for None. Raises ChessError for anything else."""
    if isinstance(variations, str | bytes):
        try:
            variations = _loads(variations)
        except (ValueError, RecursionError) as fault:
            raise ChessError(f"the variations are no JSON: {fault}") from None
    if variations is None:
        return []
    if not isinstance(variations, Sequence | np.ndarray):
        raise ChessError(f"the variations are {type(variations).__name__}, not a list")
    for variation in variations:
        if not isinstance(variation, dict):
            raise ChessError(f"a variation is {type(variation).__name__}, not an object")
        nodes = variation.get("nodes")
        if nodes is not None and not isinstance(nodes, Sequence | np.ndarray):
            raise ChessError(f"the nodes of a variation are {type(nodes).__name__}, not a list")
        for node in () if nodes is None else nodes:
            if not isinstance(node, dict):
                raise ChessError(f"a node is {type(node).__name__}, not an object")
    return list(variations)


def _loads(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)  # accepts NaN, which Python's json writes; invalid JSON fails here too


def nodes_of(variation: Mapping[str, Any]) -> list[dict[str, Any]]:
    nodes = variation.get("nodes")
    return [] if nodes is None else list(nodes)


def number(value: Any, missing: float) -> float:
    """A value as a float; `missing` for None and NaN. Raises ChessError if it is not a number, or too large."""
    if value is None:
        return missing
    if not is_number(value):
        raise ChessError(f"{value!r} is no number")
    try:
        return missing if value != value else float(value)
    except OverflowError as fault:
        raise ChessError(str(fault)) from None


def node_wdl(node: Mapping[str, Any]) -> list[float]:
    """win, draw, loss of a node; 0 for missing values. Raises ChessError for an invalid `wdl`."""
    wdl = node.get("wdl")
    if wdl is None:
        return [0.0, 0.0, 0.0]
    if isinstance(wdl, str) or not isinstance(wdl, Sequence | np.ndarray) or len(wdl) != 3:
        raise ChessError(f"the wdl of a node is {wdl!r}, not three numbers")
    return [number(value, 0.0) for value in wdl]


def final_move(row: Mapping[str, Any], board: npt.NDArray[np.uint8]) -> int:
    """The first known move of mcts_action, played_move and best_move; NO_MOVE if there is none."""
    candidates = (move_id(row.get(name), board) for name in ("mcts_action", "played_move", "best_move"))
    return next((move for move in candidates if move >= 0), NO_MOVE)


def row_from_boards(row: Mapping[str, Any], variations: Sequence[dict[str, Any]], boards: Boards) -> ThinkingRow:
    """The row whose root and nodes have these boards, uint8 [1 + M, 68]. Raises ChessError for an invalid number."""
    root_moves, visits, fractions, node_moves, node_values = [], [], [], [], []
    offsets = [0]
    at = 1
    for variation in variations:
        root_moves.append(max(move_id(variation.get("root_move"), boards[0]), NO_MOVE))
        visits.append(number(variation.get("visit_count"), 0.0))
        fractions.append(number(variation.get("visit_fraction"), 0.0))
        for node in nodes_of(variation):
            node_moves.append(max(move_id(node.get("move"), boards[at]), NO_MOVE))
            node_values.append(node_wdl(node))
            at += 1
        offsets.append(at - 1)
    return ThinkingRow(
        board=boards[0],
        final=final_move(row, boards[0]),
        values=np.array([number(row.get(name), np.nan) for name in ("win", "draw", "loss")]),
        root_moves=np.array(root_moves, np.int16),
        visits=np.array(visits, np.float64),
        fractions=np.array(fractions, np.float64),
        node_offsets=np.array(offsets, np.int64),
        node_boards=boards[1:],
        node_moves=np.array(node_moves, np.int16),
        node_values=np.array(node_values, np.float64).reshape(-1, 3),
    )


def fens_of(row: Mapping[str, Any], variations: Sequence[dict[str, Any]]) -> list[str | None]:
    """The FENs of the root and of all nodes; None for a value that is not a string."""
    fens = [row.get("fen"), *(node.get("fen") for variation in variations for node in nodes_of(variation))]
    return [fen if isinstance(fen, str) else None for fen in fens]


def thinking_row(row: Mapping[str, Any]) -> ThinkingRow:
    """Converts a row with the columns of the thinking schema. Raises ChessError for an invalid row."""
    variations = decoded(row["variations"])
    boards = []
    for fen in fens_of(row, variations):
        try:
            boards.append(parse_fen(fen or ""))
        except ValueError as fault:
            raise ChessError(str(fault)) from None
    return row_from_boards(row, variations, np.array(boards, np.uint8))


def lines_of(row: ThinkingRow, order: Sequence[int], depths: Depths) -> list[Line]:
    """The written lines for variations in this order, with these depths: only those with nodes and a known root move.

    A node without a known move ends its line, because the move to the next node is unknown.
    """
    lines = []
    for variation, depth in zip(order, depths, strict=True):
        first, end = int(row.node_offsets[variation]), int(row.node_offsets[variation + 1])
        if depth is None or depth < 1 or first == end or row.root_moves[variation] < 0:
            continue
        depth = min(depth, end - first)
        lost = np.flatnonzero(row.node_moves[first : first + depth - 1] < 0)
        lines.append(Line(variation=variation, depth=int(lost[0]) + 1 if lost.size else depth))
    return lines


def length_of(lines: Sequence[Line]) -> int:
    """The number of tokens of a sample with these lines."""
    return FRAME + sum(UNIT * line.depth + 1 for line in lines)


def written(row: ThinkingRow, lines: Sequence[Line], max_seq_len: int, *, cot_values: bool) -> Tensors:
    """The sample of these lines, which must fit into `max_seq_len`.

    `cot_values` copies every value to the position that predicts its move, instead of the root's alone to end_think.
    """
    depths = np.array([line.depth for line in lines], np.int64)
    firsts = np.array([row.node_offsets[line.variation] for line in lines], np.int64)
    roots = row.root_moves[[line.variation for line in lines]]
    units = int(depths.sum())
    # Units are numbered across all lines. The first unit of a line has the line's root move.
    opening = np.zeros(units, np.bool_)
    opening[np.cumsum(depths) - depths] = True
    line_of = np.cumsum(opening) - 1
    nodes = np.repeat(firsts - (np.cumsum(depths) - depths), depths) + np.arange(units)
    moves = np.where(opening, roots[line_of], row.node_moves[nodes - 1])
    # The root board and start_think precede the first unit. An end_var precedes each further line.
    at = BOARD_LENGTH + 1 + UNIT * np.arange(units) + line_of
    end = BOARD_LENGTH + 1 + UNIT * units + len(lines)  # end_think

    ids = np.empty(end + 1 + PLY_LENGTH, np.int16)
    ids[:BOARD_LENGTH] = _SHORT_IDS[row.board]
    ids[BOARD_LENGTH] = START_THINK
    ids[at] = moves
    ids[at + 1] = WL_VALUE
    ids[at + 2] = D_VALUE
    ids[(at + PLY_LENGTH)[:, None] + np.arange(BOARD_LENGTH)] = _SHORT_IDS[row.node_boards[nodes]]
    closing = np.append(at[opening][1:] - 1, end - 1)  # the end_var tokens
    ids[closing] = END_VAR
    ids[end:] = (END_THINK, row.final, WL_VALUE, D_VALUE)

    made = blank(ids, max_seq_len)
    number_blocks(made, np.concatenate([[0], at + PLY_LENGTH]))
    wl, d, _ = values_of(row.node_values[nodes])
    root_wl, root_d, root_valid = values_of(row.values[None])
    write_values(made, at + 1, wl, d, True)
    write_values(made, np.array([end + 2]), root_wl, root_d, root_valid)

    before = at - 1
    continued = before[~opening]
    further = before[opening][1:]
    made["move_target_ids"][before] = moves
    made["move_target_ids"][end] = row.final
    made["move_mask"][end] = True
    made["board_target_ids"][[BOARD_LENGTH, end]] = GENERIC_MOVE
    made["board_target_ids"][continued] = CONTINUE_VAR
    made["board_target_ids"][further] = NEW_VARIATION
    for name, places in (
        ("thinking_move_mask", before),
        ("continue_var_mask", continued),
        ("new_variation_mask", further),
    ):
        made[name] = np.zeros(max_seq_len, np.bool_)
        made[name][places] = True
    if cot_values:
        made["wl_targets"][before], made["d_targets"][before], made["wdl_valid"][before] = wl, d, True
    made["wl_targets"][end], made["d_targets"][end], made["wdl_valid"][end] = root_wl[0], root_d[0], root_valid[0]
    made["first_is_not_best"] = np.array(roots[0] != row.final)
    return made


def draw_lines(
    row: ThinkingRow, rules: ThinkingRules, numbers: npt.NDArray[np.float64]
) -> tuple[list[int], list[int | None]]:
    """Draws the order of the shown variations and the depth of each, from `numbers` in [0, 1), float64 [2 · V or more].

    The most visited variations are candidates. Their order is drawn from a Plackett-Luce distribution, by Gumbel noise
    on their shares of the visits. Then a depth is drawn for each. Raises ChessError if win and loss give no valid
    temperature.
    """
    shown = np.argsort(-row.visits, kind="stable")[: rules.max_variations]
    if shown.size > 1:
        win, _, loss = np.where(np.isnan(row.values), 0.0, row.values).tolist()
        ahead = win - loss
        tau = rules.tau_base * (1 + rules.tau_alpha * ((win + loss) - ahead * ahead))
        if not 0 < tau < np.inf:
            raise ChessError(NO_TEMPERATURE)
        noise = -np.log(-np.log(numbers[: shown.size] + 2.0**-54))  # 2**-54 avoids the logarithm of 0
        shown = shown[np.argsort(-(row.fractions[shown] / tau + noise), kind="stable")]
    nodes = np.diff(row.node_offsets)[shown]
    deepest = np.minimum(nodes, rules.max_depth)
    depths = 1 + np.floor(numbers[len(row) : len(row) + shown.size] * deepest).astype(np.int64)
    return shown.tolist(), [
        depth if most else None for depth, most in zip(depths.tolist(), nodes.tolist(), strict=True)
    ]


def drawn_sample(
    row: ThinkingRow,
    rules: ThinkingRules,
    key: bytes,
    of_pass: bytes,
    max_seq_len: int,
    *,
    cot_values: bool = False,
) -> Tensors | str:
    """The sample of a row in a pass, or the reason why it has none.

    A sample that is too long is drawn again with smaller limits. First the maximum depth is reduced step by step. Then
    the number of variations is reduced by one, and the depth is reduced again from its full value. The last attempt
    has one variation of one node.
    """
    if not len(row):
        return NO_VARIATIONS
    if row.final < 0:
        return NO_FINAL_MOVE
    attempts = product(range(rules.max_variations, 0, -1), range(rules.max_depth, 0, -1))
    for attempt, (variations, depth) in enumerate(attempts):
        less = replace(rules, max_variations=variations, max_depth=depth)
        numbers = uniforms(key, of_pass + b"\0%d" % attempt, 2 * len(row))
        try:
            order, depths = draw_lines(row, less, numbers)
        except ChessError as fault:
            return fault.what
        lines = lines_of(row, order, depths)
        if not lines:
            return NO_USABLE
        if length_of(lines) <= max_seq_len:
            return written(row, lines, max_seq_len, cot_values=cot_values)
        if max_seq_len < FRAME + UNIT + 1:
            break  # not even one node fits
    return TOO_LONG
