"""The JSON of a conversation of any model: written and read again it is the same; what the format lacks is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.conversations.conversation import Conversation, Settings, messages_json, parse_conversation
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.turns import Call, Message

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
PARTS = st.lists(TEXT, max_size=2).map(tuple)
CALLS = st.builds(Call, id=st.none() | TEXT, name=TEXT, arguments=TEXT)
CONTEXT = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "developer"]), texts=PARTS),
    st.builds(Message, role=st.just("user"), texts=PARTS, name=st.none() | TEXT),
    st.builds(Message, role=st.just("tool"), texts=PARTS, call_id=st.none() | TEXT, name=st.none() | TEXT),
)
ANSWERS = st.builds(
    Message,
    role=st.just("assistant"),
    texts=PARTS,
    reasoning=PARTS,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    channel=st.sampled_from([None, "commentary", "final"]),
    trained=st.booleans(),
)
CONVERSATIONS = st.builds(
    Conversation,
    messages=st.lists(st.one_of(CONTEXT, ANSWERS), max_size=4).map(
        lambda messages: (*messages, Message(role="assistant", texts=("A",)))
    ),
    tools=st.lists(st.fixed_dictionaries({"name": TEXT, "parameters": st.just({"type": "object"})}), max_size=2).map(
        tuple
    ),
    settings=st.builds(Settings, reasoning_effort=st.none() | TEXT, model_identity=st.none() | TEXT),
    chat_template_kwargs=st.dictionaries(TEXT, st.booleans(), max_size=2),
    weight=st.none() | st.floats(0.125, 8),
)


@given(conversation=CONVERSATIONS)
def test_written_and_read_again_it_is_the_same(conversation: Conversation) -> None:
    text = messages_json(conversation)
    assert parse_conversation(text) == conversation
    assert messages_json(parse_conversation(text)) == text


def test_a_number_of_many_digits_in_a_schema_is_kept() -> None:
    tool = {"name": "f", "parameters": {"const": 10**30}}
    whole = Conversation(messages=(Message(role="assistant", texts=("A",)),), tools=(tool,))
    assert json.loads(messages_json(whole))["tools"] == [tool]
    assert parse_conversation(messages_json(whole)) == whole


ANSWER = {"role": "assistant", "content": "A"}


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        ([], Reason.NO_MESSAGES_LIST),
        ({"messages": {}}, Reason.NO_MESSAGES_LIST),
        ({"messages": []}, Reason.NO_MESSAGES),
        ({"messages": [1]}, Reason.MESSAGE_NOT_OBJECT),
        ({"messages": [{"role": "gpt", "content": "A"}]}, Reason.ROLE_UNKNOWN),
        ({"messages": [{"role": [], "content": "A"}]}, Reason.ROLE_UNKNOWN),
        ({"messages": [{"role": "user", "content": "Q"}]}, Reason.NO_ASSISTANT),
        ({"messages": [{**ANSWER, "trained": False}]}, Reason.NOTHING_TRAINED),
        ({"messages": [{"role": "user", "content": "Q", "trained": False}, ANSWER]}, Reason.KEY_UNKNOWN),
        ({"messages": [{**ANSWER, "refusal": None}]}, Reason.KEY_UNKNOWN),
        ({"messages": [ANSWER], "functions": []}, Reason.KEY_UNKNOWN),
        ({"messages": [ANSWER], "settings": {"effort": "low"}}, Reason.KEY_UNKNOWN),
        ({"messages": [{**ANSWER, "content": 1}]}, Reason.FIELD_INVALID),
        ({"messages": [{**ANSWER, "content": ["A", 1]}]}, Reason.FIELD_INVALID),
        ({"messages": [{**ANSWER, "channel": []}]}, Reason.FIELD_INVALID),
        ({"messages": [{**ANSWER, "trained": 0}]}, Reason.FIELD_INVALID),
        ({"messages": [{**ANSWER, "tool_calls": [{"name": "f", "arguments": {}}]}]}, Reason.FIELD_INVALID),
        ({"messages": [ANSWER], "settings": {"reasoning_effort": 1}}, Reason.FIELD_INVALID),
        ({"messages": [ANSWER], "weight": 0}, Reason.FIELD_INVALID),
        ({"messages": [ANSWER], "tools": [{"name": "f", "parameters": []}]}, Reason.FIELD_INVALID),
    ],
)
def test_what_the_format_does_not_have_is_refused(whole: Any, reason: Reason) -> None:
    with pytest.raises(RowRefusedError) as refused:
        parse_conversation(json.dumps(whole))
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, Reason.MESSAGES_JSON_MISSING),
        (b"{", Reason.MESSAGES_JSON_INVALID),
        (b"\xff", Reason.NOT_UTF8),
        (b'{"messages": [], "messages": []}', Reason.DUPLICATE_KEY),
    ],
)
def test_what_is_no_json_is_refused(text: bytes | None, reason: Reason) -> None:
    with pytest.raises(RowRefusedError) as refused:
        parse_conversation(text)
    assert refused.value.reason is reason
