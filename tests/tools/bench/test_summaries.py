"""The benchmark's arithmetic on tiny numbers made by hand: medians, marginal rates, ratios, tables, the vocabulary."""

from math import isnan
from typing import Any

import numpy as np
import pytest

from tools.bench import alone, bars, chess_games, encoders, packing, page, start, tables
from tools.bench.pieces import derive_merges
from tools.bench.speed import PLAIN, Trial, marginal, summary


def trial(route: str, repeat: int, tokens: int, seconds: float, **stages: float) -> Trial:
    return Trial(
        route=route,
        repeat=repeat,
        rows=tokens // 10,
        tokens=tokens,
        seconds=seconds,
        stages=stages,
        parent_peak=repeat,
        worker_peak=2,
        validator_peak=3,
        torch_in_worker=None,
    )


def test_a_marginal_rate_leaves_start_up_out() -> None:
    assert marginal(100, 3.0, 400, 5.0) == 150
    assert isnan(marginal(100, 3.0, 400, 3.0)), "no time between the sizes is noise, not infinity"


def test_a_route_is_measured_by_its_median_run_of_each_size() -> None:
    trials = [
        *(trial(PLAIN, 0, 100, 11.0), trial(PLAIN, 0, 400, 14.0)),  # 100 a second after 10 s
        *(trial(PLAIN, 1, 100, 10.0), trial(PLAIN, 1, 400, 12.0)),
        *(trial(PLAIN, 2, 100, 19.0), trial(PLAIN, 2, 400, 99.0)),  # the machine was busy
    ]
    for repeat, seconds in ((0, 0.3), (1, 0.2), (2, 0.9)):  # ten times as fast in the middle
        for tokens in (100, 400):
            took = tokens / 300 * seconds
            trials.append(
                trial("build --workers 1", repeat, tokens, 2 + took, render=took / 2, split=0.0, write=took / 2)
            )
    plain, built = summary(trials)
    assert plain["whole"] == pytest.approx(100)
    assert plain["whole_ratio"] == 1
    assert plain["startup"] == pytest.approx(10)
    assert built["whole_ratio"] == pytest.approx(10)
    assert built["core_ratio"] == pytest.approx(10)
    assert built["startup"] == pytest.approx(2)
    assert built["render_seconds_per_million"] == pytest.approx(500)
    assert (built["rows"], built["runs"], built["parent_peak"], built["torch_in_worker"]) == ([10, 40], 3, 2, None)


def test_a_bar_goes_by_every_run_not_by_the_medians_alone() -> None:
    def run(repeat: int, route: str, small: float, big: float) -> list[Trial]:
        return [
            trial(route, repeat, tokens, took, render=took, split=0.0, write=0.0)
            for tokens, took in ((100, small), (400, big))
        ]

    two = "build --workers 2"
    trials = [
        *(*run(0, PLAIN, 60, 240), *run(0, "build --workers 1", 2, 6), *run(0, two, 3, 6)),  # 4 s against 3 s
        *(*run(1, PLAIN, 60, 240), *run(1, "build --workers 1", 2, 6), *run(1, two, 4, 5.5)),  # 4 s against 1.5 s
    ]
    found = {what: met for what, _, _, met in bars._speed(trials)}
    assert found["2 workers of 1, whole build"] == "open"
    assert found["whole build, 1 worker, of plain"] == "yes"
    found = {what: met for what, _, _, met in bars._speed([one for one in trials if one.repeat == 0])}
    assert found["2 workers of 1, whole build"] == "no"


def test_a_route_measured_apart_is_held_against_the_plain_one() -> None:
    trials = [trial(PLAIN, 0, 100, 1.0), trial(PLAIN, 0, 400, 4.0)]
    trials += [trial("elsewhere", 7, 100, 1.0), trial("elsewhere", 7, 400, 2.0)]
    assert summary(trials)[1]["whole_ratio"] == pytest.approx(3)


