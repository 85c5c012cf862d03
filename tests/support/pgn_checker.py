"""PGN → rows, worked out with python-chess's own game tree: slow, and apart from the code that converts.

In: the text of PGN. Out: for each game that is standard chess, whole and legal, its rows without values; and how many
games there are. It imports nothing of the package.
"""

import io

import chess
import chess.pgn

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
            text_of_move = board.uci(move)
            if board.is_castling(move):
                king = chess.square_name(move.from_square)
                rook_file = "h" if chess.square_file(move.to_square) > chess.square_file(move.from_square) else "a"
                text_of_move = f"{king}{rook_file}{king[1]}"
            plies.append((board.fen(), text_of_move[:4] if move.promotion == chess.KNIGHT else text_of_move))
            board.push(move)
        games.append(plies)
    return games
