"""FENs: the same boards as python-chess, the same refusals, for columns and one by one."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spanloom.families.chess.encoding.fen import parse_column, parse_fen
from spanloom.families.chess.encoding.vocabulary import INDEX_TO_ID
from support.chess_games import board_by_python_chess, positions

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR"
SYMBOLS = "KQRBNPkqrbnp"


@st.composite
def ranks(draw: st.DrawFn) -> str:
    """One rank of eight squares, or about that."""
    return "".join(draw(st.lists(st.sampled_from([*SYMBOLS, *"KkRr", *"12345678", "~", ""]), max_size=8)))


@st.composite
def whole_ranks(draw: st.DrawFn) -> str:
    squares = draw(st.lists(st.sampled_from([*SYMBOLS, *"KkRr", *("1" * 12)]), min_size=8, max_size=8))
    text = "".join(squares)
    for run in range(8, 1, -1):
        text = text.replace("1" * run, str(run))
    return text


@st.composite
def fens(draw: st.DrawFn) -> str:
    """What is a FEN, nearly is one, or is none."""
    placement = "/".join(draw(st.lists(st.one_of(whole_ranks(), whole_ranks(), ranks()), min_size=8, max_size=8)))
    castling = st.one_of(
        st.sampled_from(["-", "KQkq", "Q", "kq", "K", "Kq", "HAha", "AH", "KK", "qkQK", "X"]),
        st.text("KQkqABHabh-", max_size=5),
    )
    fields = [
        draw(st.sampled_from([placement, START, "r3k2r/8/8/8/4K3/8/8/R3K2R", "4k2r/8/8/8/4K3/8/8/4K2R"])),
        draw(st.sampled_from(["w", "b", "x"])),
        draw(castling),
        draw(st.sampled_from(["-", "e3", "a8", "i9", ""])),
        draw(st.sampled_from(["0", "99", "-1", "1_0", "٣", "x", "12345"])),
        draw(st.sampled_from(["1", "0", "120", "+5", "y"])),
    ]
    separator = draw(st.sampled_from([" ", " ", " ", "  ", "\u2003"]))
    return separator.join(fields[: draw(st.integers(0, 6))])


def judged(fen: str) -> list[int] | None:
    try:
        return board_by_python_chess(fen)
    except ValueError:
        return None


@given(st.lists(st.one_of(fens(), st.sampled_from(positions()), st.text(max_size=12)), max_size=12))
@example(["K7/8/8/8/8/8/8/8 w - - 0 1", "K~6k/8/8/8/8/8/8/8 w - - 0 1"])
@example(["4k3/8/8/8/4K3/8/8/4K2R w Q - 0 1", "4k3/8/8/8/4K3/8/8/4K~2R w Q - 0 1"])
@example(["8/8/8/8/8/8/8/44 w - - 0 1", "8/8/8/8/8/8/8/8 w - - 0 1", "7/18/8/8/8/8/8/8/ w - - 0 1"])
def test_a_column_is_judged_and_read_as_by_python_chess(column: list[str]) -> None:
    boards, bad = parse_column(pa.array(column, pa.string()))
    for fen, board, refused in zip(column, boards, bad, strict=True):
        expected = judged(fen)
        assert refused == (expected is None), fen
        if expected is not None:
            assert INDEX_TO_ID[board].tolist() == expected, fen


@given(fens())
def test_one_fen_is_judged_and_read_as_by_python_chess(fen: str) -> None:
    expected = judged(fen)
    if expected is None:
        with pytest.raises(ValueError):
            parse_fen(fen)
    else:
        assert INDEX_TO_ID[parse_fen(fen)].tolist() == expected


def test_the_given_fens(chess_cases: Path) -> None:
    cases = json.loads((chess_cases / "fens.json").read_bytes())
    boards, bad = parse_column(pa.array([case["fen"] for case in cases]))
    for case, board, refused in zip(cases, boards, bad, strict=True):
        assert refused == ("error" in case), case["fen"]
        if "error" in case:
            with pytest.raises(ValueError):
                parse_fen(case["fen"])
        else:
            assert INDEX_TO_ID[board].tolist() == case["ids"]
            assert parse_fen(case["fen"]).tolist() == board.tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_any_kind_of_string_column_and_any_slice_of_one(kind: pa.DataType) -> None:
    column = pa.array([None, *positions()[:5], "", *positions()[5:9]], pa.string()).cast(kind)
    boards, bad = parse_column(column.slice(3))
    assert bad.tolist() == [False, False, False, True, *[False] * 4]
    assert np.array_equal(boards[0], parse_fen(positions()[2]))
    assert parse_column(column)[1].tolist()[:2] == [True, False]


def test_columns_longer_than_a_chunk() -> None:
    column = list(positions()) * 250
    boards, bad = parse_column(pa.array(column))
    assert not bad.any()
    assert np.array_equal(boards, np.tile(boards[:40], (250, 1)))


def test_an_empty_column() -> None:
    boards, bad = parse_column(pa.array([], pa.string()))
    assert boards.shape == (0, 68)
    assert bad.shape == (0,)


@pytest.mark.parametrize(
    ("fen", "wrong"),
    [
        ("", "empty"),
        ("8/8/8/8/8/8/8 w - - 0 1", "8 ranks"),
        ("8/8/8/8/8/8/8/9 w - - 0 1", "no piece"),
        ("8/8/8/8/8/8/8/44 w - - 0 1", "two digits"),
        ("8/8/8/8/8/8/8/7 w - - 0 1", "7 squares"),
        ("8/8/8/8/8/8/8/8~ w - - 0 1", "~"),
        ("8/8/8/8/8/8/8/8 x", "side to move"),
        ("8/8/8/8/8/8/8/8 w qK", "castling"),
        ("8/8/8/8/8/8/8/8 w - e9", "en passant"),
        ("8/8/8/8/8/8/8/8 w - - x", "count of moves"),
        ("8/8/8/8/8/8/8/8 w - - 0 -1", "negative"),
        ("8/8/8/8/8/8/8/8 w - - 0 1 2", "6 fields"),
    ],
)
def test_what_is_wrong_is_said(fen: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_fen(fen)
