"""Slices to samples: the given arrays, and laws that hold for any game."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.families.chess.encoding.games import Game, row_offsets, valid_starts, written_boards
from spanloom.families.chess.encoding.tensors import sample
from spanloom.families.chess.encoding.vocabulary import BOARD_INDICES, ID_TO_INDEX, PAD, TOKEN_IDS
from spanloom.families.chess.errors import ChessError
from support.chess_games import game_of, game_to_token_ids, parsed_positions, slices

DTYPES = {
    "input_ids": np.int64,
    "board_target_ids": np.int64,
    "move_target_ids": np.int64,
    "move_mask": np.bool_,
    "wl_positions": np.bool_,
    "d_positions": np.bool_,
    "wl_targets": np.float32,
    "d_targets": np.float32,
    "wdl_valid": np.bool_,
    "block_id": np.int64,
}


def _check(made: dict[str, Any], arrays: Any, case: dict[str, Any], row: int) -> None:
    for name, dtype in DTYPES.items():
        expected = arrays[f"S{case['max_seq_len']}/{name}"][row]
        place = (case["game_id"], case["skip_board_prob"], case["start"], case["max_seq_len"], name)
        assert made[name].dtype == dtype == expected.dtype, place
        np.testing.assert_array_equal(made[name], expected, err_msg=str(place))


def test_the_given_samples(chess_cases: Path, case_games: dict[str, Any], samples_index: list[dict[str, Any]]) -> None:
    arrays = dict(np.load(chess_cases / "samples_intended.npz"))
    games = {name: case_games[name]["rows"] for name in {case["game_id"] for case in samples_index}}
    checked = 0
    for case in samples_index:
        if "row" in case["intended"]:
            game = game_of(games[case["game_id"]])
            made = sample(game, case["include_board"], case["start"], case["max_seq_len"])
            _check(made, arrays, case, case["intended"]["row"])
            checked += 1
    assert checked > 100


def test_the_originals_samples_with_its_literal_value_copy(
    chess_cases: Path,
    case_games: dict[str, Any],
    samples_index: list[dict[str, Any]],
    expected_tokens: list[dict[str, Any]],
) -> None:
    arrays = dict(np.load(chess_cases / "samples_upstream.npz"))
    # In some games the original's sequence is another than intended, or there is none.
    other_sequence = {case["game_id"] for case in expected_tokens if case["intended"] != "same"}
    checked = 0
    for case in samples_index:
        if "row" in case["upstream"] and case["game_id"] not in other_sequence:
            game = game_of(case_games[case["game_id"]]["rows"])
            made = sample(game, case["include_board"], case["start"], case["max_seq_len"], literal_d_targets=True)
            _check(made, arrays, case, case["upstream"]["row"])
            checked += 1
    assert checked > 100


@given(slices(), st.data())
def test_no_ply_is_shown_the_next_plys_draw_value(drawn: Any, data: st.DataObject) -> None:
    game, include, length = drawn
    written = written_boards(game.played, include)
    starts = valid_starts(game.played, written, row_offsets(game.played, written))
    start = int(data.draw(st.sampled_from(starts.tolist())))
    made = sample(game, include, start, length)
    _, _, _, value_data = game_to_token_ids(game, include)
    kept = [value for value in value_data if value[0] >= start and value[1] - start < length]
    assert np.flatnonzero(made["d_positions"]).tolist() == [d_pos - start for _, d_pos, *_ in kept]
    for _, d_pos, _, d, _ in kept:
        assert made["d_targets"][d_pos - start] == np.float32(d)
    for wl_pos, _, wl, _, _ in kept:
        assert made["wl_targets"][wl_pos - start] == np.float32(wl)


def test_the_literal_rule_shows_it() -> None:
    game = Game(
        boards=parsed_positions()[:2],
        played=np.array([3, 4], np.int16),
        best=np.array([3, 4], np.int16),
        values=np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]]),
    )
    assert sample(game, [True, False], 0, 80)["d_targets"][70] == 0.25
    assert sample(game, [True, False], 0, 80, literal_d_targets=True)["d_targets"][70] == 0.75


@given(slices(), st.data())
def test_a_sample_says_of_its_tokens_what_the_rules_say(drawn: Any, data: st.DataObject) -> None:
    """The rules said once more, position by position, in the words of the document."""
    game, include, length = drawn
    written = written_boards(game.played, include)
    starts = valid_starts(game.played, written, row_offsets(game.played, written))
    start = int(data.draw(st.sampled_from(starts.tolist())))
    ids, wdl_data, blocks, value_data = game_to_token_ids(game, include)
    cut = ids[start : start + length]
    made = sample(game, include, start, length)
    assert {name: array.dtype for name, array in made.items()} == DTYPES
    assert {array.shape for array in made.values()} == {(length,)}
    assert made["input_ids"].tolist() == cut + [PAD] * (length - len(cut))

    board, move, mask = [-100] * length, [-100] * length, [False] * length
    for at in range(len(cut) - 1):
        board[at] = int(ID_TO_INDEX[cut[at + 1]])
    for (at, best, _, _), (_, d_pos, *_) in zip(wdl_data, value_data, strict=True):
        p = at - start - 1
        if p >= 0 and d_pos - start < length:
            board[p] = BOARD_INDICES["generic_move"]
            if best is not None:
                move[p], mask[p] = TOKEN_IDS[best], True
    assert made["board_target_ids"].tolist() == board
    assert made["move_target_ids"].tolist() == move
    assert made["move_mask"].tolist() == mask

    inside = [block - start for block, _ in blocks if 0 <= block - start < length]
    expected = [
        next((number for number, begin in enumerate(inside) if begin <= at < begin + 68), at + len(inside))
        for at in range(length)
    ]
    assert made["block_id"].tolist() == expected
    assert not (made["wl_positions"] & made["d_positions"]).any()
    assert not (made["wl_positions"] & made["move_mask"]).any()


def test_a_sample_begins_where_a_row_begins() -> None:
    game = Game(
        boards=parsed_positions()[:2],
        played=np.array([3, 4], np.int16),
        best=np.array([3, 4], np.int16),
        values=np.zeros((2, 3)),
    )
    for start in (1, 70, 142, 1000):
        with pytest.raises(ChessError, match="no row"):
            sample(game, [True, True], start, 80)
