"""Laws of caps: what a capped run may read is divided over its shards before any of them is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.families.harmony.contract.caps import Caps, ShardCaps


def rows(caps: Caps, shards: int) -> list[int | None]:
    return [caps.share(shard, shards).rows for shard in range(shards)]


def tokens(caps: Caps, shards: int) -> list[int | None]:
    return [caps.share(shard, shards).tokens for shard in range(shards)]


@pytest.mark.parametrize(
    ("total", "shards", "expected"),
    [
        (10, 4, [3, 3, 2, 2]),
        (8, 4, [2, 2, 2, 2]),
        (11, 4, [3, 3, 3, 2]),
        (3, 4, [1, 1, 1, 0]),
        (0, 4, [0, 0, 0, 0]),
        (7, 1, [7]),
        (1, 3, [1, 0, 0]),
    ],
)
def test_a_total_is_divided_evenly_with_the_remainder_to_the_lower_shards(
    total: int, shards: int, expected: list[int]
) -> None:
    assert rows(Caps(max_rows=total), shards) == expected
    assert tokens(Caps(max_tokens=total), shards) == expected


@given(st.integers(0, 10**12), st.integers(1, 64))
def test_shares_add_up_to_the_total_and_differ_by_one_at_most(total: int, shards: int) -> None:
    shares = [share or 0 for share in rows(Caps(max_rows=total), shards)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)
    assert tokens(Caps(max_tokens=total), shards) == shares


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        (Caps(max_rows_per_shard=5), [5, 5, 5, 5]),
        (Caps(max_rows=10, max_rows_per_shard=5), [3, 3, 2, 2]),
        (Caps(max_rows=10, max_rows_per_shard=2), [2, 2, 2, 2]),
        (Caps(max_rows=22, max_rows_per_shard=5), [5, 5, 5, 5]),
        (Caps(max_rows=10, max_rows_per_shard=0), [0, 0, 0, 0]),
    ],
)
def test_the_smaller_of_two_row_caps_counts(caps: Caps, expected: list[int]) -> None:
    assert rows(caps, 4) == expected


def test_a_cap_that_is_not_set_does_not_cap() -> None:
    assert Caps().share(0, 4) == ShardCaps(rows=None, tokens=None)
    assert Caps(max_rows=4).share(0, 4) == ShardCaps(rows=1, tokens=None)
    assert Caps(max_tokens=4).share(0, 4) == ShardCaps(rows=None, tokens=1)


def test_a_run_is_capped_by_any_cap_and_by_a_cap_of_zero_too() -> None:
    assert not Caps().any
    assert Caps(max_rows=0).any
    assert Caps(max_rows_per_shard=0).any
    assert Caps(max_tokens=0).any


def test_caps_are_recorded_by_name() -> None:
    caps = Caps(max_rows=1, max_tokens=3)
    assert caps.as_dict() == {"max_rows": 1, "max_rows_per_shard": None, "max_tokens": 3}
    assert Caps(**caps.as_dict()) == caps
