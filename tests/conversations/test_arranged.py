"""What is stored of a record: flags, settings, weights and roles of its own; what options join, put in turn or keep."""

from typing import Any

import pytest

from spanloom.conversations.arranged import Arrangement, arranged
from spanloom.conversations.conversation import Conversation, Settings
from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal, Role
from spanloom.errors import SpanloomError
from spanloom.families.harmony.convert.conversion import ChatConversion
from support.read_chats import ANSWER, USER


def stored(
    *messages: Any,
    maps: tuple[str, ...] = (),
    metadata: tuple[str, ...] = (),
    roles: dict[str, Role] | None = None,
    drop: tuple[str, ...] = (),
    record: dict[str, Any] | None = None,
    **options: Any,
) -> Conversation:
    whole = {"messages": list(messages or (USER, ANSWER)), **(record or {})}
    form = recognise(whole, key_map(maps, metadata), "here")
    dropping = Dropping(names=frozenset(drop))
    reading = Reading(metadata=frozenset(metadata), roles=roles or {})
    return arranged(read_record(whole, form, reading, dropping), Arrangement(**options), dropping)


def refused(*messages: Any, **options: Any) -> tuple[Refusal, str | None]:
    with pytest.raises(RecordRefusedError) as caught:
        stored(*messages, **options)
    return caught.value.reason, caught.value.remedy


def lines(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message.role, "".join(message.texts)) for message in conversation.messages]


# --- Flags -----------------------------------------------------------------------------------------------------------


def test_a_message_that_is_marked_stays_as_context() -> None:
    done = stored(USER, {**ANSWER, "weight": 0}, USER, {**ANSWER, "weight": 1})
    assert [message.trained for message in done.messages] == [True, False, True, True]
    sharegpt = {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A", "weight": 0}] * 2}
    sharegpt["conversations"][3] = {"from": "gpt", "value": "A", "weight": 1}
    form = recognise(sharegpt, key_map(()), "here")
    turns = read_record(sharegpt, form, Reading(), Dropping()).turns
    assert [turn.trained for turn in turns] == [True, False, True, True]


def test_all_parts_of_a_marked_message_are_context() -> None:
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        {"type": "tool_result", "tool_use_id": "c", "content": "4"},
        {"type": "text", "text": "Four."},
    ]
    done = stored(USER, {"role": "assistant", "content": blocks, "train": False}, USER, ANSWER)
    assert [(message.role, message.trained) for message in done.messages] == [
        ("user", True),
        ("assistant", False),
        ("tool", True),
        ("assistant", False),
        ("user", True),
        ("assistant", True),
    ]


def test_a_record_of_which_nothing_is_trained_is_refused() -> None:
    assert refused(USER, {**ANSWER, "loss": False}) == (
        Refusal.NOTHING_TRAINED,
        "--max-rejects 100% sets such records aside",
    )


# --- Settings, weights -----------------------------------------------------------------------------------------------

OPTIONS = Settings(reasoning_effort="high", model_identity="an option's")


def test_a_record_goes_before_the_options() -> None:
    for record in ({"reasoning_effort": "low"}, {"chat_template_kwargs": {"reasoning_effort": "low"}}):
        settings = stored(record=record, settings=OPTIONS).settings
        assert settings == Settings(reasoning_effort="low", model_identity="an option's")
    assert stored(record={"reasoning_effort": None}, settings=OPTIONS).settings == OPTIONS
    assert stored(settings=OPTIONS).settings == OPTIONS


def test_keys_for_settings_can_be_named() -> None:
    record = {"level": "low", "who": "You are Loom.", "day": "2026-01-31", "until": "2025-01", "share": 0.5}
    maps = ("effort=level", "identity=who", "date=day", "cutoff=until", "weight=share")
    done = stored(record=record, maps=maps)
    assert done.settings == Settings(
        reasoning_effort="low",
        model_identity="You are Loom.",
        conversation_start_date="2026-01-31",
        knowledge_cutoff="2025-01",
    )
    assert done.weight == 0.5


def test_arguments_of_a_template_are_kept_whole() -> None:
    kwargs = {"enable_thinking": False, "model_identity": "You are Loom."}
    done = stored(record={"chat_template_kwargs": kwargs})
    assert (dict(done.chat_template_kwargs), done.settings.model_identity) == (kwargs, "You are Loom.")


@pytest.mark.parametrize(
    ("record", "remedy"),
    [
        ({"reasoning_effort": 3}, "--metadata reasoning_effort leaves it to the metadata"),
        ({"chat_template_kwargs": [1]}, "--metadata chat_template_kwargs leaves it to the metadata"),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            "--drop chat_template_kwargs leaves these arguments out",
        ),
    ],
)
def test_settings_that_are_no_text_or_differ_are_refused(record: dict[str, Any], remedy: str) -> None:
    assert refused(record=record) == (Refusal.SETTING_INVALID, remedy)
    name = remedy.split()[1]
    option = {"metadata": (name,)} if remedy.startswith("--metadata") else {"drop": (name,)}
    assert lines(stored(record=record, **option)) == [("user", "Q"), ("assistant", "A")]


@pytest.mark.parametrize("weight", [2, 0.25, "0.25"])
def test_a_conversation_has_a_weight(weight: Any) -> None:
    assert stored(record={"weight": weight}).weight == float(weight)


@pytest.mark.parametrize("weight", [0, -1, True, "heavy", "nan", [1], 10**400])
def test_a_weight_that_is_no_number_above_zero_is_refused(weight: Any) -> None:
    assert refused(record={"weight": weight}) == (
        Refusal.WEIGHT_INVALID,
        "--max-rejects 100% sets such records aside"
        + (", --metadata weight trains it like those without a weight" if weight != 0 else ""),
    )


