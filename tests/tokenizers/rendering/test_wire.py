"""Requests and replies as bytes: what is written is read, and nothing else is taken for a reply."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.tokenizers.rendering import wire
from spanloom.tokenizers.rendering.wire import GoneError, Reply

MOST = 1 << 12
NUMBERS = st.integers(0, 2**31 - 1)
MARKS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans()), max_size=4).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=200)
REPLIES = st.builds(Reply, kind=st.sampled_from([wire.DONE, wire.FAILED]), text=TEXTS, line=NUMBERS, marks=MARKS)


@contextmanager
def holding(body: bytes) -> Iterator[int]:
    """A descriptor from which `body` is read, and then the end."""
    reader, writer = os.pipe()
    try:
        os.write(writer, body)
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


@given(st.lists(REPLIES, min_size=1, max_size=3))
def test_replies_are_read_as_they_were_written(replies: list[Reply]) -> None:
    """Halves of surrogate pairs too, which a template may write."""
    with holding(wire.replies_bytes(replies, MOST)) as reader:
        assert wire.read_replies(reader, len(replies), MOST) == replies


@given(st.lists(REPLIES, min_size=1, max_size=3), st.data())
def test_replies_that_are_cut_are_none(replies: list[Reply], data: st.DataObject) -> None:
    body = wire.replies_bytes(replies, MOST)
    with holding(body[: data.draw(st.integers(0, len(body) - 1))]) as reader, pytest.raises(GoneError):
        wire.read_replies(reader, len(replies), MOST)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_other_bytes_are_no_reply(body: bytes, length: int) -> None:
    """Alone, or behind a length that they do not have."""
    for held in (body, length.to_bytes(8, "little") + body):
        with holding(held) as reader:
            try:
                replies = wire.read_replies(reader, 1, MOST)
            except GoneError:
                continue
            assert len(replies) == 1


def test_a_reply_of_another_request_is_none() -> None:
    body = wire.replies_bytes([Reply(kind=wire.DONE, text="a")] * 2, MOST)
    for count in (1, 3):
        with holding(body) as reader, pytest.raises(GoneError):
            wire.read_replies(reader, count, MOST)


def test_a_length_beyond_the_limits_is_not_read() -> None:
    with holding((1 << 40).to_bytes(8, "little")) as reader, pytest.raises(GoneError):
        wire.read_replies(reader, 1, MOST)


@pytest.mark.parametrize(
    ("lines", "line", "wanted"),
    [("1=9&2=11&5=20", 8, 1), ("1=9&2=11&5=20", 11, 2), ("1=9&2=11&5=20", 19, 2), ("1=9&2=11&5=20", 99, 5), ("", 7, 1)],
)
def test_the_line_of_a_template_is_jinjas(lines: str, line: int, wanted: int) -> None:
    """Of `1=9`, line 9 of the compiled code and the next ones are line 1 of the template."""
    assert wire.template_line(lines, line) == wanted
