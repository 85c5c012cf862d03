"""Draws: even, of their key alone, and touching nothing else."""

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanloom.families.chess.encoding.draws import key_of, keys_of, pass_of, shuffled, uniforms


def test_uniform_numbers_are_spread_evenly_and_below_one() -> None:
    numbers = np.concatenate([uniforms(key_of("f", str(game)), pass_of("x", 0, 0), 50) for game in range(400)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, 10, (0, 1))
    assert abs(counts - 2000).max() < 200  # 4.7 standard deviations


def test_another_seed_epoch_file_or_game_draws_otherwise() -> None:
    drawn = {
        uniforms(key_of(file, game), pass_of("game", seed, epoch), 2).tobytes()
        for file in ("a", "b")
        for game in ("1", "2")
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(drawn) == 16
    assert key_of("ab", "c") != key_of("a", "bc")


@given(st.sets(st.text(max_size=5), min_size=2, max_size=30), st.integers(), st.data())
def test_the_order_of_two_does_not_hang_on_the_others(names: set[str], seed: int, data: st.DataObject) -> None:
    everyone = sorted(names)
    some = data.draw(st.lists(st.sampled_from(everyone), unique=True, min_size=1))
    whole = [everyone[at] for at in shuffled(keys_of("f", everyone), pass_of("order", seed))]
    assert [some[at] for at in shuffled(keys_of("f", some), pass_of("order", seed))] == [
        name for name in whole if name in some
    ]


def test_every_order_is_as_likely() -> None:
    orders = [tuple(shuffled(keys_of("f", "abc"), pass_of("order", seed)).tolist()) for seed in range(3000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert abs(np.array(counts) - 500).max() < 100  # 4.9 standard deviations


def test_no_generator_is_touched() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # type: ignore[union-attr]
    uniforms(b"key", b"pass", 10)
    shuffled(keys_of("f", "abc"), b"pass")
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # type: ignore[union-attr]
    assert before == after
