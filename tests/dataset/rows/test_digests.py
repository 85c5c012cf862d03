"""Digests that occur more than once are found, whatever the number that is held at once."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.dataset.rows import digests as module
from spanloom.dataset.rows.digests import DigestRuns, Digests
from support.nightly import drawn

NUMBERS = st.sampled_from([0, 1, 2, 3, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1])
BATCHES = st.lists(st.lists(NUMBERS | st.integers(0, (1 << 64) - 1), max_size=12), max_size=8)


def uint64(numbers: list[int]) -> Digests:
    return np.array(numbers, dtype=np.uint64)


@settings(max_examples=drawn(40, 12))
@given(batches=BATCHES, at_once=st.integers(1, 40), expected=st.integers(0, 100))
def test_what_occurs_more_than_once_does_not_depend_on_how_much_is_held(
    batches: list[list[int]], at_once: int, expected: int
) -> None:
    counted = Counter(number for batch in batches for number in batch)
    with tempfile.TemporaryDirectory() as name, DigestRuns(expected, Path(name), at_once) as runs:
        for batch in batches:
            runs.add(uint64(batch))
        found = [number for some in runs.repeated() for number in some.tolist()]
        assert found == sorted(number for number, times in counted.items() if times > 1)
        assert runs.surplus() == sum(counted.values()) - len(counted)
        assert runs._held.size <= at_once
    assert not Path(name).exists()


@settings(max_examples=drawn(40, 12))
@given(batches=BATCHES, at_once=st.integers(1, 40))
def test_files_of_digests_are_as_good_as_digests_that_are_added(batches: list[list[int]], at_once: int) -> None:
    """Each shard writes its own file; who joins them finds what is in several."""
    with tempfile.TemporaryDirectory() as name, DigestRuns(1, at_once=at_once) as joined:
        for number, batch in enumerate(batches):
            path = Path(name) / f"{number}.bin"
            with DigestRuns(len(batch), at_once=at_once) as runs, path.open("wb") as stream:
                np.array([0, 0, 7], "<u8").tofile(stream)  # digests of something else, before and behind
                runs.add(uint64(batch))
                assert runs.write(stream) == len(batch)
                np.array([1, 7], "<u8").tofile(stream)
            assert np.fromfile(path, "<u8").tolist() == [0, 0, 7, *sorted(batch), 1, 7]
            joined.add_file(path, 3, 3 + len(batch))
        counted = Counter(number for batch in batches for number in batch)
        found = [number for some in joined.repeated() for number in some.tolist()]
        assert found == sorted(number for number, times in counted.items() if times > 1)


def test_a_source_full_of_copies_is_yielded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANDIDATES", 3)
    for at_once in (2, 5, 100):
        with DigestRuns(0, at_once=at_once) as runs:
            runs.add(uint64([*range(8), *range(8), 7, 7, 7]))
            assert [some.tolist() for some in runs.repeated()] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_digests_beyond_what_is_held_lie_in_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    with DigestRuns(4, tmp_path, at_once=4) as runs:
        runs.add(uint64([3, 1, 2, 0]))
        assert list(tmp_path.iterdir()) == [], "four are held"
        runs.add(uint64([9]))
        (folder,) = tmp_path.iterdir()
        assert [file.stat().st_size for file in folder.iterdir()] == [32]
    assert list(tmp_path.iterdir()) == []
