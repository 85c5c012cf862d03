"""Which units go together: held against packing them one by one, and exact on small arrays."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.dataset.plan import bin_packing
from spanloom.dataset.plan.bin_packing import Groups, best_fit, kinds_of_sequences, sequential, size_dtype
from support import plan_reference
from support.nightly import drawn


def groups_of(groups: list[Groups]) -> list[list[int]]:
    return [part.tolist() for units, counts in groups for part in np.split(units, np.cumsum(counts)[:-1])]


def sizes_of(values: list[int], length: int) -> npt.NDArray[np.uint16] | npt.NDArray[np.uint32]:
    return np.array(values, dtype=size_dtype(length))


def test_on_a_small_array() -> None:
    sizes = sizes_of([5, 3, 2, 5, 1], 7)
    assert groups_of(list(sequential(sizes, 7))) == [[0], [1, 2], [3, 4]]
    packed = groups_of(list(best_fit(sizes, 7, seed=0)))
    assert sorted(sorted(sizes[group].tolist()) for group in packed) == [[1, 5], [2, 5], [3]]


def test_a_unit_of_no_size_stands_nowhere() -> None:
    sizes = sizes_of([0, 4, 0], 4)
    assert groups_of(list(sequential(sizes, 4))) == groups_of(list(best_fit(sizes, 4, seed=3))) == [[1]]
    for none in (sizes_of([], 4), sizes_of([0, 0], 4)):
        assert list(sequential(none, 4)) == list(best_fit(none, 4, seed=3)) == []


packings = st.integers(1, 40).flatmap(
    lambda length: st.tuples(
        st.just(length), st.lists(st.integers(0, length), max_size=60), st.integers(1, 70), st.integers(0, 9)
    )
)


@given(case=packings)
@settings(max_examples=drawn(400, 65))
def test_it_is_packing_one_by_one(case: tuple[int, list[int], int, int]) -> None:
    """Whatever the chunks that units are looked at in."""
    length, values, chunk, seed = case
    sizes = sizes_of(values, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bin_packing, "_CHUNK", chunk)
        in_order = groups_of(list(sequential(sizes, length)))
        packed = groups_of(list(best_fit(sizes, length, seed=seed)))
    assert in_order == plan_reference.sequential(values, length)
    assert sorted(sum(values[unit] for unit in group) for group in packed) == plan_reference.best_fit(values, length)
    units = sorted(unit for group in packed for unit in group)
    assert units == [unit for unit, size in enumerate(values) if size]


def test_chunks_do_not_matter_to_which_units_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.random.default_rng(0).integers(1, 65, 5000).astype(np.uint16)
    whole = sorted(map(tuple, groups_of(list(best_fit(sizes, 64, seed=5)))))
    monkeypatch.setattr(bin_packing, "_CHUNK", 300)
    assert sorted(map(tuple, groups_of(list(best_fit(sizes, 64, seed=5))))) == whole


def test_a_seed_moves_units_of_equal_size_alone() -> None:
    sizes = np.random.default_rng(0).integers(1, 20, 400).astype(np.uint16)
    one, other = (groups_of(list(best_fit(sizes, 64, seed=seed))) for seed in (1, 2))
    assert one != other
    assert [sizes[group].tolist() for group in one] == [sizes[group].tolist() for group in other]


def test_sizes_beyond_16_bits() -> None:
    values = [100_000, 40_000, 70_000, 60_000, 31_072, 131_072]
    sizes = sizes_of(values, 131_072)
    assert sizes.dtype == np.uint32
    packed = groups_of(list(best_fit(sizes, 131_072, seed=0)))
    assert sorted(sorted(group) for group in packed) == [[0, 4], [1], [2, 3], [5]]


def test_kinds_count_alike_sequences_once() -> None:
    counts = np.zeros(11, dtype=np.int64)
    counts[4], counts[3] = 1_000_001, 500_000
    # Two of size 4 leave 2 free, in which no 3 fits. The last 4 is alone, so it takes two of size 3.
    kinds = kinds_of_sequences(counts, 10)
    assert (500_000, [(4, 2)]) in kinds
    assert (1, [(4, 1), (3, 2)]) in kinds
    assert (166_666, [(3, 3)]) in kinds  # 499,998 of size 3 are left
    assert len(kinds) == 3
