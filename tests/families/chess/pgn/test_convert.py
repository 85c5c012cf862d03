"""PGN to the pretraining schema: legal games in one spelling, values where they belong, what is left out counted."""

import bz2
import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import ConflictError, SourceError
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.loader import ChessIterableDataset
from spanloom.families.chess.pgn import GameFilter, PgnCounts, convert_pgn
from spanloom.families.chess.pgn.convert import skipped_file
from spanloom.families.chess.pgn.text import RUN_CHARACTERS
from spanloom.families.chess.verify.games import Checks, validate_folder
from support.cases import beside
from support.pgn_checker import PGN_EXTRACT, Plies, games_of, pgn_extract, replayed
from support.requirements import PGN_EXTRACT as NEEDED
from support.requirements import PGN_FILES, absent

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


def _converted(tmp_path: Path, text: str, **more: object) -> tuple[PgnCounts, list[dict[str, Any]]]:
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
    assert counts.skipped == {
        **{"another variant": 1, "no moves": 1},
        **{"moves that cannot be read": 1, "tags that cannot be read": 1},
    }
    assert capfd.readouterr().err == ""


def test_the_games_are_valid_legal_and_give_samples(tmp_path: Path) -> None:
    _converted(tmp_path, GAME * 3 + PROMOTION, games_per_file=2)
    assert _files(tmp_path / "out") == ["games_00000.parquet", "games_00001.parquet"]
    report = validate_folder(tmp_path / "out", Checks(legal=True))
    assert report.clean, report.findings
    assert len(list(ChessIterableDataset(tmp_path / "out", 200))) == 4


def test_what_cannot_be_converted_says_why(tmp_path: Path) -> None:
    with pytest.raises(ChessError, match="1 another variant"):
        _converted(tmp_path, ATOMIC)
    with pytest.raises(SourceError, match=r"nowhere\.pgn"):
        convert_pgn([tmp_path / "nowhere.pgn"], tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/games_00000.parquet").touch()
    with pytest.raises(ConflictError, match=r"not empty: it holds games_00000\.parquet"):
        _converted(tmp_path, GAME, overwrite=True)


def _files(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if not path.name.startswith("."))


def test_the_same_conversion_is_kept_and_another_needs_overwrite(tmp_path: Path) -> None:
    first, rows = _converted(tmp_path, GAME * 3 + ILLEGAL, games_per_file=1)
    made = {path: (path.stat().st_ino, path.read_bytes()) for path in (tmp_path / "out").iterdir()}
    skipped_file(tmp_path / "out").unlink()
    same: list[str] = []
    again, _ = _converted(tmp_path, GAME * 3 + ILLEGAL, games_per_file=1, on_same=lambda: same.append("same"))
    assert (again, same) == (first, ["same"])
    assert made == {path: (path.stat().st_ino, path.read_bytes()) for path in (tmp_path / "out").iterdir()}
    assert len(skipped_file(tmp_path / "out").read_text().splitlines()) == 1
    with pytest.raises(ConflictError, match="another result of this command: other options"):
        _converted(tmp_path, GAME * 3 + ILLEGAL)
    assert pq.read_table(tmp_path / "out").to_pylist() == rows
    _converted(tmp_path, GAME * 2, overwrite=True)
    assert _files(tmp_path / "out") == ["games_00000.parquet"]
    assert len({row["game_id"] for row in pq.read_table(tmp_path / "out").to_pylist()}) == 2


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "good.pgn").write_text(GAME * 3)
    (tmp_path / "bad.pgn").write_text("no game at all\n")
    with pytest.raises(SourceError, match=r"bad\.pgn"):
        convert_pgn([tmp_path / "good.pgn", tmp_path / "bad.pgn"], tmp_path / "out", games_per_file=1)
    assert not (tmp_path / "out").exists()


def test_python_chess_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "a.pgn").write_text(GAME)
    script = "import sys; sys.modules['chess'] = None; from spanloom.cli import main; sys.exit(main())"
    command = ["chess", "convert", "--pgn", str(tmp_path / "a.pgn"), "--out", str(tmp_path / "out")]
    subprocess.run([sys.executable, "-c", script, *command], check=True)
    assert pq.read_table(tmp_path / "out").num_rows == 10


def _random_games(count: int) -> str:
    """Games of random legal moves, with castling, promotions and en passant wherever these can be had."""
    draw, games = random.Random(7), []
    for _ in range(count):
        board, node = chess.Board(), chess.pgn.Game()
        game = node
        for _ in range(draw.randint(1, 150)):
            moves = list(board.legal_moves)
            if not moves:
                break
            rare = [move for move in moves if move.promotion or board.is_castling(move) or board.is_en_passant(move)]
            move = draw.choice(rare or moves)
            node = node.add_variation(move)
            board.push(move)
        games.append(str(game))
    return "\n\n".join(games) + "\n"


