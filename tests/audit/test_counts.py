"""Counts of flags before places are those of sums over all of them."""

import numpy as np
import pytest

from spanloom.law.documents import Counts


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_counts_are_sums(size: int) -> None:
    flags = np.random.default_rng(size).random(size) < 0.4
    sums = np.concatenate([[0], np.cumsum(flags)])
    places = np.arange(size + 1)
    assert Counts(flags)[places].tolist() == sums.tolist()
    assert Counts(np.ones(size, np.bool_))[places].tolist() == places.tolist()
