"""What a value of a record is, against a table written by hand."""

from typing import Any

import numpy as np
import pytest

from spanloom.records.scalars import is_integer, is_number, truth

INTEGERS = [0, -3, 2**70, np.int64(7), np.uint8(7)]
FLOATS = [0.0, -1.5, float("nan"), float("inf"), np.float32(1.5)]
NEITHER = [True, False, np.True_, None, "1", b"1", [1], {"a": 1}, 1j]


@pytest.mark.parametrize("value", [*INTEGERS, *FLOATS, *NEITHER], ids=repr)
def test_true_and_false_are_no_numbers(value: Any) -> None:
    assert is_integer(value) is any(value is one for one in INTEGERS)
    assert is_number(value) is any(value is one for one in [*INTEGERS, *FLOATS])


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(True, True), (False, False), (" TRUE", True), ("false", False), ("", None), (1, None), (None, None)],
)
def test_a_boolean_may_be_the_text_of_a_csv_field(value: Any, wanted: bool | None) -> None:
    assert truth(value) is wanted
