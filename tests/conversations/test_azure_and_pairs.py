"""Runs as Azure AI's evaluation writes them; pairs of answers that rename the chosen one, or the question."""

from typing import Any

import pytest

from spanloom.conversations.turns import RecordRefusedError, Refusal
from support.read_chats import read, texts

WEATHER = {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}}
TIMES = {"createdAt": "2025-01-01T00:00:00Z", "run_id": "run_1"}


def call(number: int, **other: Any) -> dict[str, Any]:
    return {"type": "tool_call", "tool_call_id": f"c{number}", "name": "weather", "arguments": {"day": number}, **other}


def result(number: int) -> dict[str, Any]:
    answered = [{"type": "tool_result", "tool_result": {"sun": number}}]
    return {**TIMES, "role": "tool", "tool_call_id": f"c{number}", "content": answered}


def azure(*parts: dict[str, Any]) -> dict[str, Any]:
    query = [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Q"}]}]
    said = {**TIMES, "role": "assistant", "content": [{"type": "text", "text": "A"}]}
    calls = {**TIMES, "role": "assistant", "content": list(parts)}
    response = [calls, *(result(number) for number in (1, 2)), said]
    return {"query": query, "response": response, "tool_definitions": [WEATHER]}


def test_calls_results_and_definitions_of_azure() -> None:
    done = read(azure(call(1), call(2)))
    assert texts(done) == [
        ("system", "S"), ("user", "Q"), ("assistant", ""), ("tool", '{"sun": 1}'), ("tool", '{"sun": 2}'),
        ("assistant", "A"),
    ]  # fmt: skip
    assert [(made.id, made.name, made.arguments) for made in done.turns[2].calls] == [
        ("c1", "weather", '{"day": 1}'),
        ("c2", "weather", '{"day": 2}'),
    ]
    assert [turn.call_id for turn in done.turns[3:5]] == ["c1", "c2"]
    assert [tool["name"] for tool in done.tools] == ["weather"]
    assert done.message_metadata[0]["run_id"] == "run_1"


def test_a_call_with_two_arguments_is_refused() -> None:
    with pytest.raises(RecordRefusedError) as caught:
        read(azure(call(1, input={"day": 2}), call(2)))
    assert caught.value.reason is Refusal.TOOL_CALL_INVALID


def test_of_a_pair_of_stack_exchange_the_better_answer_is_trained() -> None:
    record = {"qid": 1, "question": "Q", "response_j": "good", "response_k": "bad"}
    assert texts(read(record)) == [("user", "Q"), ("assistant", "good")]


def test_the_question_of_a_preference_under_another_name_is_mapped() -> None:
    record = {"context": "Q", "chosen": "good", "rejected": "bad"}
    with pytest.raises(RecordRefusedError) as caught:
        read(record)
    assert caught.value.remedy == "--map query=context"
    assert texts(read(record, maps=("query=context",))) == [("user", "Q"), ("assistant", "good")]


def test_an_answer_may_be_one_turn_of_sharegpt() -> None:
    record = {"prompt": "Q", "response": {"from": "gpt", "value": "A"}}
    assert texts(read(record)) == [("user", "Q"), ("assistant", "A")]
