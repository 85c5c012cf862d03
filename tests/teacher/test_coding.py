"""Codes are as fine as the format says; answers that cannot be a teacher's are refused, each for its reason."""

import numpy as np
import pytest

from spanloom.teacher.coding import decode_ids, decode_logprobs, encode_ids, encode_logprobs
from spanloom.teacher.signals import Signals, rest_of, what_is_wrong


def test_log_probabilities_are_off_by_half_a_step_at_most() -> None:
    values = np.concatenate([-np.logspace(-12, np.log10(32), 20_000), [0.0, -32.0, -80.0]])
    # Half a step of c is 0.5 / 65535; the slope of 32 · c² there is 64 · c. Where c is 0, it is the square alone.
    roots = np.sqrt(-values.clip(-32) / 32)
    half = 0.5 / 65535
    bound = 32 * ((roots + half) ** 2 - roots**2)
    off = np.abs(decode_logprobs(encode_logprobs(values.astype(np.float32))).astype(np.float64) - values.clip(-32))
    assert (off <= bound * 1.02 + 2e-6).all()
    assert off.max() < 5e-4
    assert decode_logprobs(encode_logprobs(np.float32([0, -32, -80]))).tolist() == [0, -32, -32]


def test_all_codes_come_back() -> None:
    codes = np.arange(65_536, dtype=np.uint16)
    assert np.array_equal(encode_logprobs(decode_logprobs(codes)), codes)


def test_ids_come_back() -> None:
    ids = np.array([0, 1, 65_535, 65_536, 201_087, (1 << 24) - 1], np.int32)
    low, high = encode_ids(ids)
    assert decode_ids(low, high).tolist() == ids.tolist()
    assert decode_ids(low[:3], None).tolist() == [0, 1, 65_535]


def answer(**other: object) -> Signals:
    """Two positions of the distribution 0.5, 0.25, 0.125, 0.125; the labels are 7 and 2."""
    logs = np.log(np.array([[0.5, 0.25, 0.125]] * 2, np.float32))
    given = {
        "ids": np.array([[7, 3, 5], [3, 5, 9]], np.int32),
        "logprobs": logs,
        "own": np.log(np.array([0.5, 0.01], np.float32)),
        "rest": np.log(np.array([0.125, 0.125], np.float32)),
    }
    return Signals(**{**given, **other})  # type: ignore[arg-type]


LABELS = np.array([7, 2], np.int32)


def test_an_honest_answer_has_nothing_wrong() -> None:
    assert what_is_wrong(answer(), LABELS, 3, 10) is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"own": np.float32([-0.7])}, "positions of 3 tokens are wanted"),
        ({"ids": np.array([[7, 3], [3, 5]], np.int32)}, "positions of 3 tokens are wanted"),
        ({"own": np.float32([np.nan, -4])}, "not a number"),
        ({"own": np.float32([-np.inf, -4])}, "not a number"),
        ({"rest": np.float32([np.nan, -4])}, "not a number"),
        ({"logprobs": np.float32([[-0.1, -9999, -np.inf]] * 2)}, "not a number"),
        ({"logprobs": np.float32([[12.0, 9.0, 3.0]] * 2)}, "above 0"),
        ({"logprobs": np.float32([[-0.1, -0.2, -0.3]] * 2)}, "exceed 1: these are no log-prob"),
        ({"rest": np.float32([-0.1, -0.1])}, "and the rest exceed 1"),
        ({"logprobs": np.log(np.float32([[0.125, 0.25, 0.5]] * 2))}, "not in the order"),
        ({"ids": np.array([[7, 3, 3], [3, 5, 9]], np.int32)}, "there twice"),
        ({"ids": np.array([[7, 3, 10], [3, 5, 9]], np.int32)}, "not below 10"),
        ({"ids": np.array([[7, 3, -1], [3, 5, 9]], np.int32)}, "not below 10"),
        ({"own": np.log(np.float32([0.4, 0.01]))}, "two log-probabilities"),
        ({"own": np.log(np.float32([0.5, 0.2]))}, "more probable than a token that is ranked"),
    ],
)
def test_answers_that_are_none_are_refused(other: dict[str, np.ndarray], why: str) -> None:
    wrong = what_is_wrong(answer(**other), LABELS, 3, 10)
    assert wrong is not None
    assert why in wrong[1]


def test_the_rest_of_the_top_k() -> None:
    logs = np.log(np.array([[0.5, 0.25], [1 - 1e-9, 1e-9]], np.float64))
    found = rest_of(logs.astype(np.float32))
    assert found[0] == pytest.approx(np.log(0.25), abs=1e-6)
    assert found[1] <= np.log(1e-6)
