"""Laws of a row: which id it has, which conversation, and which span each of its messages belongs to."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import row_id
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.profile import HARMONY_CHAT

CONTEXT, ANALYSIS, FINAL, COMMENTARY = range(4)
ID = "synth_id"
ANSWER = {"role": "assistant", "channel": "final", "content": "So."}


def document(*messages: object) -> str:
    return json.dumps({"messages": list(messages)})


def message(role: str, channel: str | None = None) -> dict[str, str]:
    return {"role": role, "content": "text"} | ({"channel": channel} if channel else {})


# --- The id ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "metadata", "expected"),
    [
        ("a", '{"synth_id": "a"}', "a"),
        ("a", None, "a"),
        ("a", "{}", "a"),
        ("a", '{"synth_id": null}', "a"),
        (None, '{"synth_id": "a"}', "a"),
        (None, '{"synth_id": "\\u00e9\\ud83d\\ude00"}', "é😀"),  # a surrogate pair is one character
        ("é😀", '{"synth_id": "\\u00e9\\ud83d\\ude00"}', "é😀"),
        (" ", None, " "),
        ("0", '{"synth_id": "0"}', "0"),
    ],
)
def test_the_id_is_the_column_else_the_metadata(column: str | None, metadata: str | None, expected: str) -> None:
    assert row_id(column, metadata, ID) == expected


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_one_id_said_in_either_place_or_both_is_the_same_id(synth_id: str) -> None:
    metadata = json.dumps({"synth_id": synth_id})
    assert row_id(synth_id, None, ID) == row_id(None, metadata, ID) == row_id(synth_id, metadata, ID) == synth_id


@pytest.mark.parametrize(
    ("column", "metadata", "reason", "detail"),
    [
        (None, None, Reason.SYNTH_ID_MISSING, "synth_id is neither in its column nor in metadata_json"),
        (None, "{}", Reason.SYNTH_ID_MISSING, "synth_id is neither in its column nor in metadata_json"),
        (None, '{"synth_id": null}', Reason.SYNTH_ID_MISSING, "synth_id is neither in its column nor in metadata_json"),
        ("", None, Reason.SYNTH_ID_MISSING, "synth_id is empty"),
        ("", '{"synth_id": ""}', Reason.SYNTH_ID_MISSING, "synth_id is empty"),
        (None, '{"synth_id": ""}', Reason.SYNTH_ID_MISSING, "synth_id is empty"),
        ("", '{"synth_id": "a"}', Reason.SYNTH_ID_MISMATCH, "column synth_id is '', metadata_json says 'a'"),
        ("a", '{"synth_id": ""}', Reason.SYNTH_ID_MISMATCH, "column synth_id is 'a', metadata_json says ''"),
        ("a", '{"synth_id": "A"}', Reason.SYNTH_ID_MISMATCH, "column synth_id is 'a', metadata_json says 'A'"),
        ("a", '{"synth_id": "a "}', Reason.SYNTH_ID_MISMATCH, "column synth_id is 'a', metadata_json says 'a '"),
        # Equal to the eye, not in bytes: é composed and decomposed. Nothing is normalised.
        (
            "é",
            '{"synth_id": "e\\u0301"}',
            Reason.SYNTH_ID_MISMATCH,
            "column synth_id is 'é', metadata_json says 'e\u0301'",
        ),
        ("1", '{"synth_id": 1}', Reason.SYNTH_ID_NOT_STRING, "synth_id in metadata_json is a number, not a string"),
        (None, '{"synth_id": 1.5}', Reason.SYNTH_ID_NOT_STRING, "synth_id in metadata_json is a number, not a string"),
        (
            None,
            '{"synth_id": false}',
            Reason.SYNTH_ID_NOT_STRING,
            "synth_id in metadata_json is a boolean, not a string",
        ),
        (None, '{"synth_id": []}', Reason.SYNTH_ID_NOT_STRING, "synth_id in metadata_json is a list, not a string"),
        (None, '{"synth_id": {}}', Reason.SYNTH_ID_NOT_STRING, "synth_id in metadata_json is an object, not a string"),
        (None, '{"synth_id": "\\ud800"}', Reason.NOT_UTF8, r"synth_id '\ud800' holds a lone surrogate"),
        ("a", "null", Reason.METADATA_JSON_INVALID, "metadata_json is null, not an object"),
        ("a", '"a"', Reason.METADATA_JSON_INVALID, "metadata_json is a string, not an object"),
        ("a", '["a"]', Reason.METADATA_JSON_INVALID, "metadata_json is a list, not an object"),
        ("a", "7", Reason.METADATA_JSON_INVALID, "metadata_json is a number, not an object"),
        ("a", '{"score": -Infinity}', Reason.METADATA_JSON_INVALID, "metadata_json is not JSON: -Infinity is not JSON"),
        (
            "a",
            '{"synth_id": "a", "synth_id": "a"}',
            Reason.DUPLICATE_KEY,
            "metadata_json holds the key 'synth_id' twice in one object",
        ),
    ],
)
def test_an_id_that_is_missing_or_contradicted_is_refused(
    column: str | None, metadata: str | None, reason: Reason, detail: str
) -> None:
    with pytest.raises(RowRefusedError) as refusal:
        row_id(column, metadata, ID)
    assert (refusal.value.reason, refusal.value.detail) == (reason, detail)


@pytest.mark.parametrize(
    "metadata", ["", " ", "{", '{"synth_id": "a"} x', "{'synth_id': 'a'}", '\ufeff{"a": 1}', "[" * 10**5]
)
def test_metadata_that_is_not_json_is_refused_even_where_the_column_has_the_id(metadata: str) -> None:
    with pytest.raises(RowRefusedError) as refusal:
        row_id("a", metadata, ID)
    assert refusal.value.reason == Reason.METADATA_JSON_INVALID
    assert refusal.value.detail.startswith("metadata_json is not JSON: ")


# --- The conversation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "labels"),
    [
        ([("assistant", "final")], [FINAL]),
        ([("assistant", "analysis")], [ANALYSIS]),
        (
            [("system", None), ("developer", None), ("user", None), ("assistant", "analysis"), ("assistant", "final")],
            [CONTEXT, CONTEXT, CONTEXT, ANALYSIS, FINAL],
        ),
        (
            [("user", None), ("assistant", "final"), ("user", None), ("assistant", "analysis"), ("user", None)],
            [CONTEXT, FINAL, CONTEXT, ANALYSIS, CONTEXT],
        ),
        # A channel means something on assistant messages alone.
        ([("user", "final"), ("system", "analysis"), ("assistant", "final")], [CONTEXT, CONTEXT, FINAL]),
    ],
)
def test_each_message_has_the_span_of_its_role_and_channel(
    messages: list[tuple[str, str | None]], labels: list[int]
) -> None:
    conversation = parse_conversation(document(*(message(*of) for of in messages)))
    assert conversation.labels.tolist() == labels
    assert conversation.labels.dtype == "uint8"
    assert conversation.messages == [message(*of) for of in messages]


def test_commentary_has_a_span_of_its_own_in_conversations_of_any_kind() -> None:
    call = {**message("assistant", "commentary"), "recipient": "functions.look", "content_type": "<|constrain|>json"}
    result = {**message("tool", "commentary"), "name": "functions.look", "recipient": "assistant"}
    spoken = [message("user"), message("assistant", "analysis"), call, result, message("assistant", "final")]
    conversation = parse_conversation(document(*spoken), profile=HARMONY_CHAT)
    assert conversation.labels.tolist() == [CONTEXT, ANALYSIS, COMMENTARY, CONTEXT, FINAL]


@given(
    st.lists(
        st.sampled_from(
            [("system", None), ("developer", None), ("user", None), ("assistant", "analysis"), ("assistant", "final")]
        ),
        min_size=1,
    )
)
def test_a_conversation_is_taken_exactly_when_the_assistant_speaks(of: list[tuple[str, str | None]]) -> None:
    text = document(*(message(*one) for one in of))
    if any(role == "assistant" for role, _ in of):
        wanted = [{None: CONTEXT, "analysis": ANALYSIS, "final": FINAL}[channel] for _, channel in of]
        assert parse_conversation(text).labels.tolist() == wanted
    else:
        with pytest.raises(RowRefusedError) as refusal:
            parse_conversation(text)
        assert refusal.value.reason == Reason.NO_ASSISTANT


def test_messages_come_back_as_they_stand_with_all_their_fields() -> None:
    given = {
        "role": "assistant",
        "channel": "final",
        "content": [{"type": "text", "text": "é\u2028😀"}],
        "recipient": "f",
    }
    assert parse_conversation(document(given)).messages == [given]
    assert parse_conversation(json.dumps({"other": 1, "messages": [given]})).messages == [given]


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        (None, Reason.MESSAGES_JSON_MISSING, "messages_json is null"),
        ("", Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: .+"),
        ("{", Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: .+"),
        (document(ANSWER) + "x", Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: .+"),
        ("\ufeff" + document(ANSWER), Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: .+"),
        ('{"messages": [NaN]}', Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: NaN is not JSON"),
        ('{"messages": [Infinity]}', Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: Infinity is not JSON"),
        ("[" * 10**5 + "]" * 10**5, Reason.MESSAGES_JSON_INVALID, "messages_json is not JSON: .+"),
        (
            '{"messages": [], "messages": []}',
            Reason.DUPLICATE_KEY,
            "messages_json holds the key 'messages' twice in one object",
        ),
        (
            '{"messages": [{"role": "user", "role": "user", "content": "x"}]}',
            Reason.DUPLICATE_KEY,
            "messages_json holds the key 'role' twice in one object",
        ),
        # Two spellings of one key.
        ('{"a": {"b": [{"k": 1, "\\u006b": 2}]}}', Reason.DUPLICATE_KEY, "messages_json holds the key 'k' twice .+"),
        ("null", Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ("[]", Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ('"messages"', Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ("{}", Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ('{"Messages": []}', Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ('{"messages": null}', Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ('{"messages": {}}', Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        ('{"messages": "[]"}', Reason.NO_MESSAGES_LIST, '.*list under "messages"'),
        (document(), Reason.NO_MESSAGES, "the list of messages is empty"),
        (document(ANSWER, None), Reason.MESSAGE_NOT_OBJECT, "message 1 is null, not an object"),
        (document([ANSWER]), Reason.MESSAGE_NOT_OBJECT, "message 0 is a list, not an object"),
        (document(ANSWER, 1), Reason.MESSAGE_NOT_OBJECT, "message 1 is a number, not an object"),
        (document({}), Reason.ROLE_UNKNOWN, "message 0 has role None, not one of system, developer, user, assistant"),
        (document(message("tool"), ANSWER), Reason.ROLE_UNKNOWN, "message 0 has role 'tool', .+"),
        (document(message("Assistant")), Reason.ROLE_UNKNOWN, "message 0 has role 'Assistant', .+"),
        (document({**ANSWER, "role": {}}), Reason.ROLE_UNKNOWN, r"message 0 has role \{\}, .+"),
        (document(message("assistant")), Reason.CHANNEL_UNKNOWN, r"message 0 \(assistant\) has channel None, .+"),
        (document(ANSWER, {**ANSWER, "channel": None}), Reason.CHANNEL_UNKNOWN, "message 1 .+ channel None, .+"),
        (document({**ANSWER, "channel": "commentary"}), Reason.CHANNEL_UNKNOWN, "message 0 .+ 'commentary', .+"),
        (document({**ANSWER, "channel": "Final"}), Reason.CHANNEL_UNKNOWN, "message 0 .+ channel 'Final', .+"),
        (document({**ANSWER, "channel": ["final"]}), Reason.CHANNEL_UNKNOWN, r"message 0 .+ channel \['final'\], .+"),
        (document(message("user"), message("system")), Reason.NO_ASSISTANT, "no message is from the assistant: .+"),
    ],
)
def test_a_conversation_outside_the_contract_is_refused_with_its_reason(
    text: str | None, reason: Reason, detail: str
) -> None:
    with pytest.raises(RowRefusedError) as refusal:
        parse_conversation(text)
    assert refusal.value.reason == reason
    assert re.fullmatch(detail, refusal.value.detail)
