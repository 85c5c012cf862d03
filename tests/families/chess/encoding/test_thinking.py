"""Thinking samples: the given ones, and laws of what is drawn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.families.chess.encoding.draws import key_of, pass_of, uniforms
from spanloom.families.chess.encoding.moves import move_name
from spanloom.families.chess.encoding.thinking import (
    NO_FINAL_MOVE,
    NO_USABLE,
    NO_VARIATIONS,
    TOO_LONG,
    ThinkingRow,
    ThinkingRules,
    draw_lines,
    drawn_sample,
    thinking_row,
)
from spanloom.families.chess.encoding.vocabulary import MOVE_COUNT, TOKEN_IDS
from spanloom.families.chess.errors import ChessError
from support.chess_games import parsed_positions, positions, thinking_sample

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
EXTRA = ("thinking_move_mask", "continue_var_mask", "new_variation_mask", "first_is_not_best")


@st.composite
def thinking(draw: st.DrawFn) -> ThinkingRow:
    """Rows as arrays: any moves, lines of any length, unknown ones among them."""
    variations = draw(st.integers(0, 6))
    lengths = draw(st.lists(st.integers(0, 6), min_size=variations, max_size=variations))
    nodes = sum(lengths)
    move = st.one_of(st.integers(0, MOVE_COUNT - 1), st.integers(0, MOVE_COUNT - 1), st.just(-1))

    def column(of: st.SearchStrategy[Any], count: int) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    board = st.integers(0, len(parsed_positions()) - 1)
    share = st.floats(0, 0.5, width=32)
    win, loss = draw(share), draw(share)
    return ThinkingRow(
        board=parsed_positions()[draw(board)],
        final=draw(move),
        values=np.array([win, 1 - win - loss, draw(st.sampled_from([loss, float("nan")]))]),
        root_moves=np.array(column(move, variations), np.int16),
        visits=np.array(column(st.integers(0, 50), variations), np.float64),
        fractions=np.array(column(st.floats(0, 1), variations), np.float64),
        node_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        node_boards=parsed_positions()[column(board, nodes)].reshape(-1, 68),
        node_moves=np.array(column(move, nodes), np.int16),
        node_values=np.array(column(st.tuples(share, share, share), nodes), np.float64).reshape(-1, 3),
    )


rules = st.builds(
    ThinkingRules,
    max_variations=st.integers(1, 5),
    max_depth=st.integers(1, 6),
    tau_base=st.floats(0.01, 5),
    tau_alpha=st.floats(0, 5),
)


def test_the_given_samples(
    chess_cases: Path, case_variations: dict[str, Any], expected_variations: list[dict[str, Any]]
) -> None:
    arrays = dict(np.load(chess_cases / "variation_samples.npz"))
    checked = 0
    for case in expected_variations:
        row = thinking_row(case_variations[case["id"]])
        order, depths, length = case.get("order", []), case.get("depths", []), case["max_seq_len"]
        for kind, cot_values in (("intended", False), ("intended_cot", True)):
            made = thinking_sample(row, order, depths, length, cot_values=cot_values)
            assert (made is not None) == case["intended"]["sample"], case["key"]
            for path in (path for path in arrays if path.startswith(f"{kind}/{case['key']}/")):
                name = path.rsplit("/", 1)[1]
                assert made is not None
                assert made[name].dtype == arrays[path].dtype, path
                np.testing.assert_array_equal(made[name], arrays[path], err_msg=path)
                checked += 1
    assert checked > 100


def test_the_given_sequences(case_variations: dict[str, Any], expected_variations: list[dict[str, Any]]) -> None:
    checked = 0
    for case in expected_variations:
        intended = case["intended"]
        if "ids" not in intended:
            continue
        length = len(intended["ids"])
        made = thinking_sample(thinking_row(case_variations[case["id"]]), case["order"], case["depths"], length)
        assert made is not None, case["key"]
        assert made["input_ids"].tolist() == intended["ids"], case["key"]
        moves = [[int(at), move_name(made["move_target_ids"][at])] for at in np.flatnonzero(made["thinking_move_mask"])]
        assert moves == intended["thinking_move_data"]
        (end,) = np.flatnonzero(made["move_mask"]).tolist()
        assert [end, move_name(made["move_target_ids"][end])] == intended["final_move_data"]
        places, d_places, wl, d, valid = zip(*intended["value_data"], strict=True)
        assert np.flatnonzero(made["wl_positions"]).tolist() == list(places)
        assert np.flatnonzero(made["d_positions"]).tolist() == list(d_places)
        assert made["wl_targets"][[*places]].tolist() == np.array(wl, np.float32).tolist()
        assert made["d_targets"][[*d_places]].tolist() == np.array(d, np.float32).tolist()
        assert made["wdl_valid"][[*places]].tolist() == list(valid)
        for number, (begin, behind) in enumerate(intended["block_boundaries"]):
            assert np.flatnonzero(made["block_id"] == number).tolist() == list(range(begin, behind))
        assert bool(made["first_is_not_best"]) == intended["first_is_not_best"]
        checked += 1
    assert checked


@given(thinking(), rules, st.integers(0, 600), st.integers(0, 5))
def test_a_drawn_sample_keeps_to_length_variations_and_depth(
    row: ThinkingRow, rule: ThinkingRules, length: int, seed: int
) -> None:
    made = drawn_sample(row, rule, key_of("f", "1"), pass_of("t", seed), max(length, 1))
    if isinstance(made, str):
        assert made in {NO_VARIATIONS, NO_USABLE, NO_FINAL_MOVE, TOO_LONG}
        usable = ((row.root_moves >= 0) & (np.diff(row.node_offsets) > 0)).any()
        assert not len(row) or row.final < 0 or made == TOO_LONG or not usable or rule.max_variations < len(row)
        return
    ids = made["input_ids"]
    assert ids.shape == (max(length, 1),)
    ends = np.flatnonzero(ids == TOKEN_IDS["end_var"])
    begins = np.append(np.flatnonzero(ids == TOKEN_IDS["start_think"]), ends[:-1]) if ends.size else ends
    assert 1 <= ends.size <= rule.max_variations
    assert (np.sort(ends - begins - 1) // 71 <= rule.max_depth).all()
    assert ((ends - begins - 1) % 71 == 0).all()
    assert np.count_nonzero(ids == TOKEN_IDS["end_think"]) == 1
    assert ids[np.flatnonzero(made["move_mask"])].tolist() == [TOKEN_IDS["end_think"]]
    assert not (made["move_mask"] & made["thinking_move_mask"]).any()
    assert (made["continue_var_mask"] | made["new_variation_mask"])[made["thinking_move_mask"]].sum() == (
        made["thinking_move_mask"].sum() - 1
    )
    predicted = np.flatnonzero(made["thinking_move_mask"] | made["move_mask"])
    assert made["move_target_ids"][predicted].tolist() == ids[predicted + 1].tolist()
    assert (made["move_target_ids"] >= 0).sum() == predicted.size


@given(thinking(), rules, st.integers(0, 1000))
def test_what_is_drawn_are_the_most_visited_and_depths_that_are_there(
    row: ThinkingRow, rule: ThinkingRules, seed: int
) -> None:
    order, depths = draw_lines(row, rule, uniforms(key_of("f", "1"), pass_of("t", seed), 2 * len(row)))
    assert len(order) == min(len(row), rule.max_variations) == len(depths) == len(set(order))
    left_out = sorted(set(range(len(row))) - set(order))
    if order and left_out:
        assert row.visits[order].min() >= row.visits[left_out].max()
    for variation, depth in zip(order, depths, strict=True):
        nodes = row.node_offsets[variation + 1] - row.node_offsets[variation]
        assert (depth is None) == (nodes == 0)
        assert depth is None or 1 <= depth <= min(nodes, rule.max_depth)


def _row(**changes: Any) -> dict[str, Any]:
    node = {"fen": positions()[1], "move": None, "wdl": [0.5, 0.3, 0.2]}
    variations = [
        {"root_move": "e2e4", "visit_count": 60, "visit_fraction": 0.6, "nodes": [node]},
        {"root_move": "d2d4", "visit_count": 40, "visit_fraction": 0.4, "nodes": [node]},
    ]
    return {
        "fen": START,
        "variations": variations,
        "mcts_action": "e2e4",
        "win": 0.4,
        "draw": 0.3,
        "loss": 0.3,
    } | changes


def test_shares_of_the_visits_decide_how_often_a_variation_comes_first() -> None:
    """Two of them, tau 0.3 · (1 + 0.7 - 0.01): the chance is the logistic of the difference of shares over tau."""
    row = thinking_row(_row())
    first = [
        draw_lines(row, ThinkingRules(), uniforms(key_of("f", str(n)), pass_of("t"), 4))[0][0] for n in range(4000)
    ]
    expected = 1 / (1 + np.exp(-(0.6 - 0.4) / (0.3 * (1 + 0.7 - 0.1**2))))
    assert abs(first.count(0) / 4000 - expected) < 0.03  # 3.9 standard deviations


def test_all_depths_are_as_likely() -> None:
    nodes = [{"fen": fen, "move": "e2e4", "wdl": None} for fen in positions()[:9]]
    row = thinking_row(_row(variations=[{"root_move": "e2e4", "nodes": nodes}]))
    depths = [
        draw_lines(row, ThinkingRules(), uniforms(key_of("f", str(n)), pass_of("t"), 2))[1][0] for n in range(3000)
    ]
    assert abs(np.bincount(np.array(depths, int), minlength=6)[1:] - 600).max() < 110  # 5 standard deviations


def test_what_is_too_long_is_drawn_again_from_less() -> None:
    nodes = [{"fen": fen, "move": "e2e4", "wdl": [1, 0, 0]} for fen in positions()[:5]]
    row = thinking_row(_row(variations=[{"root_move": move, "nodes": nodes} for move in ("e2e4", "d2d4", "c2c4")]))
    shortest = 73 + 72
    for game in range(20):
        made = drawn_sample(row, ThinkingRules(), key_of("f", str(game)), pass_of("t"), shortest)
        assert not isinstance(made, str)
        assert made["input_ids"][-4] == TOKEN_IDS["end_think"], "one variation of one node, to the last token"
    assert drawn_sample(row, ThinkingRules(), key_of("f", "1"), pass_of("t"), shortest - 1) == TOO_LONG
    single = ThinkingRules(max_variations=1)
    assert not isinstance(drawn_sample(row, single, key_of("f", "1"), pass_of("t"), shortest), str)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"variations": []}, NO_VARIATIONS),
        ({"variations": None}, NO_VARIATIONS),
        ({"mcts_action": "zz99"}, NO_FINAL_MOVE),
        ({"variations": [{"root_move": "e2e4", "nodes": []}]}, NO_USABLE),
        ({"variations": [{"root_move": "zz99", "nodes": [{"fen": START, "move": None}]}]}, NO_USABLE),
        ({"win": 5.0, "loss": -3.0}, "win and loss give no temperature"),
        ({"win": 1e200, "loss": 0.0}, "win and loss give no temperature"),
    ],
)
def test_rows_without_a_sample(changes: dict[str, Any], reason: str) -> None:
    assert drawn_sample(thinking_row(_row(**changes)), ThinkingRules(), b"k", b"p", 1024) == reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mcts_action": None, "played_move": "d2d4"}, "d2d4"),
        ({"mcts_action": "zz99", "played_move": "unknown(3)", "best_move": "c2c4"}, "c2c4"),
        ({"mcts_action": "e2e4", "played_move": "d2d4"}, "e2e4"),
    ],
)
def test_the_final_move_falls_back(changes: dict[str, Any], expected: str) -> None:
    assert thinking_row(_row(**changes)).final == TOKEN_IDS[expected]


@pytest.mark.parametrize(
    ("variations", "wrong"),
    [
        ("no json", "no JSON"),
        ('{"a": 1}', "not a list"),
        ("[1]", "not an object"),
        ('[{"root_move": "e2e4", "nodes": 3}]', "not a list"),
        ('[{"root_move": "e2e4", "nodes": [3]}]', "not an object"),
        ('[{"root_move": "e2e4", "visit_count": "many"}]', "no number"),
        ([{"root_move": "e2e4", "nodes": [{"fen": START, "wdl": [0.5]}]}], "three numbers"),
        ([{"root_move": "e2e4", "nodes": [{"fen": "x"}]}], "side to move|ranks"),
        ([{"root_move": "e2e4", "nodes": [{"move": "e2e4"}]}], "empty"),
        (3, "not a list"),
        ("[" * 100_000 + "]" * 100_000, "no JSON"),
        ([{"root_move": "e2e4", "visit_count": 10**400}], "too large"),
    ],
)
def test_variations_that_are_none(variations: Any, wrong: str) -> None:
    with pytest.raises(ChessError, match=wrong):
        thinking_row(_row(variations=variations))


def test_text_and_lists_and_numbers_that_are_missing() -> None:
    as_list = _row()
    as_text = _row(variations=json.dumps(as_list["variations"]))
    nan = _row(variations=json.dumps(as_list["variations"]).replace("0.5", "NaN"))
    one, other, third = (thinking_row(row) for row in (as_list, as_text, nan))
    assert one.node_values.tolist() == other.node_values.tolist() == [[0.5, 0.3, 0.2]] * 2
    assert third.node_values.tolist() == [[0.0, 0.3, 0.2]] * 2


def test_first_is_not_best_is_of_the_first_variation_written() -> None:
    row = thinking_row(
        _row(
            variations=[
                {"root_move": "e2e4", "visit_count": 9, "nodes": []},
                {"root_move": "d2d4", "nodes": [{"fen": START, "move": None}]},
            ]
        )
    )
    made = thinking_sample(row, [0, 1], [None, 1], 200)
    assert made is not None
    assert made["first_is_not_best"].shape == ()
    assert bool(made["first_is_not_best"])