def _plies(out: Path) -> dict[str, Plies]:
    games: dict[str, Plies] = {}
    for row in pq.read_table(out).to_pylist():
        games.setdefault(row["game_id"], []).append((row["fen"], row["played_move"]))
    return games


def _check_against_python_chess(path: Path, out: Path) -> PgnCounts:
    counts = convert_pgn([path], out)
    expected = games_of(path.read_text("utf-8-sig", errors="replace"))
    wanted = {f"{path.stem}_{number}": plies for number, plies in enumerate(expected) if plies is not None}
    assert _plies(out) == wanted
    assert counts.skipped.total() == len(expected) - len(wanted)
    return counts


def test_random_games_are_those_of_python_chess(tmp_path: Path) -> None:
    path = tmp_path / "random.pgn"
    path.write_text(_random_games(40) + "\n" + ATOMIC + GAME + ILLEGAL + EMPTY + PROMOTION)
    assert _check_against_python_chess(path, tmp_path / "out").games == 42


def test_real_games_are_those_of_pgn_extract(tmp_path: Path) -> None:
    """Each game that is read is one of pgn-extract's, in order; its rows are what python-chess makes of those moves."""
    folder = beside("SPANLOOM_PGN", "families/chess/pgn")
    files = sorted(folder.rglob("*.pgn")) or absent(PGN_FILES, f"{folder} holds no .pgn")
    if shutil.which(PGN_EXTRACT) is None:
        absent(NEEDED, f"there is no {PGN_EXTRACT}")
    converted = 0
    for number, path in enumerate(files):
        out = tmp_path / str(number)
        try:
            counts = convert_pgn([path], out)
        except (ChessError, SourceError):
            continue
        counted, games, understood = pgn_extract(path)
        if not understood and counts.games + counts.skipped.total() != counted:
            print(f"{path}: pgn-extract does not understand it all; {counts.games} games are not compared")
            continue
        assert counts.games + counts.skipped.total() == counted, path
        converted += counts.games
        theirs = iter(games)
        for name, plies in _plies(out).items():
            alike = (moves for moves in theirs if len(moves) == len(plies))
            assert any(replayed(plies[0][0], moves) == plies for moves in alike), (path, name)
    print(f"{converted} games of {len(files)} files")
    assert converted


def test_packed_files_give_the_same_games(tmp_path: Path) -> None:
    text = (GAME * 3).encode()
    packed = {"a.pgn": text, "a.pgn.gz": gzip.compress(text), "a.pgn.bz2": bz2.compress(text)}
    packed["a.pgn.zst"] = pa.compress(text, codec="zstd", asbytes=True)
    packed["a2.pgn"] = packed["a.pgn.zst"]  # the first bytes decide, not the name
    tables = []
    for number, (name, data) in enumerate(packed.items()):
        (tmp_path / name).write_bytes(data)
        assert convert_pgn([tmp_path / name], tmp_path / f"out{number}").games == 3
        tables.append(pq.read_table(tmp_path / f"out{number}"))
    assert all(table == tables[0] for table in tables[1:4])
    assert tables[4].drop(["game_id"]) == tables[0].drop(["game_id"])


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"what is this?\n", b"PK\x03\x04rest", gzip.compress(GAME.encode())[:-9], b"\x00" * 99]
)
def test_a_file_without_a_game_is_an_error_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "good.pgn").write_text(GAME)
    (tmp_path / "bad.pgn").write_bytes(data)
    with pytest.raises(SourceError, match=r"bad\.pgn"):
        convert_pgn([tmp_path / "good.pgn", tmp_path / "bad.pgn"], tmp_path / "out")


def test_each_skipped_game_is_named(tmp_path: Path) -> None:
    null = '[Event "null"]\n\n1. e4 -- 2. d4 *\n\n'
    fischer = '[Event "960"]\n[Variant "fischerandom"]\n\n1. e4 e5 *\n\n'
    shredder = '[SetUp "1"]\n[FEN "nbbrknrq/pppppppp/8/8/8/8/PPPPPPPP/NBBRKNRQ w GDgd - 0 1"]\n\n1. d4 d5 *\n\n'
    text = GAME + null + fischer + shredder + ILLEGAL
    counts, _ = _converted(tmp_path, text)
    entries = [json.loads(line) for line in skipped_file(tmp_path / "out").read_text().splitlines()]
    reasons = ["null moves", "Chess960", "Chess960", "moves that cannot be read"]
    assert [(entry["game"], entry["reason"]) for entry in entries] == list(enumerate(reasons, start=1))
    begins = [number for number, line in enumerate(text.split("\n"), 1) if line.startswith(('[Event "', '[SetUp "'))]
    assert [entry["line"] for entry in entries] == begins[1:]
    assert counts.skipped == {"null moves": 1, "Chess960": 2, "moves that cannot be read": 1}


