"""Games to sequences: the given games, and exact small ones."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from spanloom.families.chess.encoding.games import row_offsets, valid_starts, written_boards
from spanloom.families.chess.errors import ChessError
from support.chess_games import BAD_FEN, game_of, game_to_token_ids, played_game, slices


def test_the_given_games(case_games: dict[str, Any], expected_tokens: list[dict[str, Any]]) -> None:
    assert expected_tokens
    for case in expected_tokens:
        expected = case["upstream"] if case["intended"] == "same" else case["intended"]
        rows = case_games[case["game_id"]]["rows"]
        if "game_dropped" in expected:
            with pytest.raises(ChessError, match=r"unknown played_move|side to move|FEN|squares|ranks|piece"):
                game_of(rows)
            continue
        game = game_of(rows)
        ids, wdl_data, blocks, value_data = json.loads(json.dumps(game_to_token_ids(game, case["include_board"])))
        assert ids == expected["ids"], case["game_id"]
        assert wdl_data == expected["wdl_data"], case["game_id"]
        assert blocks == expected["block_boundaries"]
        assert value_data == expected["value_data"]
        written = written_boards(game.played, case["include_board"])
        offsets = row_offsets(game.played, written)
        assert valid_starts(game.played, written, offsets).tolist() == case["valid_starts"]
        on_board = valid_starts(game.played, written, offsets, start_on_board=True)
        assert on_board.tolist() == case["valid_starts_on_board"]


@given(slices())
def test_starts_are_where_rows_begin_and_offsets_where_the_sequence_has_them(drawn: Any) -> None:
    game, include, _ = drawn
    written = written_boards(game.played, include)
    offsets = row_offsets(game.played, written)
    ids, _, blocks, value_data = game_to_token_ids(game, include)
    assert offsets[-1] == len(ids)
    assert [begin for begin, _ in blocks] == offsets[:-1][written].tolist()
    starts = valid_starts(game.played, written, offsets).tolist()
    assert starts == [0, *(d + 1 for _, d, _, _, _ in value_data[:-1])]
    assert set(starts) <= set(offsets.tolist())


def test_the_row_behind_a_hole_is_always_written() -> None:
    played = np.array([5, -1, 7, 8, -1], np.int16)
    assert written_boards(played, [False] * 5).tolist() == [True, False, True, False, False]


def test_rows_come_in_any_order_and_are_sorted_by_ply() -> None:
    rows = played_game("g", 5, 0)
    assert game_to_token_ids(game_of(rows[::-1])) == game_to_token_ids(game_of(rows))


def test_a_bad_row_is_named_by_its_ply() -> None:
    rows = played_game("g", 4, 0)
    with pytest.raises(ChessError, match=r"(?s)this one 7.*ply 2"):
        game_of([*rows[:2], {**rows[2], "fen": BAD_FEN}, rows[3]])
    with pytest.raises(ChessError, match=r"(?s)'zz99'.*ply 3"):
        game_of([*rows[:3], {**rows[3], "played_move": "zz99"}])


def test_include_must_have_a_value_for_each_row() -> None:
    with pytest.raises(ChessError, match="2 values for a game of 3 rows"):
        written_boards(np.array([1, 2, 3], np.int16), [True, False])
