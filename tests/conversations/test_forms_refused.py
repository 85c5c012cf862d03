"""Chat records that make no conversation are refused with a reason; what options leave out of others is counted."""

import json
from typing import Any

import pytest
from openai_harmony import (
    Conversation,
    HarmonyEncoding,
    RenderConversationConfig,
)

from spanloom.conversations.arranged import Arrangement, arranged
from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal
from spanloom.families.harmony.contract.messages import harmony_messages
from support.chat_records import (
    ANSWER,
    TOOL,
    USER,
    call,
    convert,
    messages,
    refusal,
    said,
    thought,
)


@pytest.mark.parametrize(
    ("record", "reason", "drop"),
    [
        (messages(USER, {**ANSWER, "refusal": "no"}), Refusal.KEY_UNKNOWN, "refusal"),
        (messages(USER, {**ANSWER, "name": "bob"}), Refusal.KEY_UNKNOWN, "name"),
        (messages({**USER, "name": "a b"}, ANSWER), Refusal.KEY_UNKNOWN, "name"),
        (messages({**USER, "reasoning": "x"}, ANSWER), Refusal.KEY_UNKNOWN, "reasoning"),
        (messages({**USER, "value": "more"}, ANSWER), Refusal.KEY_UNKNOWN, "value"),
        (messages(USER, {**ANSWER, "reasoning": "a", "thinking": "b"}), Refusal.REASONING_TWICE, "thinking"),
        (
            messages(
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}, {"text": "Q"}]}, ANSWER
            ),
            Refusal.PART_UNKNOWN,
            "part:image_url",
        ),
        (messages({"role": "user", "content": [{"text": "Q", "cache": True}]}, ANSWER), Refusal.KEY_UNKNOWN, "cache"),
        (
            messages(USER, thought({"type": "text", "text": "R", "notes": "x"})),
            Refusal.KEY_UNKNOWN,
            "notes",
        ),
        (
            messages(USER, thought({"type": "text", "text": "R"}, {"type": "reference", "reference_ids": [1]})),
            Refusal.PART_UNKNOWN,
            "part:reference",
        ),
        (messages(USER, ANSWER, {"role": "critic", "content": "x"}), Refusal.ROLE_UNKNOWN, "role:critic"),
        (
            messages(USER, ANSWER, {"role": "system", "content": "x"}, USER, ANSWER),
            Refusal.SYSTEM_NOT_FIRST,
            "role:system",
        ),
        (
            messages({"role": "system", "content": "x"}, {"role": "developer", "content": "y"}, USER, ANSWER),
            Refusal.SYSTEM_TWICE,
            "role:developer",
        ),
        (messages({"role": "system", "content": "x"}, USER, ANSWER, system="y"), Refusal.SYSTEM_TWICE, "system"),
        (messages(ANSWER, USER, ANSWER), Refusal.ASSISTANT_FIRST, "unprompted"),
        (messages(USER, ANSWER, USER), Refusal.UNANSWERED, "unanswered"),
        (messages(USER, ANSWER, {"role": "tool", "content": "x"}), Refusal.UNANSWERED, "unanswered"),
        (messages(USER, ANSWER, tools=[{**TOOL, "strict": True}]), Refusal.KEY_UNKNOWN, "strict"),
        (messages(USER, ANSWER, tools=[{"type": "custom", "name": "x"}]), Refusal.TOOLS_INVALID, "tools"),
        (messages(USER, {**ANSWER, "tool_calls": [{**call(), "extra": 1}]}), Refusal.KEY_UNKNOWN, "extra"),
    ],
)
def test_what_harmony_has_no_place_for_is_refused_or_dropped_and_counted(
    record: Any, reason: Refusal, drop: str
) -> None:
    assert refusal(record)[0] is reason
    dropping = Dropping(names=frozenset({drop}))
    assert convert(record, dropping=dropping)
    assert dropping.counts == {drop: 1}
    assert dropping.characters[drop] > 0


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (messages(USER, {"role": "assistant", "content": ""}), Refusal.ASSISTANT_EMPTY),
        (messages(USER, {"role": "assistant", "content": " \n"}), Refusal.ASSISTANT_EMPTY),
        (messages(USER, {"role": "assistant"}, USER, ANSWER), Refusal.ASSISTANT_EMPTY),
        (messages(USER, {"role": "assistant", "reasoning": "R"}), Refusal.ANSWER_MISSING),
        (messages(USER, {"role": "assistant", "reasoning": "R"}, USER, ANSWER), Refusal.ANSWER_MISSING),
        (messages(USER, ANSWER, ANSWER), Refusal.ASSISTANT_AFTER_ANSWER),
        (messages(USER), Refusal.NO_ASSISTANT),
        (messages(ANSWER), Refusal.ASSISTANT_FIRST),
        (messages({"role": "tool", "content": "x"}, ANSWER), Refusal.ASSISTANT_FIRST),
        (messages({"role": "tool", "content": "x"}, USER, ANSWER), Refusal.TOOL_RESULT_UNMATCHED),
        (messages({"role": "user", "content": None}, ANSWER), Refusal.CONTENT_MISSING),
        (messages({"role": "user", "content": 3}, ANSWER), Refusal.CONTENT_NOT_TEXT),
        (messages({"role": "user", "content": {"a": 1}}, ANSWER), Refusal.CONTENT_NOT_TEXT),
        (messages({"role": "user", "content": [1]}, ANSWER), Refusal.CONTENT_NOT_TEXT),
        (messages({"role": "user", "content": [{"type": "text", "text": 1}]}, ANSWER), Refusal.CONTENT_NOT_TEXT),
        (messages({"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}, ANSWER), Refusal.PART_UNKNOWN),
        (messages(USER, {**ANSWER, "reasoning": ["a"]}), Refusal.CONTENT_NOT_TEXT),
        (
            messages(USER, {"role": "assistant", "content": [{"text": "A"}, {"type": "thinking", "thinking": "R"}]}),
            Refusal.REASONING_AFTER_ANSWER,
        ),
        (messages(USER, "text"), Refusal.MESSAGE_NOT_OBJECT),
        (messages(USER, {"content": "x"}), Refusal.ROLE_UNKNOWN),
        (messages(USER, {"role": 1, "content": "x"}), Refusal.ROLE_UNKNOWN),
        (messages(USER, ANSWER, tools="{"), Refusal.TOOLS_INVALID),
        (messages(USER, ANSWER, tools={"a": 1}), Refusal.TOOLS_INVALID),
        (messages(USER, {**ANSWER, "weight": 0}), Refusal.NOTHING_TRAINED),
        (messages(USER, {**ANSWER, "weight": 0.5}), Refusal.WEIGHT_ZERO),
        (messages(USER, ANSWER, id=1.5), Refusal.ID_INVALID),
        (messages(USER, ANSWER, id=True), Refusal.ID_INVALID),
        (messages(USER, ANSWER, system=["x"]), Refusal.CONTENT_NOT_TEXT),
        ({"prompt": "Q", "response": 1}, Refusal.CONTENT_NOT_TEXT),
        ({"prompt": [USER], "reasoning": "R", "completion": [ANSWER]}, Refusal.REASONING_TWICE),
    ],
)
def test_what_makes_no_conversation_is_refused_with_its_reason(record: Any, reason: Refusal) -> None:
    assert refusal(record)[0] is reason


def test_a_turn_of_which_options_leave_nothing_is_left_out_and_never_empty() -> None:
    record = messages(
        USER, {"role": "assistant", "content": "", "tool_calls": [call()]}, {"role": "tool", "content": "x"}, ANSWER
    )
    dropping = Dropping(names=frozenset({"tool_calls", "role:tool"}))
    assert convert(record, dropping=dropping) == [said("user", "Q"), said("assistant", "A", "final")]
    assert dropping.counts == {"tool_calls": 1, "role:tool": 1}
    assert refusal(messages(ANSWER, USER), drop=("unanswered",))[0] is Refusal.ASSISTANT_FIRST
    assert refusal(messages(ANSWER, USER), drop=("unanswered", "unprompted"))[0] is Refusal.NO_ASSISTANT
    alone = messages(USER, {"role": "assistant", "tool_calls": [call()]})
    assert refusal(alone, drop=("tool_calls",))[0] is Refusal.NO_ASSISTANT


@pytest.mark.parametrize("value", ['"\\ud800"', "1e400"])
def test_json_text_within_a_record_is_read_as_strictly_as_the_record(value: str) -> None:
    """Half of a surrogate pair, and a number that no double holds, could not be written."""
    turns = f'[{{"role": "user", "content": {value}}}, {{"role": "assistant", "content": "A"}}]'
    assert (
        refusal({"messages": [USER, ANSWER], "tools": f'[{{"name": "x", "parameters": {{"default": {value}}}}}]'})[0]
        is Refusal.TOOLS_INVALID
    )
    form = recognise(messages(USER, ANSWER), key_map(()), "here")
    with pytest.raises(RecordRefusedError) as refused:
        read_record({"messages": turns}, form, Reading(), Dropping())
    assert refused.value.reason is Refusal.NO_MESSAGES
    written = f'{{"name": "x", "arguments": {{"a": {value}}}}}'
    shared = [{"from": "human", "value": "Q"}, {"from": "function_call", "value": written}]
    assert refusal({"conversations": shared})[0] is Refusal.TOOL_CALL_INVALID


def test_a_message_without_a_role_is_not_told_to_be_dropped_by_one() -> None:
    assert refusal(messages(USER, {"content": "x"}))[2] is None
    assert refusal(messages(USER, {"role": "critic", "content": "x"}))[2] == (
        "--drop role:critic leaves it out, --role critic=user (or assistant, tool, system) says who speaks"
    )


def test_later_records_must_have_the_form_of_the_first() -> None:
    form = recognise(messages(USER, ANSWER), key_map(()), "here")
    for record in ({"prompt": "Q", "response": "A"}, "text", {"messages": "[1"}, {"messages": 5}):
        with pytest.raises(RecordRefusedError) as refused:
            read_record(record, form, Reading(), Dropping())
        assert refused.value.reason is Refusal.NO_MESSAGES
    columns = recognise({"prompt": "Q", "response": "A"}, key_map(()), "here")
    for record in (messages(USER, ANSWER), [USER, ANSWER], {"prompt": "Q"}):
        with pytest.raises(RecordRefusedError) as refused:
            read_record(record, columns, Reading(), Dropping())
        assert refused.value.reason is Refusal.NO_MESSAGES


def test_nothing_is_said_around_a_conversation_that_was_not_chosen(encoding: HarmonyEncoding) -> None:
    dropping = Dropping()
    record = messages(USER, ANSWER)
    chat = read_record(record, recognise(record, key_map(()), "here"), Reading(), dropping)
    ours = harmony_messages(arranged(chat, Arrangement(), dropping))
    tokens = encoding.render_conversation_for_training(
        Conversation.from_json(json.dumps({"messages": ours})), RenderConversationConfig(auto_drop_analysis=False)
    )
    assert encoding.decode_utf8(tokens) == (
        "<|start|>system<|message|># Valid channels: analysis, commentary, final. Channel must be included for every "
        "message.<|end|><|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>"
    )
