"""A game is what its tokens say: where it ends, what it holds, why it is left out."""

import shutil
from pathlib import Path
from typing import Any

import chess.engine
import pyarrow.parquet as pq
import pytest

from spanloom.families.chess.pgn import GameFilter, PgnCounts, convert_pgn
from spanloom.families.chess.pgn.games import ReadGames, read_games
from spanloom.families.chess.pgn.text import GameText
from support.cases import cases_of
from support.nightly import drawn
from support.pgn_checker import PGN_EXTRACT, pgn_extract
from support.requirements import PGN_EXTRACT as NEEDED
from support.requirements import absent

TAGS = '[Event "a"]\n[Result "*"]\n\n'
NEXT = '[Event "next"]\n\n1. d4 d5 *\n'


def _read(text: str) -> ReadGames:
    return read_games(GameText(1, text), "played", GameFilter(), "pawns")


def _moves(read: ReadGames) -> list[str]:
    """The moves of each kept game, joined."""
    assert read.rows is not None
    moves = read.rows.column("played_move").to_pylist()
    games = []
    for plies in read.plies:
        games.append(" ".join(moves[:plies]))
        moves = moves[plies:]
    return games


def _convert(path: Path, out: Path) -> tuple[PgnCounts, list[dict[str, Any]]]:
    counts = convert_pgn([path], out)
    return counts, pq.read_table(out).to_pylist()


def test_empty_lines_inside_the_moves_are_no_end(tmp_path: Path) -> None:
    counts, rows = _convert(cases_of("reports") / "blank.pgn", tmp_path / "out")
    assert (counts.games, counts.skipped.total()) == (2, 0)
    assert [sum(row["game_id"] == f"blank_{game}" for row in rows) for game in (0, 1)] == [10, 4]
    assert rows[9]["played_move"] == "f6g8"


def test_other_piece_letters(tmp_path: Path) -> None:
    counts, rows = _convert(cases_of("reports") / "german.pgn", tmp_path / "out")
    assert [row["played_move"] for row in rows] == ["g1f3", "g8f6", "g2g3", "g7g6", "d2d3", "d7d6"]
    assert counts.foreign == {"German, Danish, Norwegian, Swedish, Croatian or Slovene": 1}


def test_bad_tags_lose_neither_tags_nor_games(tmp_path: Path) -> None:
    counts, rows = _convert(cases_of("reports") / "badhdr.pgn", tmp_path / "out")
    assert (counts.games, counts.skipped) == (1, {"another variant": 2})
    assert [row["played_move"] for row in rows] == ["e2e4", "e8d7", "d2d4", "d7e6"]
    assert rows[0]["fen"] == "4k3/8/8/8/8/8/PPPPPPPP/4K3 w - - 0 1"


def test_an_open_comment_swallows_no_game(tmp_path: Path) -> None:
    counts, rows = _convert(cases_of("reports") / "unclosed.pgn", tmp_path / "out")
    assert (counts.games, counts.skipped) == (2, {"an open comment": 1})
    assert [row["played_move"] for row in rows] == ["d2d4", "d7d5", "c2c4", "c7c5"]


@pytest.mark.parametrize(
    "text",
    [
        '[Event "a"]\n1. e4 e5 *\n[Event "b"]\n1. c4 c5 *\n',  # no empty line
        '[Event "a"]\n\n\n1. e4\n\n\ne5 *\n\n\n\n[Event "b"]\n\n\n1. c4 c5 *',
        '[Event "a"]\n\n[Site "x"]\n{c}\n\n[Round "1"]\n\n1. e4 e5 *\n\n[Event "b"]\n1. c4 c5 *',
        '[Event "a"] [Site "x"] 1. e4 e5 * [Event "b"] 1. c4 c5 *',
        '[Event "a"]\n\n1. e4 e5\n\n[Event "b"]\n\n1. c4 c5\n',  # no result
        "1. e4 e5 1-0 1. c4 c5 0-1",  # no tags
        "{before} ; and\n1. e4 e5 * {after}\n% escape\n1. c4 c5 * ; after\n",
        '[Event "a"]\r\n\r\n1. e4 (1. d4 d5 1-0) e5 *\r\n\r\n[Event "b"]\r\n\r\n1. c4 c5 *\r\n',
        '\ufeff[Event "a"]\n\n1.e4 e5 1/2-1/2\n\x1a\ufeff[Event "b"]\n\n1.c4 c5 ½-½\n\x1a',
    ],
)
def test_a_game_runs_from_its_tags_to_its_result_or_the_next_tags(text: str) -> None:
    read = _read(text)
    assert _moves(read) == ["e2e4 e7e5", "c2c4 c7c5"]
    assert (read.games, read.skipped) == (2, [])


