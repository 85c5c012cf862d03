"""Positions: exactly the moves that python-chess accepts, and its FENs."""

import random
from collections.abc import Iterator

import chess
import pytest

from spanloom.families.chess.pgn.notation import ENGLISH
from spanloom.families.chess.pgn.position import Position, PositionError
from support.nightly import drawn

SQUARES = [*(piece + square for piece in "NBRQK" for square in chess.SQUARE_NAMES), *chess.SQUARE_NAMES]
CAPTURES = [f"{file}x{square}" for file in "abcdefgh" for square in chess.SQUARE_NAMES]
PROMOTIONS = [f"{file}x{to}{rank}={piece}" for file in "abc" for to in "abc" for rank in "18" for piece in "NQ"]
TOKENS = [
    *SQUARES,
    *CAPTURES,
    *PROMOTIONS,
    "a8=Q",
    "a1=N",
    "h8=R",
    "O-O",
    "O-O-O",
    "e1g1",
    "e8c8",
    "e7e5",
    "b1c3",
    "a7a8q",
]


def _positions(count: int, seed: int) -> Iterator[chess.Board]:
    """Boards of random games in which castling, promotions, captures in passing and checks are sought."""
    draw, board = random.Random(seed), chess.Board()
    for _ in range(count):
        moves = list(board.legal_moves)
        if not moves or board.is_insufficient_material():
            board = chess.Board()
            moves = list(board.legal_moves)
        rare = [move for move in moves if move.promotion or board.is_castling(move) or board.is_en_passant(move)]
        board.push(draw.choice(rare or moves))
        yield board.copy()


def _expected(board: chess.Board, token: str) -> tuple[str, str] | None:
    """What python-chess says: the move with castling as king takes rook, and the FEN behind it; None if it refuses."""
    try:
        move = board.parse_san(token)
    except ValueError:
        return None
    spelled = board.uci(move, chess960=True).removesuffix("n")
    after = board.copy(stack=False)
    after.push(move)
    return spelled, after.fen()


def _played(fen: str, token: str) -> tuple[str, str] | None:
    position, san = Position(fen), ENGLISH[token]
    move = None if san is None else position.play(san)
    if move is None:
        assert position.fen() == Position(fen).fen(), "a move that is refused changes nothing"
        return None
    return move, position.fen()


def test_every_token_is_the_move_that_python_chess_says() -> None:
    for board in _positions(drawn(25, 8), seed=1):
        for token in TOKENS:
            assert _played(board.fen(), token) == _expected(board, token), (board.fen(), token)


def test_every_legal_move_is_read_from_its_shortest_text() -> None:
    for board in _positions(drawn(400, 150), seed=2):
        fen = board.fen()
        assert Position(fen).fen() == fen
        for move in board.legal_moves:
            for token in (board.san(move), board.lan(move)):
                assert _played(fen, token) == _expected(board, token), (fen, token)


@pytest.mark.parametrize(
    ("fen", "token"),
    [
        ("4k3/8/8/8/8/8/4r3/R3K2R w KQ - 0 1", "O-O"),  # in check
        ("4k3/8/8/8/8/5r2/8/R3K2R w KQ - 0 1", "O-O"),  # through an attacked square
        ("4k3/8/8/8/8/1r6/8/R3K2R w KQ - 0 1", "O-O-O"),  # b1 alone is attacked: allowed
        ("4k3/8/8/8/8/8/8/RN2K2R w KQ - 0 1", "O-O-O"),  # not empty
        ("4k3/8/8/8/8/8/8/R3K2R w Q - 0 1", "O-O"),
        ("r3k2r/8/8/8/8/8/8/4K3 b kq - 3 9", "O-O-O"),
        ("r3k2r/8/8/8/8/8/8/4K3 b kq - 3 9", "Kg8"),
        ("r3k2r/8/8/8/8/8/8/4K3 b kq - 3 9", "Kg1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 3 9", "e1g1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 3 9", "e8g8"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 3 9", "e1-c1"),
        ("8/8/8/K2pP2r/8/8/8/4k3 w - d6 0 1", "exd6"),  # both pawns leave the king's rank
        ("8/8/8/3pP3/8/8/8/4K2k w - d6 0 1", "exd6"),
        ("8/8/8/4P3/8/8/8/4K2k w - d6 0 1", "exd6"),  # no pawn has passed there
        ("4k3/8/8/8/4r3/8/4N3/4K3 w - - 0 1", "Nc3"),  # pinned
        ("4k3/8/8/8/4r3/8/N3N3/4K3 w - - 0 1", "Nc3"),  # two knights, one of them pinned
        ("4k3/8/8/8/8/8/N3N3/4K3 w - - 0 1", "Nc3"),  # two knights
        ("4k3/8/8/8/8/8/N3N3/4K3 w - - 0 1", "Nac3"),
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a8"),
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a8=K"),
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a8N"),
    ],
)
def test_rules_at_their_edges(fen: str, token: str) -> None:
    board = chess.Board(fen)
    if token == "exd6" and board.piece_at(chess.D5) is None:
        assert _played(fen, token) is None, "python-chess captures a pawn that is not there"
    else:
        assert _played(fen, token) == _expected(board, token)


@pytest.mark.parametrize(
    "fen",
    [
        "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
        "r3k2r/8/8/8/8/8/8/R3K2R b HAha - 5 60",
        "r3k2r/8/8/8/8/8/8/R2K3R w kq - 0 1",
        "4k3/8/8/8/8/8/8/4K3 w KQkq - 0 1",
        "rnbqkbnr/pppp1ppp/8/4p3/8/8/PPPPPPPP/RNBQKBNR w KQkq e6 0 2",
        "8/8/8/3pP3/8/8/8/4K2k w - d6 0 1",
        "4k3/8/8/8/8/8/8/4K3",
        "4k3/8/8/8/8/8/8/4K3 b",
        "4k3/8/8/8/8/8/8/4K3 w - - 7 0",
    ],
)
def test_first_positions_are_those_of_python_chess(fen: str) -> None:
    assert Position(fen).fen() == chess.Board(fen).fen()


@pytest.mark.parametrize(
    ("fen", "chess960"),
    [
        ("nbbrknrq/pppppppp/8/8/8/8/PPPPPPPP/NBBRKNRQ w GDgd - 0 1", True),
        ("r3k2r/8/8/8/8/8/8/R2K3R w KQkq - 0 1", True),
        ("8/8/8/8/8/8/8/4K3 w - - 0 1", False),
        ("4k3/8/8/8/8/8/8/4K2K w - - 0 1", False),
        ("4k2P/8/8/8/8/8/8/4K3 w - - 0 1", False),
        ("4k2Q~/8/8/8/8/8/8/4K3 w - - 0 1", False),
        ("4k3/9/8/8/8/8/8/4K3 w - - 0 1", False),
        ("", False),
    ],
)
def test_what_is_no_position_of_standard_chess_is_refused(fen: str, chess960: bool) -> None:
    with pytest.raises(PositionError) as refused:
        Position(fen)
    assert refused.value.chess960 is chess960
