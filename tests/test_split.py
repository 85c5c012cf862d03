"""Laws of the split rule. Expected digests were worked out with coreutils' b2sum, not with this code."""

import decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.split import empty_valid, id_digests, is_valid, valid_threshold

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
fractions = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)


def test_the_threshold_is_decimal_not_binary() -> None:
    assert valid_threshold(0.1) == 1844674407370955161  # int(0.1 * 2**64) would be …5264
    assert valid_threshold(0.001) == 18446744073709551
    assert valid_threshold(0.0) == 0
    assert valid_threshold(1.0) == 2**64


def test_the_threshold_does_not_depend_on_the_callers_decimal_context() -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        assert valid_threshold(0.1) == 1844674407370955161


@pytest.mark.parametrize("fraction", [-0.001, 1.001, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="valid_fraction must be in"):
        valid_threshold(fraction)


def test_the_digest_is_blake2b_of_64_bits_big_endian() -> None:
    # printf 'a' | b2sum -l 64; printf 'größe' | b2sum -l 64
    assert id_digests(["a", "größe"]).tolist() == [0x40F89E395B66422F, 0xF4F8E155C9329AE9]


@given(st.lists(ids, max_size=8))
def test_digests_do_not_depend_on_each_other(synth_ids: list[str]) -> None:
    assert id_digests(synth_ids).tolist() == [id_digests([synth_id])[0] for synth_id in synth_ids]


@given(ids, fractions, fractions)
def test_a_larger_fraction_never_moves_an_id_out_of_valid(synth_id: str, one: float, other: float) -> None:
    digest = id_digests([synth_id])
    low, high = sorted((one, other))
    assert not is_valid(digest, low)[0] or is_valid(digest, high)[0]


def test_all_is_valid_at_1_and_nothing_at_0() -> None:
    digests = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    assert is_valid(digests, 1.0).tolist() == [True, True, True]
    assert is_valid(digests, 0.0).tolist() == [False, False, False]


def test_the_threshold_itself_is_train() -> None:
    edge = valid_threshold(0.1)
    assert is_valid(np.array([edge - 1, edge], dtype=np.uint64), 0.1).tolist() == [True, False]


def test_about_the_asked_share_falls_into_valid() -> None:
    digests = id_digests(f"id-{index}" for index in range(20_000))
    assert 0.09 < is_valid(digests, 0.1).mean() < 0.11  # ±4.7 standard deviations


@pytest.mark.parametrize(
    ("documents", "fraction", "larger", "held_out"), [(60, 0.001, "0.1", 6), (60, 0.1, "0.2", 12), (3, 0.7, "1", 3)]
)
def test_the_warning_of_an_empty_split_names_a_larger_fraction(
    documents: int, fraction: float, larger: str, held_out: int
) -> None:
    """The same fraction would leave the split empty again."""
    warning = empty_valid(documents, fraction)
    assert f"hold out about {held_out}, build again with --valid-fraction {larger} --overwrite" in warning