def test_encoders_are_held_against_tiktoken_and_their_ids_against_openai_harmony() -> None:
    def of(name: str, repeat: int, seconds: float, digest: str) -> dict[str, Any]:
        same = {"tokens": 100, "startup": 1.0, "version": "1"}
        return {"encoder": name, "repeat": repeat, "seconds": seconds, "digest": digest, **same}

    lines = encoders.summary(
        [
            *(of(encoders.RECORD, 0, 4.0, "a"), of(encoders.FLOOR, 0, 2.0, "a"), of("fast", 0, 0.5, "a")),
            *(of(encoders.RECORD, 1, 8.0, "a"), of(encoders.FLOOR, 1, 4.0, "a"), of("fast", 1, 1.0, "b")),
        ]
    )
    by_name = {line["encoder"]: line for line in lines}
    assert by_name["fast"]["ratio"] == 4
    assert by_name["fast"]["rate"] == 150
    assert by_name["fast"]["equal"] is False, "once is enough"
    assert by_name[encoders.FLOOR]["equal"] is True


def test_padded_rows_differ_where_tokens_or_lengths_do() -> None:
    rows = encoders.padded(np.array([5, 6, 7], dtype=np.int32), np.array([1, 0, 2]), width=3)
    assert rows.tolist() == [[5, -1, -1], [-1, -1, -1], [6, 7, -1]]
    with pytest.raises(ValueError, match="more than 1"):
        encoders.padded(np.array([6, 7], dtype=np.int32), np.array([2]), width=1)


def test_the_rate_of_writing_subtracts_hashing() -> None:
    def lines(small: float, big: float) -> list[dict[str, Any]]:
        step = {"stage": "step write-indexed"}
        return [
            {**step, "size": "small", "seconds": small, "hashing": 0.1, "raw": 0.1, "bytes": 100},
            {**step, "size": "big", "seconds": big, "hashing": 0.4, "raw": 0.4, "bytes": 400},
            {"stage": "writer alone, without hashing", "seconds": 2.0, "bytes": 1},
            {"stage": "raw tofile and fsync", "seconds": 1.5, "bytes": 1},
        ]

    found = alone._write_rates([lines(0.5, 1.4)])
    assert found["step_of_raw"] == pytest.approx(0.4 / 1.0)
    assert found["step_of_raw_marginal"] == pytest.approx(0.3 / 0.6)
    assert found["writer_of_raw"] == 0.75
    assert found["rate"] == pytest.approx(300 / 0.9)


def test_merges_are_the_two_pieces_that_lower_ranks_leave() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5}
    assert derive_merges(ranks) == [(b"b", b"c"), (b"a", b"b"), (b"a", b"bc")], "bc comes first, so abc is a + bc"


def test_a_page_is_filled_between_its_marks_alone() -> None:
    text = "before\n<!-- bench:one -->\nold\n<!-- /bench -->\nafter\n"
    filled = page.fill(text, {"one": "new"})
    assert filled == "before\n<!-- bench:one -->\nnew\n<!-- /bench -->\nafter\n"
    assert page.fill(filled, {"one": "new"}) == filled
    with pytest.raises(KeyError):
        page.fill(text, {})


def test_markdown_has_a_cell_for_each_column() -> None:
    sheet = tables.Sheet(key="k", title="T", columns=("a", "b"), rows=[("x", "1")], caption="C")
    assert tables.markdown(sheet) == "T:\n\n| a | b |\n|---|--:|\n| x | 1 |\n\nC"


def test_a_bar_is_met_at_its_value_and_missed_beyond_it() -> None:
    growth = [
        {"process": "worker", "stage": "write", "bytes_per_row": 50.0},
        {"process": "parent", "stage": "whole", "bytes_per_row": 50.1},
    ]
    points = {"stride": 1, "different": {encoders.OURS: 1}}
    found = {what: met for what, _, _, met in bars.bars({"memory": {"growth": growth}, "points": points})}
    assert found == {
        "a worker grows by, a sequence written": "yes",
        "the parent grows by, a row": "no",
        "code points (all) on which the encoder differs": "no",
    }


def test_a_bar_that_only_some_runs_reach_is_open() -> None:
    assert bars._at_least("b", [9.0, 11.0, 12.0], 10) == ("b", "≥ 10×", "11.00× (9.00–12.00)", "open")
    assert bars._at_least("b", [10.0, 11.0], 10)[-1] == "yes"
    assert bars._at_least("b", [1.0, 9.0], 10)[-1] == "no"