@pytest.mark.parametrize(
    "tags",
    [
        '[Event "a"]\n\n[Variant "Atomic"]\n\n',
        '[Event "a"]\n\n\n{c}\n[Variant "Atomic"]\n',
        '[Event "a"]\n[variant "Atomic"]\n\n',
        '[Event "a"]\n[Variant   "Atomic" ]\n\n',
        '[Event "the "big" one"]\n[Variant "Atomic"]\n\n',
        '[Event "three\nlines\nof it"]\n[Variant "Atomic"]\n\n',
        '[Event "a"] [Variant "Atomic"]',
        '[Event "a\\"]\n[Variant "Atomic"]\n\n',
    ],
)
def test_no_tag_is_lost(tags: str) -> None:
    read = _read(f"{tags}1. e4 e5 *\n\n{NEXT}")
    assert [(skipped.reason, skipped.detail) for skipped in read.skipped] == [("another variant", "Atomic")]
    assert _moves(read) == ["d2d4 d7d5"]


@pytest.mark.parametrize(
    "moves",
    [
        "1.e4 e5 2.Nf3 Nc6 3.Bb5 a6 4.Bxc6",
        "1. e4 e5 2. Nf3! Nc6!? $14 3. Bb5 $1 += a6 ± 4. Bxc6+- N",
        "1 e2-e4 e7-e5 2 Ng1-f3 Nb8-c6 3 Bf1-b5 a7-a6 4 Bb5xc6",
        "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5c6",
        "1. e4 {a} e5 (1... c5 (1... e6 {b ) ( }) 2. Nf3) 2. Nf3 ; c )\nNc6 3. Bb5\n% d (\na6 4. B:c6",
        "1. ♙e4 ♟e5 2. ♘f3 ♞c6 3. ♗b5 ♟a6 4. ♗xc6",
        "1. Pe4 Pe5 2. Nf3 Nc6 3. Bb5 Pa6 4. Bxc6",
        "1. e4 e5 2. Sf3 Sc6 3. Lb5 a6 4. Lxc6",
        "1. e4 e5 2. Cf3 Cc6 3. Fb5 a6 4. Fxc6",
        "1. e4 e5 2. Кf3 Кc6 3. Сb5 a6 4. Сxc6",
        "1. e4 e5 2. Pf3 Pc6 3. Lb5 a6 4. Lxc6",
        "1. e2—e4 e7–e5 2. Кg1—f3 Кb8—c6 3. Сf1—b5 a7—a6 4. Сb5xc6",
    ],
)
def test_one_game_in_many_spellings(moves: str) -> None:
    assert _moves(_read(f"{TAGS}{moves} *\n\n{NEXT}")) == ["e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5c6", "d2d4 d7d5"]


@pytest.mark.parametrize(
    ("moves", "reason", "token"),
    [
        ("1. e4 foo e5", "moves that cannot be read", "'foo' is no move, line 4"),
        ("1. e4\ne5 2. Sf3 Nc6", "moves that cannot be read", "'Sf3' is no move, line 5"),  # two languages
        ("1. e4 e5 2. N f3", "moves that cannot be read", "'N' is no move, line 4"),
        ("1. e4 e5 2. Nf3 D d5", "moves that cannot be read", "'D' is no move, line 4"),
        ("1. e4 ) e5", "moves that cannot be read", "')' is no move, line 4"),
        ("1. e4 } e5", "moves that cannot be read", "'}' is no move, line 4"),
        ("1. e4 [%clk 0:01] e5", "moves that cannot be read", "'[' is no move, line 4"),
        ("1. e4\n[clk 0:01]\ne5", "moves that cannot be read", "'[clk 0:01]' is no move, line 5"),
        ("1. e4 <x> e5", "moves that cannot be read", "'<x>' is no move, line 4"),
        ("1. e4 $ e5", "moves that cannot be read", "'$' is no move, line 4"),
        ("1. e4 e5 2. Qxf7", "moves that cannot be read", "'Qxf7' is not one legal move"),
        ("1. e4 -- 2. d4", "null moves", "'--', line 4"),
        ("1. e4 Z0 2. d4", "null moves", "'Z0', line 4"),
        ("1. e4 (1. d4 d5 e5", "an open variation", "no ) closes it, line 4"),
        ("1. e4 {good e5 2. Nf3 {better} Nc6", "an open comment", "'{good e5 2. Nf3 {better}', line 4"),
        ("1. e4 (1. d4 {good d5) e5 2. c3", "an open comment", "'{good d5) e5 2. c3 *"),
        ("2. Nf3 Nc6", "moves that begin later", "'2.' without a FEN, line 4"),
        ("1... e5 2. Nf3", "moves that begin later", "'1...' without a FEN, line 4"),
        ("", "no moves", ""),
    ],
)
def test_what_is_not_understood_leaves_the_game_out_by_name(moves: str, reason: str, token: str) -> None:
    read = _read(f"{TAGS}{moves} *\n\n{NEXT}")
    assert [(skipped.game, skipped.line, skipped.reason) for skipped in read.skipped] == [(0, 1, reason)]
    assert read.skipped[0].detail.startswith(token)
    assert _moves(read) == ["d2d4 d7d5"]


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ('[Event "open]', "tags that cannot be read"),
        ('[Event "open"', "tags that cannot be read"),
        ('[Event "a"]\n[Site]\n[Round "1"]', "tags that cannot be read"),
        ('[Variant Atomic]\n[Event "a"]', "tags that cannot be read"),
        ("[Variant “Atomic”]", "tags that cannot be read"),
        ('[SetUp "1"]', "tags that cannot be read"),
        ('[FEN "4k3/8/8/8/8/8/8/8 w - - 0 1"]', "tags that cannot be read"),
        ('[Variant "Standard"]\n[Variant "Atomic"]', "tags that cannot be read"),
        ('[Event "a"]\n{open\n[Site "b"]', "an open comment"),
    ],
)
def test_tags_that_are_not_understood(tags: str, reason: str) -> None:
    read = _read(f"{tags}\n\n1. e4 e5 *\n\n{NEXT}")
    assert [skipped.reason for skipped in read.skipped] == [reason]
    assert _moves(read) == ["d2d4 d7d5"]


