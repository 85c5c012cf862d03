"""Laws of token-aligned supervision and of the one shift to labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.errors import ArtifactError
from spanloom.supervision import (
    TokenDocuments,
    shift_to_labels,
    shift_to_tokens,
    spans_from_messages,
    tokens_per_span,
)

START = 200006


def flags(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint8)


def lengths(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


documents = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=12)


def test_the_shift_moves_each_document_left_and_pads_it_with_zero() -> None:
    shifted = shift_to_labels(flags(0, 0, 2, 2, 0, 1, 2), lengths(4, 3))
    assert shifted.tolist() == [0, 2, 2, 0, 1, 2, 0]


def test_the_shift_of_one_token_documents_is_all_zero() -> None:
    assert shift_to_labels(flags(1, 2, 1), lengths(1, 1, 1)).tolist() == [0, 0, 0]


@given(documents)
def test_the_shift_is_exact_at_document_ends(spans: list[list[int]]) -> None:
    flat = flags(*(value for document in spans for value in document))
    expected = [value for document in spans for value in [*document[1:], 0]]
    before = flat.copy()
    assert shift_to_labels(flat, lengths(*map(len, spans))).tolist() == expected
    assert np.array_equal(flat, before), "the argument is not written to"


def test_the_way_back_moves_each_document_right_and_begins_it_with_zero() -> None:
    assert shift_to_tokens(flags(0, 2, 2, 0, 1, 2, 0), lengths(4, 3)).tolist() == [0, 0, 2, 2, 0, 1, 2]


@given(documents)
def test_the_way_back_gives_all_but_a_documents_first_value(spans: list[list[int]]) -> None:
    flat = flags(*(value for document in spans for value in document))
    sizes = lengths(*map(len, spans))
    expected = [value for document in spans for value in [0, *document[1:]]]
    assert shift_to_tokens(shift_to_labels(flat, sizes), sizes).tolist() == expected


@given(documents)
def test_spans_partition_the_tokens(spans: list[list[int]]) -> None:
    flat = flags(*(value for document in spans for value in document))
    counts = tokens_per_span(flat, lengths(*map(len, spans)), 3)
    assert counts.tolist() == [[document.count(span) for span in (0, 1, 2)] for document in spans]
    assert counts.sum() == flat.size


def test_tokens_belong_to_the_message_whose_start_precedes_them() -> None:
    tokens = np.array([START, 1, 2, START, 3, START], dtype=np.int32)
    assert spans_from_messages(tokens, flags(0, 1, 2), message_start=START).tolist() == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("tokens", "labels", "message"),
    [
        ([1, START], [2], "do not begin with a message"),
        ([START, 1, START], [2], "1 messages, but 2 message starts"),
        ([START], [1, 2], "2 messages, but 1 message starts"),
    ],
)
def test_starts_that_do_not_match_the_messages_are_refused(tokens: list[int], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spans_from_messages(np.array(tokens, dtype=np.int32), flags(*labels), message_start=START)


def test_documents_must_add_up() -> None:
    tokens = np.zeros(3, dtype=np.int32)
    with pytest.raises(ArtifactError, match="lengths add up to 4 but there are 3 tokens"):
        TokenDocuments(tokens=tokens, loss_mask=flags(0, 0, 0), span_id=flags(0, 0, 0), lengths=lengths(2, 2))
    with pytest.raises(ArtifactError, match="a document has no tokens"):
        TokenDocuments(tokens=tokens, loss_mask=flags(0, 0, 0), span_id=flags(0, 0, 0), lengths=lengths(3, 0))
    with pytest.raises(ArtifactError, match="tokens must be one-dimensional int32, got int64"):
        TokenDocuments(
            tokens=tokens.astype(np.int64),  # type: ignore[arg-type]
            loss_mask=flags(0, 0, 0),
            span_id=flags(0, 0, 0),
            lengths=lengths(3),
        )


def test_documents_between_two_numbers_are_cut_out_whole() -> None:
    whole = TokenDocuments(
        tokens=np.arange(6, dtype=np.int32),
        loss_mask=flags(0, 1, 0, 0, 1, 1),
        span_id=flags(0, 2, 0, 0, 1, 1),
        lengths=lengths(2, 1, 3),
    )
    cut = whole.between(1, 3)
    assert (cut.tokens.tolist(), cut.span_id.tolist(), cut.lengths.tolist()) == ([2, 3, 4, 5], [0, 0, 1, 1], [1, 3])
    assert len(whole.between(0, 0)) == 0
