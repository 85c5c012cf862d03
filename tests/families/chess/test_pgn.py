"""PGN to the pretraining schema: legal games in one spelling, values where they belong, what is left out counted."""

from pathlib import Path

import chess
import pyarrow.parquet as pq
import pytest

from spanloom.errors import SourceError
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.loader import ChessIterableDataset
from spanloom.families.chess.pgn import PgnCounts, convert_pgn
from spanloom.families.chess.verify.games import Checks, validate_folder

GAME = """[Event "Rated game"]
[Site "https://example.org/1"]
[Variant "Standard"]
[Result "1-0"]

1. e4 { [%eval 0.3] [%clk 0:05:00] } 1... e5 { [%eval 0.35] } 2. Nf3 Nc6 3. Bc4 Bc5 4. O-O { [%eval -0.1] }
4... Qf6 (4... Nf6 5. d3) 5. a4 a5 { [%eval #3] } 1-0

"""
PROMOTION = """[Event "?"]
[SetUp "1"]
[FEN "8/P7/8/8/8/2k5/8/K7 w - - 0 1"]

1. a8=N Kd4 *

"""
ATOMIC = '[Variant "Atomic"]\n\n1. e4 e5 *\n\n'
EMPTY = '[Event "nothing"]\n\n*\n\n'
ILLEGAL = '[Event "illegal"]\n\n1. e4 e5 2. Qxf7 *\n\n'
# Its full move is no number that a float has: the value of an [%eval] cannot be worked out.
LATE = """[SetUp "1"]
[FEN "8/P7/8/8/8/2k5/8/K7 w - - 0 %s"]

1. a8=N { [%%eval 0.3] } Kd4 *

""" % ("9" * 4000)


def _converted(tmp_path: Path, text: str, **more: object) -> tuple[PgnCounts, list[dict[str, object]]]:
    path = tmp_path / "club.pgn"
    path.write_text(text, encoding="utf-8")
    counts = convert_pgn([path], tmp_path / "out", **more)  # type: ignore[arg-type]
    return counts, pq.read_table(tmp_path / "out").to_pylist()


def test_a_game_becomes_a_row_for_each_move(tmp_path: Path) -> None:
    counts, rows = _converted(tmp_path, GAME)
    assert (counts.games, counts.rows, counts.rows_with_values, counts.skipped) == (1, 10, 3, {})
    assert [row["played_move"] for row in rows] == [
        *("e2e4", "e7e5", "g1f3", "b8c6", "f1c4", "f8c5", "e1h1", "d8f6", "a2a4", "a7a5")
    ]
    assert [row["ply"] for row in rows] == list(range(10))
    assert {row["game_id"] for row in rows} == {"club_0"}
    assert rows[0]["fen"] == chess.STARTING_FEN
    assert [row["best_move"] for row in rows] == [row["played_move"] for row in rows]


def test_a_comment_judges_the_position_behind_its_move(tmp_path: Path) -> None:
    _, rows = _converted(tmp_path, GAME)
    assert [row["win"] is not None for row in rows] == [False, True, True, *[False] * 4, True, False, False]
    after_e4, after_e5, after_castling = rows[1], rows[2], rows[7]
    assert after_e4["win"] < after_e4["loss"], "0.3 for white, and black is to move"
    assert after_e5["win"] > after_e5["loss"], "0.35 for white, who is to move"
    assert after_castling["win"] > after_castling["loss"], "-0.1 is black's, who is to move"
    for row in (after_e4, after_e5, after_castling):
        assert row["win"] + row["draw"] + row["loss"] == pytest.approx(1)


def test_a_mate_that_is_announced_is_won(tmp_path: Path) -> None:
    _, rows = _converted(tmp_path, GAME.replace("5. a4 a5 { [%eval #3] }", "5. a4 { [%eval #3] } a5"))
    assert (rows[9]["win"], rows[9]["loss"]) == (0.0, 1.0)


def test_promotion_set_up_positions_and_no_best_move(tmp_path: Path) -> None:
    counts, rows = _converted(tmp_path, PROMOTION, best_move="none")
    assert [row["played_move"] for row in rows] == ["a7a8", "c3d4"]
    assert [row["best_move"] for row in rows] == [None, None]
    assert counts.games == 1


def test_what_is_left_out_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    counts, _ = _converted(tmp_path, ATOMIC + GAME + EMPTY + ILLEGAL + LATE + PROMOTION)
    assert counts.games == 2
    assert counts.skipped == {"another variant": 1, "no moves": 1, "moves that cannot be read": 2}
    assert capfd.readouterr().err == ""


def test_the_games_are_valid_legal_and_give_samples(tmp_path: Path) -> None:
    _converted(tmp_path, GAME * 3 + PROMOTION, games_per_file=2)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["games_00000.parquet", "games_00001.parquet"]
    report = validate_folder(tmp_path / "out", Checks(legal=True))
    assert report.clean, report.findings
    assert len(list(ChessIterableDataset(tmp_path / "out", 200))) == 4


def test_what_cannot_be_converted_says_why(tmp_path: Path) -> None:
    with pytest.raises(ChessError, match="1 another variant"):
        _converted(tmp_path, ATOMIC)
    with pytest.raises(SourceError, match=r"nowhere\.pgn"):
        convert_pgn([tmp_path / "nowhere.pgn"], tmp_path / "out")
    _converted(tmp_path, GAME)
    with pytest.raises(ChessError, match="already"):
        _converted(tmp_path, GAME)