def test_packing_is_held_against_the_loop_and_the_copy_of_its_own_repeat() -> None:
    seconds = {
        packing.LOOP: (10.0, 20.0),
        packing.COPY: (0.25, 0.5),
        packing.PACK: (0.5, 1.0),
        packing.FEEDS: (1.0, 1.0),
        packing.JSON_BARE: (1.0, 1.0),
        packing.JSON_OWN: (1.0, 2.0),
        packing.O200K_BARE: (1.0, 1.0),
        packing.O200K_OWN: (1.0, 1.0),
    }
    trials = [
        packing.PackingTrial(route=route, repeat=repeat, tokens=1000, seconds=took)
        for route, both in seconds.items()
        for repeat, took in enumerate(both)
    ]
    found = packing.summary(trials)
    by_route = {line["route"]: line for line in found}
    assert by_route[packing.PACK]["rate"] == pytest.approx(1500)
    assert by_route[packing.PACK]["of"] == {packing.LOOP: [20, 20], packing.COPY: [0.5, 0.5]}
    assert by_route[packing.FEEDS]["of"] == {packing.LOOP: [10, 20], packing.COPY: [0.25, 0.5]}
    memory = [{"tokens": 10, "peak": 100}, {"tokens": 100, "peak": 103}]
    results = {"packing": {"summary": found, "memory": memory}}
    assert [(wanted, met) for _, wanted, _, met in bars.bars(results)] == [
        ("≥ 10×", "yes"),
        ("≥ 0.333×", "open"),
        ("≥ 0.9×", "open"),
        ("≥ 0.9×", "yes"),
        ("≤ 1.05×", "yes"),
    ]
    assert tables.packing(results["packing"]).rows[2][2] == "20.00× of token by token, 0.50× of copy of the tokens"


def test_the_plain_loop_and_the_packer_do_the_same_work() -> None:
    stream = packing.conversations(60_000)
    packing.check_equal(stream)
    assert stream.size >= 60_000


def test_chess_is_held_against_the_loop_of_its_own_round_by_both_clocks() -> None:
    took = {  # CPU and wall seconds of 100 samples, round by round
        chess_games.LOOP: ((1.0, 1.0), (2.0, 8.0)),
        chess_games.PREPARED: ((0.02, 0.025), (0.05, 0.1)),
    }
    trials = [
        chess_games.ChessTrial(route=route, repeat=repeat, samples=100, cpu=cpu, wall=wall)
        for route, rounds in took.items()
        for repeat, (cpu, wall) in enumerate(rounds)
    ]
    loop, prepared = chess_games.summary(trials)
    assert (loop["cpu_rate"], loop["cpu_ratios"], loop["wanted"]) == (75, [], None)
    assert prepared["cpu_ratios"] == pytest.approx([50, 40])
    assert prepared["wall_ratios"] == pytest.approx([40, 80])
    ((what, wanted, measured, met),) = bars.bars({"chess": {"summary": [loop, prepared]}})
    assert (what, wanted) == ("chess: prepared games, of its loop", "≥ 30×")
    assert (measured, met) == ("45.00× (40.00–50.00)", "yes"), "the clock that flatters less"


def test_a_start_is_held_against_the_baseline_of_the_same_repeat() -> None:
    def started(repeat: int, checkout: str, seconds: float, command: str = "build") -> dict[str, Any]:
        times = {"seconds": seconds, "cpu": 2 * seconds, "first_line": seconds / 10}
        return {"repeat": repeat, "command": command, "checkout": checkout, **times}

    trials = [
        *(started(0, start.BASELINE, 8.0), started(0, start.THIS, 4.0)),
        *(started(1, start.BASELINE, 40.0), started(1, start.THIS, 10.0)),  # the machine was busy
        *(started(2, start.BASELINE, 10.0), started(2, start.THIS, 6.0)),
        started(0, start.THIS, 0.25, "--help"),
    ]
    build, alone_ = start.summary(trials)
    assert build["seconds"] == [4.0, 10.0, 6.0]
    assert build["ratios"] == [0.5, 0.25, 0.6]
    assert (build["cpu"], build["cpu_ratio"], build["first_line"]) == (12.0, 0.5, 0.6)
    assert (alone_["seconds"], alone_["ratios"], alone_["cpu_ratio"]) == ([0.25], [], None)
    rows = tables.start({"trials": trials, "summary": [build, alone_]}).rows
    assert rows == [
        ("build", "6.00", "12.00", "0.60 s", "0.50×", "0.50×"),
        ("--help", "0.25", "0.50", "0.03 s", "–", "–"),
    ]
