"""Texts of published data that hold more than text: names of files, tokens of a template."""

from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import ChatRecord, Dropping, Reading, RecordRefusedError, Refusal

USER = {"role": "user", "content": "Q"}
ANSWER = {"role": "assistant", "content": "A"}


def read(record: Any, maps: tuple[str, ...] = (), drop: tuple[str, ...] = (), **options: Any) -> ChatRecord:
    form = recognise(record, key_map(maps), "here")
    return read_record(record, form, Reading(**options), Dropping(names=frozenset(drop)))


def texts(record: ChatRecord) -> list[tuple[str, str]]:
    return [(turn.role, "".join(turn.texts)) for turn in record.turns]


def refused(record: Any, **options: Any) -> tuple[Refusal, str]:
    with pytest.raises(RecordRefusedError) as caught:
        read(record, **options)
    return caught.value.reason, caught.value.remedy or ""


@pytest.mark.parametrize("shown", ["<img>pets/cat.png</img>", "<audio>a.wav</audio>", "<video>https://x.y/v</video>"])
def test_a_file_that_a_question_shows_is_no_text(shown: str) -> None:
    asked = f"Picture 1: {shown}\nWhat is it?"
    turns = [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Hi"}, {"from": "user", "value": asked}]
    for record in ({"query": asked, "response": "A"}, {"conversations": [*turns, {"from": "assistant", "value": "A"}]}):
        assert refused(record) == (Refusal.MEDIA, "--text-as-is keeps it as text")
        assert texts(read(record, text_as_is=True))[-2:] == [("user", asked), ("assistant", "A")]


@pytest.mark.parametrize(
    "asked", ['Why does <img src="a.png"> not load?', "<audio controls>or not</audio>", "a </img> b", "<img></img>"]
)
def test_html_in_a_question_is_text(asked: str) -> None:
    assert texts(read({"query": asked, "response": "A"})) == [("user", asked), ("assistant", "A")]


def test_the_turn_token_behind_an_answer_of_nemo_is_not_trained() -> None:
    record = {
        "prompt": "<extra_id_0>System\n\n<extra_id_1>User\nQ\n<extra_id_1>Assistant\n",
        "chosen_response": "A\n<extra_id_1>",
        "rejected_response": "B\n<extra_id_1>",
    }
    assert refused(record) == (Refusal.MARKUP, "--text-as-is keeps it as text")
    assert texts(read({**record, "chosen_response": "A"}))[-1] == ("assistant", "A")