@pytest.mark.parametrize("result", ["1-0", "0–1", "1/2", "1/2-1/2", "½–½", "1:0", "*"])
def test_results_and_castling_with_other_dashes(result: str) -> None:
    read = _read(f"{TAGS}1. Sf3 Sf6 2. g3 g6 3. Lg2 Lg7 4. 0–0 O-O! {result}\n\n{NEXT}")
    assert _moves(read) == ["g1f3 g8f6 g2g3 g7g6 f1g2 f8g7 e1h1 e8h8", "d2d4 d7d5"]


def test_letters_that_fit_two_languages_are_not_guessed() -> None:
    fen = '[FEN "4k3/8/8/8/2N5/8/8/2B1K3 w - - 0 1"]\n\n'  # S is a knight in German, a bishop in Czech
    read = _read(f"{fen}1. Se3 *\n\n{fen}1. Se3 Ke7 2. Jd2 *\n")
    assert [skipped.reason for skipped in read.skipped] == ["piece letters of another language"]
    assert "Slovene; Czech or Slovak, line 3" in read.skipped[0].detail
    assert (_moves(read), read.foreign) == (["c1e3 e8e7 c4d2"], ["Czech or Slovak"])


def test_text_between_games_is_named_and_no_game() -> None:
    read = _read(f"Games of our club.\n\n{TAGS}1. e4 e5 *\n\nThat was it.\n\n{NEXT}")
    assert read.games == 2
    assert [(skipped.game, skipped.line, skipped.reason) for skipped in read.skipped] == [
        (None, 1, "text that is no game"),
        (None, 8, "text that is no game"),
    ]
    assert _moves(read) == ["e2e4 e7e5", "d2d4 d7d5"]


def test_tags_repeated_after_an_empty_line_are_the_next_game_s() -> None:
    read = _read(f'[Event "a"]\n[Variant "Atomic"]\n\n{NEXT}')
    assert [(skipped.game, skipped.reason) for skipped in read.skipped] == [(0, "another variant")]
    assert _moves(read) == ["d2d4 d7d5"]


MANY = drawn(100_000, 20_000)


