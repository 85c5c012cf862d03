"""What programs log of a model: messages as JSON text in columns, and parts of OpenTelemetry and of Vercel's AI SDK."""

import json
from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal, Turn
from support.read_chats import ANSWER, USER

TALK = [("user", "Q", []), ("assistant", "A", [])]
CALL = ("f", '{"a": 1}', "1")


def turns(record: Any, reading: Reading | None = None) -> tuple[Turn, ...]:
    form = recognise(record, key_map(()), "here")
    return read_record(record, form, reading or Reading(), Dropping(names=frozenset())).turns


def said(record: Any, reading: Reading | None = None) -> list[tuple[str, str, list[Any]]]:
    """Role, text and calls of each turn; of a tool the id of the call that it answers."""
    return [
        (turn.role, "".join(turn.texts), [turn.call_id] if turn.role == "tool" else [*map(called, turn.calls)])
        for turn in turns(record, reading)
    ]


def called(call: Any) -> tuple[str, str, str | None]:
    return call.name, call.arguments, call.id


def answered(*parts: Any, **keys: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "parts": list(parts), **keys}]}


@pytest.mark.parametrize(
    "record",
    [
        {"input": json.dumps([USER]), "output": json.dumps(ANSWER)},
        {"input": json.dumps(USER), "output": json.dumps([ANSWER])},
        {"prompt": json.dumps({"model": "m", "messages": [USER]}), "response": "A"},
        {"prompt": json.dumps({"messages": [USER]}), "response": json.dumps(ANSWER)},
        {
            "input": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Q"}]}]),
            "output": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "A"}]}]),
        },
    ],
)
def test_messages_as_json_text_are_messages(record: Any) -> None:
    assert said(record) == TALK


def test_tools_of_a_request_as_json_text_are_read() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    record = {"input": json.dumps({"messages": [USER], "tools": [tool]}), "output": "A"}
    done = read_record(record, recognise(record, key_map(()), "here"), Reading(), Dropping(names=frozenset()))
    assert [tool["name"] for tool in done.tools] == ["f"]


@pytest.mark.parametrize(
    "text",
    [
        '{"role": "Engineer", "content": "Builds."}',
        '{"name": "Ada", "messages": 3}',
        "{not JSON}",
        "[1, 2]",
        "{}",
        "[]",
    ],
)
def test_an_answer_that_is_other_json_is_text(text: str) -> None:
    assert said({"prompt": "Q", "response": text}) == [("user", "Q", []), ("assistant", text, [])]


LOGGED = [
    ({"contents": [{"role": "user", "parts": [{"text": "Q"}]}]}, "an object with messages"),
    ({"messages": [{"lc": 1, "type": "constructor", "kwargs": {"content": "A"}}]}, "an object with messages"),
    ([[{"lc": 1, "type": "constructor", "kwargs": {"content": "A"}}]], "LangChain's objects"),
    ([{"toolCallId": "1", "toolName": "f", "input": {}}], "calls"),
    ({"content": {"role": "model", "parts": [{"text": "A"}]}}, "a reply"),
]


@pytest.mark.parametrize(("value", "what"), LOGGED)
def test_other_logs_of_a_model_are_not_trained_as_text(value: Any, what: str) -> None:
    record = {"input": "Q", "output": json.dumps(value)}
    with pytest.raises(RecordRefusedError) as refused:
        turns(record)
    assert refused.value.reason == Refusal.CONTENT_NOT_TEXT
    assert f"'output' is the JSON of {what}" in refused.value.detail
    assert said(record, Reading(text_as_is=True))[1][1] == json.dumps(value)


RESULT = {"toolCallId": "1", "state": "output-available", "input": {"a": 1}}
OUTCOMES = [
    ({"type": "tool-f", **RESULT, "output": 4}, "4"),
    ({"type": "tool-f", **RESULT, "output": {"t": 4}}, '{"t": 4}'),
    ({"type": "tool-f", **RESULT, "output": None}, "null"),
    ({"type": "dynamic-tool", "toolName": "f", **RESULT, "output": "four"}, "four"),
    ({"type": "tool-f", **RESULT, "state": "output-error", "errorText": "no"}, "no"),
    (
        {
            "type": "tool-invocation",
            "toolInvocation": {"state": "result", "step": 0, "toolCallId": "1", "toolName": "f", "args": {"a": 1}}
            | {"result": "four"},
        },
        "four",
    ),
]


@pytest.mark.parametrize(("part", "result"), OUTCOMES)
def test_a_call_of_a_ui_message_has_its_result(part: Any, result: str) -> None:
    record = answered({"type": "step-start"}, part, {"type": "step-start"}, {"type": "text", "text": "A"})
    assert said(record) == [TALK[0], ("assistant", "", [CALL]), ("tool", result, ["1"]), TALK[1]]


def test_calls_of_one_step_are_made_at_once() -> None:
    first = {"type": "tool-f", **RESULT, "output": "x"}
    second = {**first, "toolCallId": "2", "output": "y"}
    both = [("tool", "x", ["1"]), ("tool", "y", ["2"]), TALK[1]]
    text = {"type": "text", "text": "A", "state": "done"}
    calls = [CALL, (*CALL[:2], "2")]
    assert said(answered(first, second, text)) == [TALK[0], ("assistant", "", calls), *both]
    in_steps = said(answered(first, {"type": "step-start"}, second, text))
    assert in_steps[1:] == [("assistant", "", calls[:1]), both[0], ("assistant", "", calls[1:]), *both[1:]]


OF_MODELS = [
    ({"output": {"type": "json", "value": {"t": 4}}}, '{"t": 4}'),
    ({"output": {"type": "error-text", "value": "no"}}, "no"),
    ({"output": {"type": "content", "value": [{"type": "text", "text": "four"}]}}, "four"),
    ({"result": ["four"]}, '["four"]'),
]


@pytest.mark.parametrize(("outcome", "text"), OF_MODELS)
def test_results_of_model_messages_are_texts(outcome: Any, text: str) -> None:
    call = {"type": "tool-call", "toolCallId": "1", "toolName": "f", "args": {"a": 1}, "providerOptions": {"x": {}}}
    result = {"type": "tool-result", "toolCallId": "1", "toolName": "f", **outcome}
    messages = [USER, {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}, ANSWER]
    assert said({"messages": messages}) == [TALK[0], ("assistant", "", [CALL]), ("tool", text, ["1"]), TALK[1]]


def test_what_a_part_holds_besides_is_refused() -> None:
    with pytest.raises(RecordRefusedError) as refused:
        turns(answered({"type": "text", "text": "A"}, {"type": "file", "url": "data:,x", "mediaType": "text/plain"}))
    assert refused.value.reason == Refusal.PART_UNKNOWN
    with pytest.raises(RecordRefusedError) as refused:
        turns(answered({"type": "text", "text": "A"}, content="B"))
    assert refused.value.reason == Refusal.KEY_UNKNOWN


def test_a_type_that_is_a_role_is_named() -> None:
    with pytest.raises(RecordRefusedError) as refused:
        turns({"messages": [{"type": "human", "content": "Q"}, {"type": "ai", "content": "A"}]})
    assert refused.value.reason == Refusal.ROLE_UNKNOWN
    assert "jq -c '.messages |= map({role: .type} + del(.type))'" in str(refused.value.remedy)
