"""vLLM's flat form, whose positions begin with the token itself, gives the same signals as the form of its server."""

from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest

from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.signals import TeacherError
from spanloom.teacher.sources.answers import signals_of
from spanloom.teacher.sources.vllm import _answer

DOCUMENT = ScoredDocument(
    sequence=0,
    tokens=np.array([4, 7, 2], np.int32),
    positions=np.array([0, 2], np.int64),
    labels=np.array([7, 9], np.int32),
)
"""Labels 7 at token 1 and 9 at token 3."""

POSITIONS = [
    [],
    [(7, -0.5), (7, -0.5), (3, -1.5)],  # the token itself is the most probable one
    [(2, -4.0), (1, -0.1), (5, -3.0)],
    [(9, -3.0), (8, -0.2), (6, -2.5)],  # it is none of the two
]


def output(positions: list[list[tuple[int, float]]]) -> SimpleNamespace:
    counts = [len(each) for each in positions]
    flat = SimpleNamespace(
        start_indices=[0, *accumulate(counts[:-1])],
        end_indices=[*accumulate(counts)],
        token_ids=[token for each in positions for token, _ in each],
        logprobs=[value for each in positions for _, value in each],
    )
    return SimpleNamespace(prompt_token_ids=[4, 7, 2, 9], prompt_logprobs=flat)


def test_the_flat_form() -> None:
    answer = _answer(output(POSITIONS))
    assert list(answer.counts) == [0, 2, 3, 3]  # type: ignore[arg-type]
    found = signals_of(DOCUMENT, answer, 2)
    assert found.ids.tolist() == [[7, 3], [8, 6]]
    assert found.logprobs.tolist() == np.float32([[-0.5, -1.5], [-0.2, -2.5]]).tolist()
    assert found.own.tolist() == [-0.5, -3.0]
    left = 1 - np.exp([[-0.5, -1.5], [-0.2, -2.5]]).sum(1)
    assert found.rest == pytest.approx(np.log(left), abs=1e-5)


def test_a_token_with_two_values_is_refused() -> None:
    twice = [*POSITIONS[:1], [(7, -0.5), (7, -0.6), (3, -1.5)], *POSITIONS[2:]]
    with pytest.raises(TeacherError, match="or twice"):
        signals_of(DOCUMENT, _answer(output(twice)), 2)
