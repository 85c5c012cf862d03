"""Chat records of every form become the Harmony messages that openai-harmony's own types would make of them."""

import json
from collections import Counter
from typing import Any

import pytest
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    Message,
    RenderConversationConfig,
    Role,
    SystemContent,
    ToolDescription,
)

from spanloom.conversations.arranged import Arrangement, arranged
from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.reading.schemas import not_rendered_keys
from spanloom.conversations.turns import Dropping, Reading, Refusal
from spanloom.errors import SourceError, SpanloomError
from spanloom.families.harmony.contract.messages import SystemFields, harmony_messages
from support.chat_records import (
    ANSWER,
    PARAMETERS,
    TOOL,
    USER,
    answered,
    call,
    called,
    convert,
    messages,
    refusal,
    said,
    thought,
)

# --- Forms -----------------------------------------------------------------------------------------------------------

PLAIN = [said("user", "Q"), said("assistant", "R", "analysis"), said("assistant", "A", "final")]


@pytest.mark.parametrize(
    ("record", "maps"),
    [
        (messages(USER, {**ANSWER, "reasoning_content": "R"}), ()),
        (messages(USER, {**ANSWER, "reasoning": "R"}), ()),
        (messages(USER, {**ANSWER, "thinking": "R"}), ()),
        (messages(USER, {**ANSWER, "reasoning": "R", "reasoning_content": "R"}), ()),
        ([USER, {**ANSWER, "reasoning_content": "R"}], ()),
        (messages(USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "R"}, {"text": "A"}]}), ()),
        (messages(USER, thought({"type": "text", "text": "R"})), ()),
        (
            messages(
                {"role": "user", "content": [{"type": "text", "text": "Q"}]},
                {"role": "assistant", "content": [{"type": "reasoning", "text": "R"}, {"type": "text", "text": "A"}]},
            ),
            (),
        ),
        ({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A", "thinking": "R"}]}, ()),
        ({"conversation": [{"role": "user", "text": "Q"}, {"role": "model", "text": "A", "reasoning": "R"}]}, ()),
        ({"messages": json.dumps([USER, {**ANSWER, "reasoning": "R"}])}, ()),
        ({"prompt": "Q", "reasoning": "R", "response": "A"}, ()),
        ({"query": "Q", "synthetic_reasoning": "R", "synthetic_answer": "A"}, ()),
        ({"frage": "Q", "denken": "R", "antwort": "A"}, ("query=frage", "reasoning=denken", "answer=antwort")),
        ({"prompt": [USER], "completion": [{**ANSWER, "reasoning_content": "R"}]}, ()),
        ({"prompt": [USER], "reasoning": "R", "completion": "A"}, ()),
        ({"chosen": [USER, {**ANSWER, "reasoning": "R"}]}, ("messages=chosen",)),
    ],
)
def test_a_question_with_reasoning_and_answer_in_every_form(record: Any, maps: tuple[str, ...]) -> None:
    assert convert(record, maps=maps) == PLAIN


@pytest.mark.parametrize(
    "record",
    [
        messages({"role": "system", "content": "S"}, USER, ANSWER),
        messages({"role": "developer", "content": [{"type": "text", "text": "S"}]}, USER, ANSWER),
        messages(USER, ANSWER, system="S"),
        {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}], "system": "S"},
        {"prompt": "Q", "response": "A", "system_prompt": "S"},
    ],
)
def test_a_system_text_becomes_the_instructions_of_the_developer(record: Any) -> None:
    developer = {"role": "developer", "content": [{"type": "developer_content", "instructions": "S"}]}
    assert convert(record, system_fields=SystemFields(developer="not this")) == [
        developer,
        said("user", "Q"),
        said("assistant", "A", "final"),
    ]


def test_instructions_of_an_option_stand_where_a_record_brings_none() -> None:
    developer = {"role": "developer", "content": [{"type": "developer_content", "instructions": "S"}]}
    assert convert(messages(USER, ANSWER), system_fields=SystemFields(developer="S"))[0] == developer
    assert convert(messages(USER, ANSWER))[0]["role"] == "user"