@pytest.mark.parametrize(
    "moves",
    [
        "1. e4 " + "(" * (5 * MANY) + " e5",
        "1. e4 " + "(1. d4 " * (2 * MANY) + ")" * (2 * MANY) + " e5",
        "1. e4 " + "{" * (5 * MANY) + " e5",
        "1. e4 " + ". " * (5 * MANY) + " e5",
        "1. e4 " + "1" * (5 * MANY) + " e5",
        "1. e4 " + '[a "' * (2 * MANY),
        "1. e4 " + 'x [a "\n' * MANY,
        "1. e4 e5 " + "{" + "[%eval " * (2 * MANY) + "} Nf3",
        "1. e4 e5 " + "$1 " * (5 * MANY),
        "1. e4 {" + '\n[a "' * MANY,
        '[A "x"]\n' * MANY + "1. e4 e5",
        '[A "x"]\n\n' * MANY + "1. e4 e5",
        '[A "x"]\n1. foo *\n' * (MANY // 2),
        "1. Nf3 Nf6 2. Ng1 Ng8 " * (MANY // 5),
    ],
)
def test_hostile_text_takes_linear_time(moves: str, tmp_path: Path) -> None:
    """No assertion on time: with a pattern that goes back, or a second look at all of it, this would not end."""
    path = tmp_path / "a.pgn"
    path.write_text(f"{NEXT}\n{TAGS}{moves} *\n\n{NEXT}")
    counts, rows = _convert(path, tmp_path / "out")
    assert counts.games >= 2
    assert [row["played_move"] for row in (*rows[:2], *rows[-2:])] == ["d2d4", "d7d5"] * 2


def test_a_long_comment_is_kept_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.pgn"
    path.write_text(TAGS + "1. e4 {" + "words and\n" * 20_000 + "[%eval 0.5]} e5 2. d4 *\n")
    _, rows = _convert(path, tmp_path / "out")
    assert [row["win"] is not None for row in rows] == [False, True, False]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_runs_cut_no_game(ending: str, tmp_path: Path) -> None:
    """Games of all kinds behind each other: what is read does not depend on where the runs of a file end."""
    kinds = [
        f'{TAGS}1. e4 {{see\n[Event "x"]\n\n1. d4 d5 *\n}} e5 *\n\n',
        f"{TAGS}1. e4 {{open e5 *\n\n",
        '[Event "a"]\n{c}\n\n[Variant "Atomic"]\n\n1. e4 *\n\n',
        f"{TAGS}1. e4 e5 * {{after}}\n\n",
        f"{TAGS}1. e4 (1. d4 d5 *\n\n",
        f"{TAGS}1. e4 e5\n\n2. Nf3 {{}} Nc6\n",
        "1. e4 e5 2. d4 *\n",
    ]
    text = "".join(kinds[number % len(kinds)] + kinds[number * number % len(kinds)] for number in range(6_000))
    whole = _read(text)
    path = tmp_path / "a.pgn"
    path.write_bytes(text.replace("\n", ending).encode())
    counts, rows = _convert(path, tmp_path / "out")
    assert (counts.games, counts.skipped.total()) == (len(whole.kept), len(whole.skipped))
    assert whole.rows is not None
    assert [row["played_move"] for row in rows] == whole.rows.column("played_move").to_pylist()


def test_bytes_that_are_not_utf_8_are_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "a.pgn"
    path.write_bytes(
        '[White "Müller"]\n\n1. e4 {schön} e5 ½-½\n\n'.encode("latin-1") + '[White "Đ"]\n\n1. d4 *'.encode()
    )
    assert _convert(path, tmp_path / "out")[0].games == 2


def test_centipawns_are_told_from_pawns_for_the_whole_file(tmp_path: Path) -> None:
    """The same game with evaluations of ChessBase, lichess, and of an unknown program."""
    wins = []
    for name, (one, two) in {
        "chessbase": ("28,17", "-35,18"),
        "lichess": ("0.28", "-0.35"),
        "other": ("2", "-3"),
    }.items():
        path = tmp_path / f"{name}.pgn"
        path.write_text(f"{TAGS}1. e4 {{[%eval {one}]}} e5 {{[%eval {two}]}} 2. d4 *\n")
        counts, rows = _convert(path, tmp_path / name)
        wins.append([row["win"] for row in rows])
        assert counts.unclear_values == (2 if name == "other" else 0)
    assert wins[0] == wins[1]
    assert wins[0][1] == chess.engine.Cp(-28).wdl(ply=1).wins / 1000
    assert wins[2] == [None, None, None]


def test_games_read_and_left_out_are_those_that_pgn_extract_counts(tmp_path: Path) -> None:
    if shutil.which(PGN_EXTRACT) is None:
        absent(NEEDED, f"there is no {PGN_EXTRACT}")
    path = tmp_path / "a.pgn"
    fischer = (
        '[Event "f"]\n[SetUp "1"]\n[FEN "nbbrknrq/pppppppp/8/8/8/8/PPPPPPPP/NBBRKNRQ w GDgd - 0 1"]\n\n1. d4 d5 *\n\n'
    )
    texts = [TAGS + moves + "\n\n" for moves in ("1. e4 e5 *", "1. e4 e5", "*", "1. e4 -- *", "1. e4 e5 2. Qxf7 *")]
    texts += [
        TAGS + "1. e4 e5 2. Nf3\n\nNc6 {a\n\nb} 3. Bb5 (3. d4 exd4) a6 1/2 {c}\n",
        fischer,
        "1. e4 e5 1-0\n1. d4 d5 0-1\n",
    ]
    texts += ['[Event "a"]\n\n[Variant "Atomic"]\n1. e4 e5 *\n', TAGS + "1. e4 foo e5 *\n\n", "1-0\n"]
    path.write_text("".join(texts * 3) + NEXT)
    counts, _ = _convert(path, tmp_path / "out")
    counted, games, _ = pgn_extract(path)
    assert counts.games + counts.skipped.total() == counted == len(games) == 37