# --- Roles, messages in a row, messages before the user's ------------------------------------------------------------


def test_a_role_of_another_name_can_be_named() -> None:
    visitor = {"role": "Visitor", "content": "Q"}
    reason, remedy = refused(visitor, ANSWER)
    assert reason is Refusal.ROLE_UNKNOWN
    assert remedy is not None
    assert "--role visitor=user" in remedy
    assert lines(stored(visitor, ANSWER, roles={"visitor": "user"})) == [("user", "Q"), ("assistant", "A")]
    for pair in ("visitor", "visitor=guest", "=user"):
        with pytest.raises(SpanloomError, match="--role takes NAME=ROLE"):
            ChatConversion(roles=(pair,))


def test_two_answers_in_a_row_are_refused_or_joined() -> None:
    two = (USER, ANSWER, {**ANSWER, "content": "B"})
    assert refused(*two) == (Refusal.ASSISTANT_AFTER_ANSWER, "--join-consecutive makes one message of both")
    assert lines(stored(*two, join_consecutive=True)) == [("user", "Q"), ("assistant", "A\n\nB")]
    three = stored(*two, {**ANSWER, "content": "C"}, USER, ANSWER, join_consecutive=True)
    assert lines(three) == [("user", "Q"), ("assistant", "A\n\nB\n\nC"), ("user", "Q"), ("assistant", "A")]


def test_a_call_after_a_text_is_joined_to_it() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "f", "arguments": "{}"}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "4"}
    (_, spoken, *_) = stored(USER, ANSWER, call, result, ANSWER, join_consecutive=True).messages
    assert (spoken.texts, [made.name for made in spoken.calls]) == (("A",), ["f"])


@pytest.mark.parametrize("second", [{"reasoning": "R"}, {"weight": 0}])
def test_what_cannot_be_joined_is_refused_even_then(second: dict[str, Any]) -> None:
    two = (USER, ANSWER, {**ANSWER, **second})
    assert refused(*two, join_consecutive=True) == (Refusal.ASSISTANT_AFTER_ANSWER, None)


def test_a_record_without_a_user_can_be_kept() -> None:
    assert refused(ANSWER) == (Refusal.ASSISTANT_FIRST, "--keep-unprompted keeps it and trains it")
    assert lines(stored(ANSWER, keep_unprompted=True)) == [("assistant", "A")]
    greeting = ({"role": "system", "content": "S"}, ANSWER, USER, ANSWER)
    kept = [("system", "S"), ("assistant", "A"), ("user", "Q"), ("assistant", "A")]
    assert lines(stored(*greeting, keep_unprompted=True)) == kept
    assert lines(stored(*greeting, drop=("unprompted",))) == [kept[0], *kept[2:]]


# --- Calls, system texts ---------------------------------------------------------------------------------------------

CALLS = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in "fg"]
AT_ONCE = {"role": "assistant", "content": "Both.", "tool_calls": CALLS}
RESULTS = [{"role": "tool", "tool_call_id": name, "content": name.upper()} for name in "gf"]


def test_calls_at_once_stay_so_unless_they_are_put_in_turn() -> None:
    kept = stored(USER, AT_ONCE, *RESULTS, ANSWER).messages
    assert [len(message.calls) for message in kept] == [0, 2, 0, 0, 0]
    turned = stored(USER, AT_ONCE, *RESULTS, ANSWER, calls_in_turn=True).messages
    assert [(message.role, "".join(message.texts), len(message.calls)) for message in turned] == [
        ("user", "Q", 0),
        ("assistant", "Both.", 1),
        ("tool", "F", 0),
        ("assistant", "", 1),
        ("tool", "G", 0),
        ("assistant", "A", 0),
    ]
    alone = stored(USER, AT_ONCE, calls_in_turn=True).messages
    assert [len(message.calls) for message in alone] == [0, 2], "calls without results have no turn to take"


def test_arguments_that_are_encoded_twice_are_read() -> None:
    call = {"name": "f", "arguments": '"{\\"a\\": 1}"'}
    (_, made) = stored(USER, {"role": "assistant", "tool_calls": [call]}).messages
    assert made.calls[0].arguments == '{"a": 1}'


def test_system_texts_stay_where_they_are() -> None:
    more = {"role": "developer", "content": "D"}
    done = stored(more, USER, ANSWER, {"role": "system", "content": "L"}, USER, ANSWER, record={"system": "S"})
    assert [message.role for message in done.messages] == [
        "system", "developer", "user", "assistant", "system", "user", "assistant",
    ]  # fmt: skip
    assert lines(stored(developer="D")) == [("developer", "D"), ("user", "Q"), ("assistant", "A")]
    assert lines(stored(record={"system": "S"}, developer="D"))[0] == ("system", "S")


def test_schemas_of_tools_are_stored_as_they_came() -> None:
    parameters = {"type": "object", "properties": {"a": {"pattern": "x", "anyOf": [{"$ref": "#"}]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    assert stored(record={"tools": [tool]}).tools == ({"name": "f", "parameters": parameters},)


def test_commentary_and_its_calls_are_joined_and_the_end_is_the_last_ones() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}
    use = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{}"}], "finish_reason": "length"}
    (asked, joined) = stored(USER, said, use, join_consecutive=True).messages
    assert (asked.role, joined.texts, len(joined.calls), joined.channel) == ("user", ("I look.",), 1, None)
    assert joined.truncated
    cut = {"role": "assistant", "content": "A", "finish_reason": "length"}
    assert refused(USER, cut, ANSWER, join_consecutive=True)[0] is Refusal.ASSISTANT_AFTER_ANSWER
