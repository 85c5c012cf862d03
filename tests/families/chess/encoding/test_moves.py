"""Moves: one spelling for each, and no other change."""

import pyarrow as pa
import pytest

from spanloom.families.chess.encoding.fen import parse_column, parse_fen
from spanloom.families.chess.encoding.moves import UNKNOWN_MOVE, column_ids, move_id, move_name
from spanloom.families.chess.encoding.vocabulary import NO_MOVE

KINGS = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
ROOKS = "4r1k1/8/8/8/8/8/8/4R1K1 w - - 0 1"


@pytest.mark.parametrize(
    ("fen", "move", "token"),
    [
        (KINGS, "e2e4", "e2e4"),
        (KINGS, "e1g1", "e1h1"),
        (KINGS, "e1c1", "e1a1"),
        (KINGS, "e8g8", "e8h8"),
        (KINGS, "e8c8", "e8a8"),
        (KINGS, "e1h1", "e1h1"),
        (ROOKS, "e1g1", "e1g1"),
        (ROOKS, "e8c8", "e8c8"),
        ("4k3/8/8/8/8/8/8/4k3 w - - 0 1", "e1g1", "e1h1"),
        (KINGS, "a7a8n", "a7a8"),
        (KINGS, "a7b8q", "a7b8q"),
        (KINGS, "a7a8", "a7a8"),
    ],
)
def test_one_spelling_of_each_move(fen: str, move: str, token: str) -> None:
    assert move_name(move_id(move, parse_fen(fen))) == token
    boards, _ = parse_column(pa.array([fen]))
    assert move_name(int(column_ids(pa.array([move]), boards)[0])) == token


@pytest.mark.parametrize("move", ["unknown(1900)", "zz99", "a7a8k", "n", "e2e4qn", "E2E4", "0000", "a1b4", "e2e4 "])
def test_what_is_no_move(move: str) -> None:
    assert move_id(move, parse_fen(KINGS)) == UNKNOWN_MOVE
    boards, _ = parse_column(pa.array([KINGS]))
    assert column_ids(pa.array([move]), boards).tolist() == [UNKNOWN_MOVE]
    assert move_name(UNKNOWN_MOVE) is None


def test_no_move_at_all() -> None:
    assert [move_id(move, parse_fen(KINGS)) for move in (None, "", float("nan"))] == [NO_MOVE] * 3
    boards, _ = parse_column(pa.array([KINGS, KINGS, KINGS]))
    assert column_ids(pa.array([None, "", "e2e4"]), boards).tolist()[:2] == [NO_MOVE, NO_MOVE]
    assert column_ids(pa.array([None] * 3, pa.string()), boards).tolist() == [NO_MOVE] * 3


def test_castling_hangs_on_the_board_of_its_own_row() -> None:
    boards, _ = parse_column(pa.array([KINGS, ROOKS, KINGS]))
    ids = column_ids(pa.array(["e1g1"] * 3), boards)
    assert [move_name(move) for move in ids.tolist()] == ["e1h1", "e1g1", "e1h1"]