def test_alpacas_input_is_not_missed() -> None:
    record = {"instruction": "I", "input": "J", "output": "A"}
    assert convert(record) == [said("user", "I\n\nJ"), said("assistant", "A", "final")]
    assert convert({**record, "input": ""})[0] == said("user", "I")
    form = recognise({"instruction": "I", "output": "A"}, key_map(()), "here")
    assert read_record(record, form, Reading(), Dropping()).turns[0].texts == ("I\n\nJ",), (
        "also where the first has none"
    )
    assert convert({"a": "I", "b": "J", "c": "A"}, maps=("query=a+b", "answer=c"))[0] == said("user", "I\n\nJ")


@pytest.mark.parametrize(
    "text",
    ["[1, 2]", "[]", "[Note] see below", '["a", "b"]', '[{"from": "Ulm", "to": "Bonn"}]', '[{"text": "x"}, 1]', "[1"],
)
def test_a_text_that_begins_like_a_list_of_messages_is_text(text: str) -> None:
    assert convert({"prompt": text, "response": text}) == [said("user", text), said("assistant", text, "final")]
    listed = {"prompt": json.dumps([USER]), "response": json.dumps([{**ANSWER, "reasoning": "R"}])}
    assert convert(listed) == PLAIN


def test_ids_of_messages_are_dropped_and_that_of_the_record_stays() -> None:
    asked = {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": {}}]}
    record = messages({**USER, "id": "m1"}, asked, {"role": "tool", "id": "m2", "content": "x"}, ANSWER, id="r")
    assert refusal(record)[0] is Refusal.KEY_UNKNOWN
    dropping = Dropping(names=frozenset({"id"}))
    chat = read_record(record, recognise(record, key_map(()), "here"), Reading(), dropping)
    assert (chat.id, dropping.counts) == ("r", {"id": 2})


def test_keys_that_a_map_joins_are_all_there() -> None:
    record = {"a": "Q", "r1": "R", "r2": "S", "s1": "X", "s2": "Y", "out": "A"}
    maps = ("query=a", "reasoning=r1+r2", "system=s1+s2", "answer=out")
    developer = {"role": "developer", "content": [{"type": "developer_content", "instructions": "X\n\nY"}]}
    answer = said("assistant", "A", "final")
    assert convert(record, maps=maps) == [developer, said("user", "Q"), said("assistant", "R\n\nS", "analysis"), answer]
    assert refusal({**record, "r2": ["S"]}, maps=maps)[0] is Refusal.CONTENT_NOT_TEXT
    assert convert({"a+b": "Q", "out": "A"}, maps=("query=a+b", "answer=out"))[0] == said("user", "Q")
    for meaning in ("id", "messages", "tools"):
        with pytest.raises(SpanloomError, match=f"{meaning} is no text"):
            key_map([f"{meaning}=a+b"])


def test_parts_stay_parts_and_users_keep_their_names() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]
    record = messages({"role": "user", "name": "ida", "content": parts}, ANSWER)
    both = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert convert(record)[0] == {"role": "user", "name": "ida", "content": both}


def test_what_a_record_holds_besides_is_kept_and_told() -> None:
    record = messages(USER, ANSWER, id="x", source="web", empty=None, score=1.5)
    form = recognise(record, key_map(()), "here")
    assert form.described(record) == [
        "form: messages with role and content (OpenAI)",
        "  id ← id",
        "  messages ← messages",
        "  metadata, not trained on: source, score",
    ]
    chat = read_record(record, form, Reading(), Dropping())
    assert (chat.id, chat.rest) == ("x", {"source": "web", "score": 1.5})


@pytest.mark.parametrize(
    "record", [{"text": "x"}, {"messages": None, "prompt": "x"}, "text", 1, None, {}, {"messages": []}]
)
def test_a_first_record_of_no_known_form_stops_with_its_keys(record: Any) -> None:
    with pytest.raises(
        SourceError, match=r"no known form of chat data(.|\n)*where: here\n  remedy: give records such as"
    ):
        recognise(record, key_map(()), "here")


@pytest.mark.parametrize("pair", ["query", "=x", "role=x", "x=query"])
def test_a_map_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(SpanloomError, match="--map takes MEANING=KEY"):
        key_map([pair])


