"""Whether moves are legal and lead where the next board says they do, by python-chess.

In: a table of games or of thinking rows. Out: findings.
"""

import numpy as np
import numpy.typing as npt

from spanloom.families.chess.encoding.python_chess import (
    board_from_tokens,
    legal_move,
    require_python_chess,
    tokens_by_python_chess,
)
from spanloom.families.chess.encoding.vocabulary import MOVES
from spanloom.families.chess.reading.source import GameTable, ThinkingTable
from spanloom.findings import Finding, Report


def check_legal_games(report: Report, table: GameTable, file: str, item_of: npt.NDArray[np.intp]) -> None:
    """Every move is legal, and leads to the next ply's board."""
    chess = require_python_chess("--legal")
    findings = []
    for row in range(len(table.played)):
        for kind, move in (("best_move", int(table.best[row])), ("played_move", int(table.played[row]))):
            if move < 0:
                continue
            board = board_from_tokens(chess, table.boards[row])
            place = f"game {table.ids[item_of[row]]}, ply {table.plies[row]}"
            made = legal_move(chess, board, move)
            if made is None:
                findings.append(
                    Finding(check="legal", message=f"{place}: {kind} {MOVES[move]} is not legal", file=file)
                )
            elif kind == "played_move" and row + 1 < len(item_of) and item_of[row + 1] == item_of[row]:
                board.push(made)
                if tokens_by_python_chess(chess, board) != table.boards[row + 1].tolist():
                    message = f"{place}: {MOVES[move]} does not lead to the next ply's board"
                    findings.append(Finding(check="legal", message=message, file=file))
    report.ran("legal", int(np.count_nonzero(table.played >= 0)))
    report.add(findings)


def check_legal_lines(report: Report, table: ThinkingTable, file: str) -> None:
    """Every variation's moves are legal, each leads to its node's board, and the final move is legal."""
    chess = require_python_chess("--legal")
    findings = []
    for item in range(len(table)):
        row = table.row(item)
        place = f"row {table.numbers[item]}"
        moves: list[tuple[str, npt.NDArray[np.uint8], int, npt.NDArray[np.uint8] | None]] = []
        if row.final >= 0:
            moves.append(("the final move", row.board, row.final, None))
        for variation in range(len(row)):
            first, end = int(row.node_offsets[variation]), int(row.node_offsets[variation + 1])
            name, board, move = f"variation {variation}", row.board, int(row.root_moves[variation])
            for node in range(first, end):
                moves.append((f"{name}, node {node - first}", board, move, row.node_boards[node]))
                board, move = row.node_boards[node], int(row.node_moves[node])
            if end == first:
                moves.append((name, board, move, None))
        for label, board, move, leads_to in moves:
            if move < 0:
                continue
            position = board_from_tokens(chess, board)
            made = legal_move(chess, position, move)
            if made is None:
                findings.append(
                    Finding(check="legal", message=f"{place}, {label}: {MOVES[move]} is not legal", file=file)
                )
            elif leads_to is not None:
                position.push(made)
                if tokens_by_python_chess(chess, position) != leads_to.tolist():
                    message = f"{place}, {label}: {MOVES[move]} does not lead to its board"
                    findings.append(Finding(check="legal", message=message, file=file))
    report.ran("legal", len(table.root_moves) + len(table.node_moves))
    report.add(findings)