def test_the_file_of_skipped_games_is_of_the_last_conversion(tmp_path: Path) -> None:
    _converted(tmp_path, GAME + ILLEGAL)
    assert skipped_file(tmp_path / "out").exists()
    _converted(tmp_path, GAME, overwrite=True)
    assert not skipped_file(tmp_path / "out").exists()


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "many.pgn"
    path.write_text(_random_games(20) * 12 + "\n" + ATOMIC)
    assert path.stat().st_size > 2 * RUN_CHARACTERS
    for workers in (1, 2):
        convert_pgn([path], tmp_path / f"out{workers}", workers=workers, games_per_file=90)
    one, two = (sorted((tmp_path / f"out{workers}").glob("*.parquet")) for workers in (1, 2))
    assert len(one) == 3
    assert [each.read_bytes() for each in one] == [each.read_bytes() for each in two]
    assert skipped_file(tmp_path / "out1").read_bytes() == skipped_file(tmp_path / "out2").read_bytes()


@pytest.mark.parametrize(
    ("comments", "better"),
    [
        (["{+4.90/20 0.78s}", ""], "loss"),  # white, who moved, is better: black is to move
        (["{-4.90/20 0.78s}", ""], "win"),
        (["{+M5/31 1.2s}", ""], "loss"),
        (["{d=33, sd=46, pv=Nf6 d3, tb=0, wv=4.90, R50=50}", ""], "loss"),
        (["{d=33, wv=-M12, mb=+0}", ""], "win"),
        (["{book, mb=+0+0+0+0+0,}", ""], None),
        (["{0.61s}", ""], None),
        (["{a good move}", ""], None),
    ],
)
def test_comments_of_cutechess_and_tcec(tmp_path: Path, comments: list[str], better: str | None) -> None:
    _, rows = _converted(tmp_path, f'[Event "e"]\n\n1. e4 {comments[0]} e5 {comments[1]} 2. d4 *\n\n')
    second = rows[1]
    if better is None:
        assert second["win"] is None
    else:
        other = "win" if better == "loss" else "loss"
        assert second[better] > 0.9 > second[other]
    assert rows[0]["win"] is None


def test_black_s_comment_is_seen_from_black(tmp_path: Path) -> None:
    _, rows = _converted(tmp_path, '[Event "e"]\n\n1. e4 e5 {+4.90/20 0.78s} 2. d4 {wv=4.90,} d5 *\n\n')
    assert rows[2]["loss"] > 0.9, "black is better, white is to move"
    assert rows[3]["loss"] > 0.9, "white is better, black is to move"


def _tagged(**tags: str) -> str:
    return "".join(f'[{name} "{value}"]\n' for name, value in tags.items()) + "\n1. e4 {[%eval 0.1]} e5 *\n\n"


@pytest.mark.parametrize(
    ("wanted", "games"),
    [
        ({"min_rating": 2000}, [0, 1]),
        ({"results": ("1-0",)}, [0]),
        ({"results": ("1-0", "0-1")}, [0, 1]),
        ({"min_seconds": 300}, [0]),
        ({"max_seconds": 300}, [1]),
        ({"with_values": True}, [0, 1, 2]),
    ],
)
def test_filters(tmp_path: Path, wanted: dict[str, object], games: list[int]) -> None:
    text = (
        _tagged(Event="a", WhiteElo="2100", BlackElo="2000", Result="1-0", TimeControl="300+3")
        + _tagged(Event="b", WhiteElo="2100", BlackElo="2001", Result="0-1", TimeControl="60+1")
        + _tagged(Event="c", WhiteElo="2100", BlackElo="1999", Result="*", TimeControl="-")
        + '[Event "d"]\n\n1. d4 d5 1/2-1/2\n\n'
    )
    counts, rows = _converted(tmp_path, text, wanted=GameFilter(**wanted))  # type: ignore[arg-type]
    assert sorted({str(row["game_id"]) for row in rows}) == [f"club_{game}" for game in games]
    assert counts.skipped.total() == 4 - len(games)


def test_the_first_game_left_out_is_named_if_no_game_is_converted(tmp_path: Path) -> None:
    file = tmp_path / "bad.pgn"
    file.write_text('[Event "A"]\n\n1. e5 *\n\n[Event "B"]\n\n1. e4 Ke4 *\n')
    with pytest.raises(ChessError) as none:
        convert_pgn([file], tmp_path / "games")
    assert none.value.where == f"{file}, line 1"
    assert "'e5'" in none.value.what
    assert none.value.what.endswith("line 3)")
