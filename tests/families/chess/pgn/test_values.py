"""Evaluations: their unit, decided for a file, and the estimate that they stand for."""

import chess.engine
import pytest

from spanloom.families.chess.pgn.values import UnclearEvaluation, Unit, unit_of, values_of


@pytest.mark.parametrize(
    ("evaluations", "unit"),
    [
        ("0.3 -1.25 0.0", "pawns"),
        ("28 -12 0", "centipawns"),
        ("8,17 -12,18 0,19", "centipawns"),
        ("8 -12 0", "unclear"),
        ("1 2", "unclear"),
        ("0 #3 #-1", "unclear"),  # nothing that depends on it
        ("0.3 28,17", "unclear"),
        ("0.3 28 30", "unclear"),
        ("0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.1 1.2 1", "pawns"),
        ("0 0 0 0.3", "pawns"),
        ("28. 30.", "centipawns"),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_the_unit_of_a_file(evaluations: str, unit: Unit, block: int) -> None:
    text = "".join(f"e4 {{ [%clk 0:01:00] [%eval {value}] }} " for value in evaluations.split()).encode()
    assert unit_of(text[start : start + block] for start in range(0, len(text), block)) == unit


@pytest.mark.parametrize("centipawns", [-40000, -4001, -350, -1, 0, 7, 35, 499, 2900])
@pytest.mark.parametrize("ply", [1, 2, 17, 30, 90, 241, 600])
def test_the_estimate_is_that_of_python_chess(centipawns: int, ply: int) -> None:
    wdl = chess.engine.Cp(centipawns).wdl(ply=ply)
    expected = (wdl.wins / 1000, wdl.draws / 1000, wdl.losses / 1000)
    assert values_of(f"[%eval {centipawns}]", None, True, ply, "centipawns") == expected
    assert values_of(f"[%eval {centipawns / 100:.2f},20]", None, True, ply, "unclear") == expected
    assert values_of(f"[%eval {-centipawns}]", None, False, ply, "centipawns") == expected


def test_whole_numbers_are_what_the_file_says() -> None:
    assert values_of("[%eval 3]", True, True, 9, "pawns") == values_of("[%eval 3.00]", True, True, 9, "unclear")
    assert values_of("[%eval 3]", True, True, 9, "centipawns") == values_of("[%eval 0.03]", True, True, 9, "pawns")
    assert values_of("[%eval 0]", True, True, 9, "unclear") == values_of("[%eval 0.0]", True, True, 9, "pawns")
    for comment in ("[%eval 3]", "[%eval -3,20]", "[%eval a lot]"):
        with pytest.raises(UnclearEvaluation):
            values_of(comment, True, True, 9, "unclear")
