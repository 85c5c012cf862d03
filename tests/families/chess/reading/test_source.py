"""Parquet files: games put together, and every kind of bad input told with its place."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import SourceError
from spanloom.families.chess.encoding.fen import parse_fen
from spanloom.families.chess.encoding.thinking import thinking_row
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.families.chess.reading.source import parquet_files, read_games, read_thinking
from support.chess_games import (
    BAD_FEN,
    game_of,
    game_to_token_ids,
    played_game,
    thinking_rows,
    write_games,
    write_thinking,
)


def _same(table: Any, name: str, rows: list[dict[str, Any]]) -> None:
    game = table.game(list(table.ids).index(name))
    assert game_to_token_ids(game) == game_to_token_ids(game_of(rows))


def test_the_given_files(chess_cases: Path, case_games: dict[str, Any]) -> None:
    found, rejected = set(), set()
    for path in parquet_files(chess_cases / "pretrain"):
        table = read_games(path)
        for name in table.ids:
            _same(table, name, case_games[name]["rows"])
        found |= set(table.ids)
        rejected |= {reject.game_id for reject in table.rejects}
    assert found | rejected <= set(case_games)
    assert not found & rejected
    assert {"g18_unknown_played", "g22_bad_fen"} <= rejected
    assert {"g19_after_unknown", "g20_knight_suffix", "g23_after_bad_fen", "g16_missing_best_move"} <= found


def test_the_given_thinking_rows(chess_cases: Path, case_variations: dict[str, Any]) -> None:
    by_action = {(row["fen"], json.dumps(row["variations"])): row for row in case_variations.values()}
    for path in parquet_files(chess_cases / "variation"):
        table, cells = read_thinking(path), pq.read_table(path).to_pylist()
        refused = {int(reject.game_id.removeprefix("row ")) for reject in table.rejects}
        assert sorted({*table.numbers.tolist(), *refused}) == list(range(len(cells)))
        for number in refused:
            with pytest.raises(ChessError):
                thinking_row(cells[number])
        for index, cell in enumerate(cells[number] for number in table.numbers.tolist()):
            row = table.row(index)
            expected = thinking_row(by_action[cell["fen"], json.dumps(json.loads(cell["variations"]))])
            for name in ("board", "root_moves", "visits", "fractions", "node_offsets", "node_boards", "node_moves"):
                assert np.array_equal(getattr(row, name), getattr(expected, name)), name
            assert row.final == expected.final


def test_rows_of_a_game_lie_anywhere_in_their_file(tmp_path: Path) -> None:
    one, two = played_game("b", 7, 1), played_game("a", 5, 2)
    mixed = [two[4], one[6], *[row for pair in zip(one[:4], two[:4], strict=True) for row in pair], one[5], one[4]]
    table = read_games(write_games(tmp_path / "x.parquet", mixed))
    assert list(table.ids) == ["a", "b"], "in the order in which they first appear"
    _same(table, "a", two)
    _same(table, "b", one)
    assert table.plies.tolist() == [*range(5), *range(7)]


def test_rows_with_the_same_ply_keep_their_order(tmp_path: Path) -> None:
    rows = played_game("g", 4, 0)
    for row in rows:
        row["ply"] = min(row["ply"], 1)
    table = read_games(write_games(tmp_path / "x.parquet", rows))
    assert table.game(0).boards.tolist() == [parse_fen(row["fen"]).tolist() for row in rows]


def test_ids_may_be_integers_and_floats_that_pandas_made_of_them(tmp_path: Path) -> None:
    rows = [*played_game(12, 3, 0), *played_game(7, 3, 0)]
    table = read_games(write_games(tmp_path / "int.parquet", rows, schema=None))
    assert list(table.ids) == ["12", "7"]
    floats = pa.Table.from_pylist(rows).set_column(0, "game_id", pa.array([12.0] * 3 + [float("nan")] + [7.0] * 2))
    pq.write_table(floats, tmp_path / "float.parquet")
    table = read_games(tmp_path / "float.parquet")
    assert (list(table.ids), table.null_rows, len(table.game(1))) == (["12", "7"], 1, 2)


def test_any_types_that_carry_the_columns(tmp_path: Path) -> None:
    rows = played_game("g", 6, 0)
    plain = read_games(write_games(tmp_path / "x.parquet", rows))
    table = pa.Table.from_pylist(rows)
    for name in ("game_id", "fen", "played_move"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).dictionary_encode())
    at = table.schema.get_field_index("best_move")
    table = table.set_column(at, "best_move", table.column("best_move").cast(pa.large_string()))
    table = table.set_column(table.schema.get_field_index("draw"), "draw", pa.nulls(6))
    table = table.append_column("extra", pa.array(["ignored"] * 6))
    pq.write_table(table, tmp_path / "y.parquet")
    other = read_games(tmp_path / "y.parquet")
    assert np.array_equal(other.boards, plain.boards)
    assert np.array_equal(other.best, plain.best)
    assert np.isnan(other.values[:, 1]).all()


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"fen": BAD_FEN}, "bad fen", "8 ranks"),
        ({"fen": None}, "bad fen", "none"),
        ({"played_move": "unknown(1900)"}, "unknown played_move", "unknown(1900)"),
        ({"ply": None}, "no ply", "null"),
    ],
)
def test_a_bad_row_costs_its_game_alone(tmp_path: Path, changes: dict[str, Any], reason: str, detail: str) -> None:
    first, bad, last = (played_game(name, 5, 0) for name in ("first", "bad", "last"))
    bad[3] |= changes
    table = read_games(write_games(tmp_path / "x.parquet", [*first, *bad, *last]))
    assert list(table.ids) == ["first", "last"]
    _same(table, "last", last)
    (reject,) = table.rejects
    assert (reject.file, reject.game_id, reject.reason) == ("x.parquet", "bad", reason)
    assert reject.ply == (None if "ply" in changes else 3)
    assert detail in reject.detail


def test_of_several_bad_rows_the_first_ply_is_told(tmp_path: Path) -> None:
    rows = played_game("g", 6, 0)
    rows[4]["fen"], rows[2]["played_move"] = BAD_FEN, "zz99"
    table = read_games(write_games(tmp_path / "x.parquet", rows[::-1]))
    assert [(reject.ply, reject.reason) for reject in table.rejects] == [(2, "unknown played_move")]
    assert len(table) == 0


def test_what_is_dropped_or_missing_is_counted(tmp_path: Path) -> None:
    rows = played_game("g", 6, 0)
    rows[1]["best_move"], rows[2]["best_move"], rows[3]["best_move"] = None, "", "zz99"
    rows[5] |= {"played_move": None, "best_move": None}
    lost = [{**row, "game_id": None} for row in played_game("x", 3, 0)]
    table = read_games(write_games(tmp_path / "x.parquet", [*lost, *rows]))
    assert (table.rows, table.null_rows, table.best_missing, table.best_unknown) == (9, 3, 2, 1)
    assert table.best.tolist()[1:4] == [-1, -1, -1]


def test_a_file_that_is_empty_is_fine(tmp_path: Path) -> None:
    table = read_games(write_games(tmp_path / "x.parquet", []))
    assert (len(table), table.rows, table.boards.shape) == (0, 0, (0, 68))


def test_a_missing_column_names_the_file(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "best_move"} for row in played_game("g", 3, 0)]
    path = write_games(tmp_path / "x.parquet", rows, schema=None)
    with pytest.raises(SourceError, match=r"(?s)best_move.*x.parquet"):
        read_games(path)
    with pytest.raises(SourceError, match=r"(?s)variations, mcts_action.*x.parquet"):
        read_thinking(path)


@pytest.mark.parametrize(("kind", "column"), [("games", "fen"), ("thinking", "variations"), ("thinking", "best_move")])
def test_a_column_that_stands_twice_names_the_file(tmp_path: Path, kind: str, column: str) -> None:
    rows = played_game("g", 3, 0) if kind == "games" else [{**row, "best_move": None} for row in thinking_rows(2)]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.append_column(column, table[column]), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=rf"(?s){column} more than once.*x\.parquet"):
        (read_games if kind == "games" else read_thinking)(tmp_path / "x.parquet")


def test_a_file_that_cannot_be_read_names_itself(tmp_path: Path) -> None:
    path = write_games(tmp_path / "x.parquet", played_game("g", 40, 0))
    whole = path.read_bytes()
    for name, data in (("none", b"no parquet"), ("short", whole[:-10]), ("empty", b"")):
        (tmp_path / f"{name}.parquet").write_bytes(data)
        with pytest.raises(SourceError, match=f"{name}.parquet"):
            read_games(tmp_path / f"{name}.parquet")
    (tmp_path / "broken.parquet").write_bytes(whole[:200] + bytes(600) + whole[800:])
    with pytest.raises(SourceError, match=r"broken\.parquet"):
        read_games(tmp_path / "broken.parquet")


@pytest.mark.parametrize(
    ("column", "values"),
    [("fen", [1, 2]), ("game_id", [0.5, 1.5]), ("ply", ["one", "two"]), ("win", ["a", "b"]), ("ply", [0.5, 1.0])],
)
def test_a_column_of_another_type_names_file_and_column(tmp_path: Path, column: str, values: list[Any]) -> None:
    table = pa.Table.from_pylist(played_game("g", 2, 0))
    table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=rf"(?s)column {column}.*x.parquet"):
        read_games(tmp_path / "x.parquet")


def test_a_folder_without_parquet_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no games")
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError):
            parquet_files(folder)
        with pytest.raises(NoFilesError, match=str(folder)):
            parquet_files(folder)


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a10", "a9"):
        write_games(tmp_path / f"{name}.parquet", [])
    assert [path.stem for path in parquet_files(tmp_path)] == ["a10", "a9", "b"]


def test_a_bad_thinking_row_costs_itself_alone(tmp_path: Path) -> None:
    rows = list(thinking_rows(6))
    rows[1]["variations"] = "{"
    rows[2]["fen"] = BAD_FEN
    rows[4]["variations"] = rows[4]["variations"].replace('"fen": "', '"fen": "/', 1)
    table = read_thinking(write_thinking(tmp_path / "x.parquet", rows))
    assert table.numbers.tolist() == [0, 3, 5]
    assert [(reject.game_id, reject.reason) for reject in table.rejects] == [
        ("row 1", "bad variations"),
        ("row 2", "bad fen"),
        ("row 4", "bad fen"),
    ]
    assert table.row(1).node_boards.tolist() == thinking_row(rows[3]).node_boards.tolist()


def test_variations_may_be_lists_already(tmp_path: Path) -> None:
    rows = list(thinking_rows(4))
    lists = [{**row, "variations": json.loads(row["variations"])} for row in rows]
    one = read_thinking(write_thinking(tmp_path / "text.parquet", rows))
    other = read_thinking(write_thinking(tmp_path / "list.parquet", lists))
    for name in ("root_moves", "visits", "fractions", "node_offsets", "node_boards", "node_moves", "node_values"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_half_a_character_in_a_fen_is_a_bad_fen(tmp_path: Path) -> None:
    rows = list(thinking_rows(2))
    rows[0]["variations"] = json.dumps([{"root_move": "e2e4", "nodes": [{"fen": "\ud800", "move": None}]}])
    table = read_thinking(write_thinking(tmp_path / "x.parquet", rows))
    assert [reject.game_id for reject in table.rejects] == ["row 0"]
    assert len(table) == 1