@pytest.mark.parametrize(("value", "identity"), [("a", "a"), (7, "7"), (0, "0"), (None, None), ("", None)])
def test_ids_are_text_or_whole_numbers(value: Any, identity: str | None) -> None:
    record = messages(USER, ANSWER, id=value)
    chat = read_record(record, recognise(record, key_map(()), "here"), Reading(), Dropping())
    assert chat.id == identity


# --- Tools -----------------------------------------------------------------------------------------------------------


def test_a_conversation_with_a_call_renders_as_openai_harmony_makes_it(encoding: HarmonyEncoding) -> None:
    record = messages(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Ulm?"},
        {"role": "assistant", "content": "One moment.", "reasoning_content": "Ask.", "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"sun": true}'},
        {"role": "assistant", "content": "Sunny.", "reasoning_content": "It shines."},
        {"role": "user", "content": "And tomorrow?"},
        {"role": "assistant", "content": "I cannot know."},
        tools=[TOOL],
    )
    fields = SystemFields(
        model_identity="You are Loom.", reasoning_effort="Low", start_date="2026-01-31", knowledge_cutoff="2025-01"
    )
    dropping = Dropping()
    chat = read_record(record, recognise(record, key_map(()), "here"), Reading(), dropping)
    ours = harmony_messages(arranged(chat, Arrangement(settings=fields.settings), dropping))
    assistant = Author(role=Role.ASSISTANT)
    theirs = Conversation.from_messages(
        [
            Message.from_role_and_content(
                Role.SYSTEM,
                SystemContent(
                    model_identity="You are Loom.", reasoning_effort="Low", conversation_start_date="2026-01-31"
                )
                .with_knowledge_cutoff("2025-01")
                .with_required_channels(["analysis", "commentary", "final"]),
            ),
            Message.from_role_and_content(
                Role.DEVELOPER,
                DeveloperContent.new()
                .with_instructions("Be brief.")
                .with_function_tools([ToolDescription.new("weather", "The weather now.", parameters=PARAMETERS)]),
            ),
            Message.from_role_and_content(Role.USER, "Weather in Ulm?"),
            Message.from_author_and_content(assistant, "Ask.").with_channel("analysis"),
            Message.from_author_and_content(assistant, "One moment.").with_channel("commentary"),
            Message.from_author_and_content(assistant, '{"city": "Ulm"}')
            .with_channel("commentary")
            .with_recipient("functions.weather")
            .with_content_type("<|constrain|>json"),
            Message.from_author_and_content(Author.new(Role.TOOL, "functions.weather"), '{"sun": true}')
            .with_channel("commentary")
            .with_recipient("assistant"),
            Message.from_author_and_content(assistant, "It shines.").with_channel("analysis"),
            Message.from_author_and_content(assistant, "Sunny.").with_channel("final"),
            Message.from_role_and_content(Role.USER, "And tomorrow?"),
            Message.from_author_and_content(assistant, "I cannot know.").with_channel("final"),
        ]
    )
    config = RenderConversationConfig(auto_drop_analysis=False)
    rendered = [
        encoding.render_conversation_for_training(conversation, config)
        for conversation in (Conversation.from_json(json.dumps({"messages": ours})), theirs)
    ]
    assert encoding.decode_utf8(rendered[0]) == encoding.decode_utf8(rendered[1])
    assert rendered[0] == rendered[1]


ONE_CALL = [
    said("user", "Q"),
    called("weather", '{"city": "Ulm"}'),
    answered("weather", "sun"),
    said("assistant", "A", "final"),
]


@pytest.mark.parametrize(
    "turns",
    [
        ({"role": "assistant", "tool_calls": [call()]}, {"role": "tool", "tool_call_id": "c1", "content": "sun"}),
        (
            {"role": "assistant", "content": "", "tool_calls": [call()]},
            {"role": "tool", "name": "weather", "content": "sun"},
        ),
        (
            {"role": "assistant", "content": "\n", "tool_calls": [call()]},
            {"role": "tool", "content": [{"text": "sun"}]},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"name": "weather", "arguments": {"city": "Ulm"}}]},
            {"role": "tool", "content": "sun"},
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "weather", "arguments": '{"city": "Ulm"}'},
            },
            {"role": "function", "name": "weather", "content": "sun"},
        ),
        (
            {"role": "assistant", "tool_calls": [call("functions.weather")]},
            {"role": "tool", "name": "functions.weather", "content": "sun"},
        ),
        (
            {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Ulm"}}'},
            {"from": "observation", "value": "sun"},
        ),
    ],
)
def test_a_call_and_its_result_in_every_form(turns: tuple[dict[str, Any], ...]) -> None:
    assert convert(messages(USER, *turns, ANSWER)) == ONE_CALL


