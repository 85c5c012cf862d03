"""Draws by weight and by source."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from families.toolcalls.conftest import Run
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.samples.sampling import WeightedSampler, drawn_by_weight, of_each_source, shard
from support.toolcall_samples import harmful, retain, write_samples

WEIGHTS = st.lists(st.floats(0, 100).map(lambda value: round(value, 2)), min_size=1, max_size=20).filter(
    lambda weights: sum(weights) > 0
)


@given(WEIGHTS, st.integers(0, 200), st.integers(0, 9), st.integers(0, 9))
def test_each_sample_comes_as_often_as_its_share_says(weights: list[float], draws: int, seed: int, epoch: int) -> None:
    drawn = drawn_by_weight(weights, draws, seed=seed, epoch=epoch)
    assert len(drawn) == draws
    counts = np.bincount(drawn, minlength=len(weights))
    expected = np.array(weights) * draws / sum(weights)
    assert (np.abs(counts - expected) < 1 + 1e-6).all()
    assert not counts[np.array(weights) == 0].any()
    assert (drawn == drawn_by_weight(weights, draws, seed=seed, epoch=epoch)).all()


def test_over_many_epochs_the_mean_is_the_share() -> None:
    weights = [2.0, 1.5, 0.8, 0.8]
    counts = sum(np.bincount(drawn_by_weight(weights, 3, seed=1, epoch=n), minlength=4) for n in range(2000))
    assert np.allclose(counts / 2000, np.array(weights) * 3 / sum(weights), atol=0.05)


def test_another_epoch_draws_in_another_order() -> None:
    first, second = (drawn_by_weight([1.0] * 50, 50, seed=3, epoch=epoch) for epoch in (0, 1))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert (first != second).any()


@given(st.integers(0, 100), st.integers(1, 5), st.integers(1, 4))
def test_the_shards_are_a_partition(count: int, ranks: int, workers: int) -> None:
    parts = [
        shard(np.arange(count), rank=rank, ranks=ranks, worker=worker, workers=workers).tolist()
        for rank in range(ranks)
        for worker in range(workers)
    ]
    assert sorted(position for part in parts for position in part) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_sampler_of_each_rank_is_its_part_of_one_draw() -> None:
    samplers = [WeightedSampler([1, 2, 3], draws=7, seed=5, rank=rank, ranks=2) for rank in range(2)]
    for sampler in samplers:
        sampler.set_epoch(4)
    drawn = drawn_by_weight([1, 2, 3], 7, seed=5, epoch=4).tolist()
    assert [list(sampler) for sampler in samplers] == [drawn[::2], drawn[1::2]]
    assert [len(sampler) for sampler in samplers] == [4, 3]


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0], [float("nan")], [float("inf")]])
def test_weights_that_are_none(weights: list[float]) -> None:
    with pytest.raises(ToolCallError, match="weights must be"):
        WeightedSampler(weights)


@pytest.mark.parametrize("options", [{"rank": 2, "ranks": 2}, {"worker": -1}])
def test_ranks_and_workers_count_from_0(options: dict[str, int]) -> None:
    with pytest.raises(ToolCallError, match="is invalid"):
        shard(np.arange(3), **options)


def test_a_few_of_each_source() -> None:
    sources = ["a"] * 50 + ["b"] * 3 + [""]
    drawn = of_each_source(sources, 10, seed=1)
    assert [(name, len(positions)) for name, positions in drawn.items()] == [("", 1), ("a", 10), ("b", 3)]
    assert all(sources[position] == name for name, positions in drawn.items() for position in positions)
    assert drawn["a"] == of_each_source(sources[:50], 10, seed=1)["a"], "another source changes nothing"
    assert drawn["a"] != of_each_source(sources, 10, seed=2)["a"]


def test_samples_to_look_at(tmp_path: Path, run: Run) -> None:
    rows = [harmful(n, assistant_raw="\x1b[31m<i>" + str(n)) for n in range(20)] + [retain(1)]
    file = write_samples(tmp_path / "x.jsonl", rows)
    ended = run("sample", "--data", file, "--per-source", 2, "--seed", 3)
    assert ended.out.count("-- b4_harmful_") == 2
    assert ended.out.count("-- ultrachat_retain_") == 1
    assert "\x1b" not in ended.out
    assert "harmful_flip · weight 1" in ended.out
    page = tmp_path / "x.html"
    assert run("sample", "--data", file, "--per-source", 2, "--seed", 3, "--html", page).code == 0
    assert "&lt;i&gt;" in page.read_text()
