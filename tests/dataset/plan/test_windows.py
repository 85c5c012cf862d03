"""Windows of long documents: exact on small ones, the laws and the slow loop of docs/format.md on any."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.dataset.plan.windows import cut_document, cut_off_labels
from support.nightly import drawn
from support.plan_reference import normal, windows_of


def mask(text: str) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """`..##` → 0 0 1 1"""
    return np.array([character == "#" for character in text], dtype=np.uint8)


def test_the_question_stands_before_each_part_of_the_answer() -> None:
    #                   s u q q S a b c d e f R .
    cut = cut_document(mask("...########.."), 8, pinned=4)
    assert cut.windows.tolist() == [[0, 0, 0, 0, 8], [4, 0, 0, 8, 11]]
    assert cut.shortened == 0


def test_a_long_question_keeps_its_beginning_and_its_end() -> None:
    cut = cut_document(mask("." * 9 + "#" * 6 + "."), 8, pinned=4)
    # The question is longer than a sample: the first window has no more of it than the others.
    assert cut.windows.tolist() == [[2, 7, 9, 9, 13], [2, 8, 10, 13, 15]]
    assert cut.shortened == 6


def test_a_later_answer_is_given_the_first_question_and_its_own() -> None:
    #        question answer question answer
    cut = cut_document(mask("..###..." + "#" * 9 + "."), 10, pinned=8)
    # Positions 2 and 8 are the last tokens of the questions: they learn the first tokens of the answers.
    assert cut.windows.tolist() == [[0, 0, 0, 0, 10], [3, 6, 9, 10, 14], [3, 6, 9, 14, 17]]
    assert cut.shortened == 0


def test_a_document_without_labels_is_there_once() -> None:
    assert cut_document(mask("." * 30), 8, pinned=4).windows.tolist() == [[0, 0, 0, 0, 8]]


documents = st.tuples(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 25)), min_size=1, max_size=6), st.integers(1, 6)
).map(lambda runs: "".join("." * blank + "#" * trained for blank, trained in runs[0]) + "." * runs[1])


@given(document=documents, length=st.integers(2, 24), share=st.floats(0, 1))
@settings(max_examples=drawn(600, 100))
def test_windows_are_those_of_the_slow_loop(document: str, length: int, share: float) -> None:
    lossmask = mask(document)
    pinned = 1 + int(share * (length - 2))
    if lossmask.size <= length:
        lossmask = np.concatenate([lossmask, np.zeros(length, dtype=np.uint8)])
    cut = cut_document(lossmask, length, pinned=pinned)
    wanted = windows_of(lossmask.tolist(), length, pinned)
    assert [normal(row) for row in cut.windows] == [normal(row) for row in wanted]
    times = np.zeros(lossmask.size, dtype=np.int64)
    for head, question_begin, question_end, begin, end in cut.windows.tolist():
        again = head + question_end - question_begin
        assert again <= pinned
        assert again + end - begin <= length
        times[begin:end] += 1
        if lossmask[begin]:
            before = np.flatnonzero(lossmask[:begin] == 0)
            asked = int(before[-1]) + 1 if before.size else 0
            assert asked == begin or asked < head or question_begin <= asked < question_end, (
                "an answer without a question"
            )
    assert (times[lossmask > 0] == 1).all()
    assert times.max() <= 1


@pytest.mark.parametrize(("document", "length", "labels", "without"), [
    ("..####..", 4, 4, 2),  # the second sequence begins in the middle of the answer
    ("..##..##", 4, 4, 0),  # it begins with a question
    ("..########", 5, 8, 5),  # all of the second is answer
    ("....####", 4, 4, 0),  # the last token of the question is there: a part of it
])  # fmt: skip
def test_what_slicing_does_to_questions(document: str, length: int, labels: int, without: int) -> None:
    assert cut_off_labels(np.concatenate([mask("."), mask(document)]), length) == (labels, without)


@given(document=documents, length=st.integers(2, 12))
@settings(max_examples=drawn(300, 50))
def test_slicing_is_counted_as_by_a_loop(document: str, length: int) -> None:
    stream = mask(document * 3)
    stream = stream[: stream.size // length * length]
    without = labels = 0
    for begin in range(0, stream.size, length):
        cut = begin > 0 and stream[begin - 1] > 0
        for position in range(begin, begin + length):
            cut = cut and stream[position] > 0
            labels += int(stream[position])
            without += cut
    assert cut_off_labels(np.concatenate([mask("."), stream]), length) == (labels, without)