@pytest.mark.parametrize(
    "tools",
    [
        [TOOL],
        [TOOL["function"]],
        json.dumps([TOOL]),
        [json.dumps(TOOL)],
        [{"type": "function", **TOOL["function"]}],  # type: ignore[dict-item]
        [{"function": {**TOOL["function"], "parameters": json.dumps(PARAMETERS)}}],  # type: ignore[dict-item]
    ],
)
@pytest.mark.parametrize("key", ["tools", "functions"])
def test_definitions_of_tools_in_every_form(tools: Any, key: str) -> None:
    developer, *_ = convert(messages(USER, ANSWER, **{key: tools}))
    described = {"name": "weather", "description": "The weather now.", "parameters": PARAMETERS}
    assert developer["content"] == [
        {"type": "developer_content", "tools": {"functions": {"name": "functions", "tools": [described]}}}
    ]


TWO_CALLS = {
    "role": "assistant",
    "reasoning": "R",
    "tool_calls": [call(), call(arguments='{"city": "Bonn"}', identity="c2")],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "c2", "content": "rain"},
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
]


def test_parameters_that_are_not_rendered_are_counted_by_the_keys_of_schemas() -> None:
    """Of types that JSON Schema does not have, or none, openai-harmony writes `any`."""
    untyped = {"city": {"type": "str", "description": "Where"}, "day": {"type": "str"}}
    typed = {"type": "dict", "properties": untyped}
    strict = {**PARAMETERS, "additionalProperties": False, "$schema": "x"}
    assert Counter(key for schema in (untyped, typed, strict) for key in not_rendered_keys(schema)) == {
        "parameters.other": 3,
        "parameters.properties": 1,
        "parameters.additionalProperties": 1,
    }


def test_calls_at_once_are_refused_or_put_in_turn_with_their_results() -> None:
    record = messages(USER, TWO_CALLS, *RESULTS, ANSWER)
    assert refusal(record) == (
        Refusal.TOOL_CALLS_PARALLEL,
        "message 1 makes 2 calls at once; Harmony has one at a time",
        "--calls-in-turn writes parallel calls one after the other, each with its result",
    )
    assert convert(record, in_turn=True) == [
        said("user", "Q"),
        said("assistant", "R", "analysis"),
        called("weather", '{"city": "Ulm"}'),
        answered("weather", "sun"),
        called("weather", '{"city": "Bonn"}'),
        answered("weather", "rain"),
        said("assistant", "A", "final"),
    ]


@pytest.mark.parametrize("results", [[], RESULTS[:1]])
def test_calls_at_once_without_a_result_each_are_refused_even_in_turn(results: list[dict[str, Any]]) -> None:
    assert refusal(messages(USER, TWO_CALLS, *results, ANSWER), in_turn=True)[0] is Refusal.TOOL_CALLS_PARALLEL


def test_calls_that_are_the_text_of_nothing_are_none() -> None:
    for nothing in ("null", "[]", "", None, []):
        assert convert(messages(USER, {**ANSWER, "tool_calls": nothing})) == [*PLAIN[:1], *PLAIN[2:]]


def test_a_conversation_may_end_with_a_call() -> None:
    assert convert(messages(USER, {"role": "assistant", "tool_calls": [call()]})) == ONE_CALL[:2]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("{", Refusal.TOOL_CALL_INVALID),
        ("[1]", Refusal.TOOL_CALL_INVALID),
        ('{"a": 1, "a": 2}', Refusal.TOOL_CALL_INVALID),
        ([1], Refusal.TOOL_CALL_INVALID),
    ],
)
def test_arguments_that_are_no_json_object_are_refused(arguments: Any, reason: Refusal) -> None:
    assert refusal(messages(USER, {"role": "assistant", "tool_calls": [call(arguments=arguments)]}))[0] is reason


