"""PGN → games, worked out by others: python-chess's own game tree, and the program pgn-extract.

In: the text of PGN, or a file. Out: for each game its rows without values, or its moves; and how many games there are.
It imports nothing of the package.
"""

import io
import re
import subprocess
from pathlib import Path

import chess
import chess.pgn

PGN_EXTRACT = "/usr/games/pgn-extract"
Plies = list[tuple[str, str]]


def games_of(text: str) -> list[Plies | None]:
    """FEN and move of each ply of each game; None for a game that gives none."""
    stream, games = io.StringIO(text), []
    while (game := chess.pgn.read_game(stream)) is not None:
        variant = game.headers.get("Variant", "Standard").lower()
        plain = variant in ("standard", "from position", "chess", "classical", "normal") and not game.board().chess960
        moves = list(game.mainline_moves())
        if not plain or game.errors or not moves or any(not move for move in moves):
            games.append(None)
            continue
        board, plies = game.board(), []
        for move in moves:
            plies.append((board.fen(), spelled(board, move)))
            board.push(move)
        games.append(plies)
    return games


def spelled(board: chess.Board, move: chess.Move) -> str:
    """A move as the vocabulary spells it: castling takes the rook, a promotion to a knight has no letter."""
    text = board.uci(move)
    if board.is_castling(move):
        rook_file = "h" if chess.square_file(move.to_square) > chess.square_file(move.from_square) else "a"
        text = f"{text[:2]}{rook_file}{text[1]}"
    return text[:4] if move.promotion == chess.KNIGHT else text


def replayed(fen: str, moves: list[str]) -> Plies | None:
    """FEN and move of each ply, from a first position and moves in UCI; None for moves that are not legal there."""
    board, plies = chess.Board(fen), []
    for text in moves:
        move = chess.Move.from_uci(text)
        if not board.is_legal(move):
            return None
        plies.append((board.fen(), spelled(board, move)))
        board.push(move)
    return plies


def pgn_extract(path: Path) -> tuple[int, list[list[str]], bool]:
    """How many games pgn-extract counts, the moves in UCI of those that it prints, and whether it understood all."""
    options = ["-Wuci", "-C", "-N", "-V", "--nochecks", "--keepbroken", "--allownullmoves", "-w1000000"]
    done = subprocess.run([PGN_EXTRACT, *options, str(path)], capture_output=True, check=True)
    messages = done.stderr.decode("latin-1")
    counted = re.search(r"\d+ games? matched out of (\d+)", messages)
    lines = [line.split() for line in done.stdout.decode("latin-1").split("\n") if line and not line.startswith("[")]
    games = [
        [move.lower() for move in words[:-1]]
        for words in lines
        if words and words[-1] in ("1-0", "0-1", "1/2-1/2", "*")
    ]
    understood = re.search(r"Unknown|Missing|Unmatched|Internal error|Unrecogni[sz]ed", messages) is None
    return int(counted[1]) if counted else 0, games, understood