@pytest.mark.parametrize("arguments", ["", " ", None, {}])
def test_a_call_without_arguments_has_an_empty_object(arguments: Any) -> None:
    said = convert(messages(USER, {"role": "assistant", "tool_calls": [call(arguments=arguments)]}))
    assert said[1] == called("weather", "{}")


def test_arguments_stay_as_they_are_written() -> None:
    written = '{ "city":"M\\u00fcnchen",  "n": 1e2 }'
    assert convert(messages(USER, {"role": "assistant", "tool_calls": [call(arguments=written)]}))[1] == called(
        "weather", written
    )


@pytest.mark.parametrize("name", ["", "a b", "x<|end|>", None, 1, "functions."])
def test_a_name_that_would_end_its_header_is_refused(name: Any) -> None:
    assert refusal(messages(USER, {"role": "assistant", "tool_calls": [call(name)]}))[0] is Refusal.TOOL_CALL_INVALID
    assert refusal(messages(USER, ANSWER, tools=[{"name": name}]))[0] is Refusal.TOOLS_INVALID


@pytest.mark.parametrize(
    "result",
    [
        {"role": "tool", "tool_call_id": "other", "content": "x"},
        {"role": "tool", "tool_call_id": "c1", "name": "other", "content": "x"},
        {"role": "tool", "name": "other", "content": "x"},
        {"role": "tool", "tool_call_id": 1, "content": "x"},
    ],
)
def test_a_result_that_belongs_to_no_call_is_refused(result: dict[str, Any]) -> None:
    asked = {"role": "assistant", "tool_calls": [call()]}
    assert refusal(messages(USER, asked, result, ANSWER))[0] is Refusal.TOOL_RESULT_UNMATCHED
    twice = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    assert refusal(messages(USER, asked, twice, twice, ANSWER))[0] is Refusal.TOOL_RESULT_UNMATCHED


# --- Reasoning in tags -----------------------------------------------------------------------------------------------

TAGGED = "<think>\nR\n</think>\n\nA"


@pytest.mark.parametrize("text", [TAGGED, "R</think>A", "\n<think>R</think>A"])
def test_reasoning_in_tags_is_refused_taken_dropped_or_kept(text: str) -> None:
    record = messages(USER, {"role": "assistant", "content": text})
    reason, detail, remedy = refusal(record)
    assert (reason, detail) == (
        Refusal.THINK_TAGS,
        "message 1 holds <think> or </think>, which would be trained as text of the answer",
    )
    assert remedy is not None
    assert "--think-tags" in remedy
    assert convert(record, think_tags=True) == PLAIN
    assert convert(record, think_tags=False) == [said("user", "Q"), said("assistant", text, "final")]
    dropping = Dropping(names=frozenset({"think"}))
    assert convert(record, dropping=dropping) == [PLAIN[0], PLAIN[2]]
    assert (dropping.counts, dropping.characters) == ({"think": 1}, {"think": 1})


def test_empty_tags_are_no_reasoning() -> None:
    assert convert(messages(USER, {"role": "assistant", "content": "<think>\n\n</think>\n\nA"}), think_tags=True) == [
        PLAIN[0],
        PLAIN[2],
    ]


@pytest.mark.parametrize(
    "text", ["<think>R", "A <think>R</think> B", "<think>R</think>A</think>", "<think>a<think>b</think>A"]
)
def test_tags_that_do_not_stand_around_reasoning_are_refused(text: str) -> None:
    assert (
        refusal(messages(USER, {"role": "assistant", "content": text}), think_tags=True)[0]
        is Refusal.THINK_TAGS_UNCLEAR
    )


def test_tags_of_a_user_are_text() -> None:
    assert convert(messages({"role": "user", "content": TAGGED}, ANSWER))[0] == said("user", TAGGED)
