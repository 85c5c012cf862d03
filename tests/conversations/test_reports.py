"""Records in shapes that people reported: each is understood, refused or counted.

In: files of `tests/cases/reports`, and more of the same kinds in here. Their right values are stated in
`docs/convert.md` and in the public reports that they follow; none comes from the code under test.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.conversations.conversation import Conversation
from spanloom.conversations.outcomes import LeftAway, Read, Rejected
from spanloom.conversations.turns import Refusal
from spanloom.errors import SourceError, SpanloomError
from spanloom.families.harmony.convert.chat import conversations
from spanloom.families.harmony.convert.chat_input import open_chat, remedy_of
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted, Converter
from spanloom.records.record_files import read_records
from support.cases import cases_of
from support.read_chats import ANSWER, USER

REPORTS = cases_of("reports")
WORD = {"type": "object", "properties": {"word": {"type": "string"}, "max": {"type": "integer"}}, "required": ["word"]}
TOOL = {"type": "function", "function": {"name": "lookup", "description": "Look a word up", "parameters": WORD}}


def outcomes(file: Path, **options: Any) -> list[Converted | Rejected]:
    conversion = ChatConversion(**options)
    done = conversations(open_chat([file], conversion), conversion)
    return [outcome for outcome in done if not isinstance(outcome, LeftAway)]


def read(file: Path, **options: Any) -> list[Conversation]:
    done = outcomes(file, **options)
    assert [outcome for outcome in done if isinstance(outcome, Rejected)] == []
    return [outcome.conversation for outcome in done if isinstance(outcome, Converted)]


def refused(file: Path, **options: Any) -> list[tuple[str, str]]:
    """Reason and remedy of each refused record."""
    done = outcomes(file, **options)
    return [(outcome.reason, outcome.remedy or "") for outcome in done if isinstance(outcome, Rejected)]


def written(tmp_path: Path, *records: Any, name: str = "records.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


def counted(file: Path, **options: Any) -> tuple[Counter[str], Counter[str]]:
    """The counts of messages, and of what was read otherwise than it is written."""
    conversion = ChatConversion(**options)
    chat = open_chat([file], conversion)
    converter = Converter(chat.form, conversion)
    for path in chat.files:
        for where, value in read_records(path):
            converter.convert(Read(file=path.name, number=where.number, where=where, value=value))
    return converter.counts.messages, converter.counts.read_as


def calls(conversation: Conversation) -> list[tuple[str, Any]]:
    made = [call for message in conversation.messages for call in message.calls]
    return [(call.name, json.loads(call.arguments)) for call in made]


def spoken(conversation: Conversation) -> list[tuple[str, str, str]]:
    """Role, reasoning and text of each message."""
    return [
        (message.role, "".join(message.reasoning), "".join(message.texts) or f"{len(message.calls)} calls")
        for message in conversation.messages
    ]


# --- Arguments, tools ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["args_empty", "args_none"])
def test_a_call_without_arguments_has_an_empty_object(name: str) -> None:
    (conversation,) = read(REPORTS / f"{name}.jsonl")
    assert calls(conversation) == [("now", {})]


@pytest.mark.parametrize("name", ["arrow_nulls_jsonl", "ds_to_json"])
def test_nulls_of_absent_keys_are_removed_and_counted(name: str) -> None:
    for conversation in read(REPORTS / f"{name}.jsonl"):
        text = json.dumps([list(conversation.tools), calls(conversation)])
        assert "null" not in text
        properties = {tool["name"]: list(tool["parameters"]["properties"]) for tool in conversation.tools}
        assert properties in (
            {"lookup": ["word", "max"], "clock": ["zone"]},
            {"lookup": ["word", "max"]},
            {"clock": ["zone"]},
        )
    assert counted(REPORTS / f"{name}.jsonl")[1]["null_padding"] > 0


@pytest.mark.parametrize(
    ("schema", "arguments", "kept"),
    [
        ({"a": {"type": ["string", "null"]}, "b": {"type": "string"}}, {"a": None, "b": None}, {"a": None}),
        ({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, {"a": None, "z": None}, {"a": None}),
        ({"a": {"enum": ["x", None]}, "b": {}}, {"a": None, "b": None}, {"a": None, "b": None}),
        ({"a": {"type": "string", "nullable": True}}, {"a": None}, {"a": None}),
        (
            {"o": {"type": "object", "properties": {"x": {"type": "string"}}}},
            {"o": {"x": "1", "y": None}},
            {"o": {"x": "1"}},
        ),
        (
            {"l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "null"}}}}},
            {"l": [{"x": None, "y": None}]},
            {"l": [{"x": None}]},
        ),
    ],
)  # fmt: skip
def test_an_argument_that_is_null_stays_where_its_schema_allows_null(
    tmp_path: Path, schema: Any, arguments: Any, kept: Any
) -> None:
    tool = {"name": "f", "parameters": {"type": "object", "properties": schema}}
    call = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": arguments}]}
    (conversation,) = read(written(tmp_path, {"messages": [USER, call], "tools": [tool]}))
    assert calls(conversation) == [("f", kept)]
    as_text = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": json.dumps(arguments)}]}
    (conversation,) = read(written(tmp_path, {"messages": [USER, as_text], "tools": [tool]}))
    assert calls(conversation) == [("f", arguments)], "a text is no struct of Arrow: it stays"


def test_null_as_a_default_and_as_a_choice_stays(tmp_path: Path) -> None:
    schema = {"a": {"type": ["string", "null"], "default": None, "enum": ["x", None], "items": None}, "default": None}
    tool = {"name": "f", "parameters": {"type": "object", "properties": schema}}
    (conversation,) = read(written(tmp_path, {"messages": [USER, ANSWER], "tools": [tool]}))
    assert conversation.tools[0]["parameters"]["properties"] == {
        "a": {"type": ["string", "null"], "default": None, "enum": ["x", None]}
    }


def test_columns_of_json_are_their_values(tmp_path: Path) -> None:
    first, second = read(REPORTS / "dsj.parquet")
    assert calls(first) == [("search", {"kind": "ant", "value": 5, "opts": {"deep": True}})]
    assert calls(second) == [("search", {"kind": "bee", "value": "five", "opts": ["x", "y"]})]
    assert first.tools[0]["parameters"]["properties"] == {"word": {"type": "string"}, "max": {"type": "integer"}}
    json_type = pa.json_()
    plain = pa.array(["[1, null]", None, '{"a": {"b": null}}'])
    column = pa.ExtensionArray.from_storage(json_type, plain)
    table = pa.table({"messages": pa.array([json.dumps([USER, ANSWER])] * 3), "extra": column})
    pq.write_table(table, tmp_path / "a.parquet")
    metadata = [json.loads(done.row["metadata_json"]) for done in outcomes(tmp_path / "a.parquet")]  # type: ignore[union-attr]
    assert [each.get("record") for each in metadata] == [{"extra": [1, None]}, None, {"extra": {"a": {"b": None}}}]
    broken = pa.ExtensionArray.from_storage(json_type, pa.array(["{"]))
    pq.write_table(pa.table({"messages": broken}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match="a text in a column of JSON"):
        open_chat([tmp_path / "b.parquet"], ChatConversion())


@pytest.mark.parametrize("name", ["tool_defs", "tool_schemas"])
def test_definitions_of_tools_under_other_names_are_the_tools(name: str) -> None:
    for conversation in read(REPORTS / f"{name}.jsonl"):
        assert [tool["name"] for tool in conversation.tools] == ["lookup"]


@pytest.mark.parametrize("key", ["function_definitions", "tool_schema", "functions", "available_tools"])
def test_tools_are_read_where_the_usual_key_is_null(tmp_path: Path, key: str) -> None:
    for value in ([TOOL], json.dumps([TOOL])):
        (conversation,) = read(written(tmp_path, {"messages": [USER, ANSWER], "tools": None, key: value}))
        assert [tool["name"] for tool in conversation.tools] == ["lookup"]


@pytest.mark.parametrize("key", ["env_tools", "api_list", "tool_specs"])
def test_a_key_that_looks_like_tools_is_asked_about(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, {"messages": [USER, ANSWER], key: [TOOL]})
    ((reason, remedy),) = refused(file)
    assert (reason, f"--map tools={key}" in remedy) == ("tools_invalid", True)
    assert [tool["name"] for tool in read(file, maps=(f"tools={key}",))[0].tools] == ["lookup"]
    assert read(written(tmp_path, {"messages": [USER, ANSWER], key: ["a", 1]}))[0].tools == ()


def test_calls_of_tools_that_are_not_declared_are_counted(tmp_path: Path) -> None:
    assert counted(REPORTS / "undeclared_call.jsonl")[0]["calls_undeclared"] == 1
    call = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]}
    assert counted(written(tmp_path, {"messages": [USER, call]}))[0]["calls_without_tools"] == 2
    both = [{"name": "f"}, {"name": "g"}]
    assert "calls_undeclared" not in counted(written(tmp_path, {"messages": [USER, call], "tools": both}))[0]


# --- Messages in a row, roles of calls -------------------------------------------------------------------------------


def test_parts_of_one_message_are_one_message() -> None:
    (conversation,) = read(REPORTS / "tool_call_role.jsonl", think_tags=True)
    assert spoken(conversation)[3:] == [
        ("assistant", "Two words.", "2 calls"),
        ("tool", "", "insect A"),
        ("tool", "", "insect B"),
        ("assistant", "Done.", "Both are insects."),
    ]
    (conversation,) = read(REPORTS / "tool_call_role_name.jsonl", think_tags=True)
    assert calls(conversation) == [("lookup", {"word": "ant"})]
    assert spoken(conversation)[1] == ("assistant", "One word.", "1 calls")
    (conversation,) = read(REPORTS / "function_call_thought.jsonl", think_tags=True)
    assert spoken(conversation)[1] == ("assistant", "I look.", "1 calls")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('Let me see.\n{"name": "lookup", "arguments": {"word": "ant"}}', "Let me see."),
        ('<tool_call>{"name": "lookup", "arguments": {"word": "ant"}}</tool_call>', ""),
        ('[{"name": "lookup", "arguments": "{\\"word\\": \\"ant\\"}"}]', ""),
        ('{"function": {"name": "lookup", "parameters": {"word": "ant"}}}', ""),
    ],
)
def test_a_text_of_calls_ends_in_its_calls(tmp_path: Path, text: str, said: str) -> None:
    turns = [{"from": "human", "value": "Q"}, {"from": "function_call", "value": text}]
    (conversation,) = read(written(tmp_path, {"conversations": turns}))
    assert calls(conversation) == [("lookup", {"word": "ant"})]
    assert "".join(conversation.messages[1].texts) == said
    turns[1] = {"from": "function_call", "value": text + " and more"}
    ((reason, _),) = refused(written(tmp_path, {"conversations": turns}))
    assert reason in ("tool_call_invalid", "markup_unclear")


@pytest.mark.parametrize(
    ("written_calls", "made"),
    [
        ('lookup(word="ant")', [("lookup", {"word": "ant"})]),
        (
            'lookup(word="ant")\nlookup(word="bee", max=2)',
            [("lookup", {"word": "ant"}), ("lookup", {"word": "bee", "max": 2})],
        ),
        ('[{"name": "lookup", "arguments": {"word": "ant"}}]', [("lookup", {"word": "ant"})]),
    ],
)  # fmt: skip
def test_tools_and_calls_of_olmo_are_read(tmp_path: Path, written_calls: str, made: list[Any]) -> None:
    record = {
        "messages": [
            {"role": "system", "content": "Be brief.", "functions": json.dumps([TOOL["function"]])},
            {"role": "user", "content": "Define ant.", "functions": None, "function_calls": None},
            {"role": "assistant", "content": None, "function_calls": written_calls},
            {"role": "environment", "content": "insect"},
            {"role": "assistant", "content": "An insect.", "function_calls": None},
        ]
    }
    (conversation,) = read(written(tmp_path, record))
    assert calls(conversation) == made
    assert [tool["name"] for tool in conversation.tools] == ["lookup"]
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant", "tool", "assistant"]


def test_two_lists_of_tools_are_refused(tmp_path: Path) -> None:
    other = [{"name": "clock"}]
    record = {"messages": [{"role": "system", "content": "S", "functions": other}, USER, ANSWER], "tools": [TOOL]}
    assert [reason for reason, _ in refused(written(tmp_path, record))] == ["tools_invalid"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (["noon", "one"], '["noon", "one"]'),
        ([{"a": 1}, {"a": 2}], '[{"a": 1}, {"a": 2}]'),
        ([1, None], "[1, null]"),
        (7, "7"),
        ({"a": [1]}, '{"a": [1]}'),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"text": "a"}], "a"),
    ],
)
def test_a_result_that_is_a_list_is_json(tmp_path: Path, result: Any, text: str) -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}
    tool = {"role": "tool", "tool_call_id": "c", "content": result}
    (conversation,) = read(written(tmp_path, {"messages": [USER, call, tool, ANSWER]}))
    assert "".join(conversation.messages[2].texts) == text
    block = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": result}]}
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    if not isinstance(result, int):
        (conversation,) = read(written(tmp_path, {"messages": [USER, use, block, ANSWER]}))
        assert "".join(conversation.messages[2].texts) == text


# --- Answers, reasoning ----------------------------------------------------------------------------------------------


def test_the_completion_is_trained_and_not_the_truth() -> None:
    (conversation,) = read(REPORTS / "completion_list_answer_differs.jsonl")
    assert spoken(conversation)[-1] == ("assistant", "", "I think 5.")
    (conversation,) = read(REPORTS / "tool_defs.jsonl")
    assert spoken(conversation)[-1] == ("assistant", "", "An insect.")


@pytest.mark.parametrize("key", ["completion", "output", "response"])
def test_messages_beside_a_text_are_no_metadata(tmp_path: Path, key: str) -> None:
    record = {"question": "2+2?", "answer": "4", key: [{"role": "assistant", "content": "I think 5."}]}
    file = written(tmp_path, record)
    done = outcomes(file)[0]
    if isinstance(done, Converted):
        assert spoken(done.conversation)[-1][2] == "I think 5."
    else:
        assert done.reason == "answer_beside"
        assert f"--map answer={key}" in (done.remedy or "")
        assert spoken(read(file, maps=(f"answer={key}",))[0])[-1][2] == "I think 5."


def test_columns_of_reasoning_are_read_or_refused() -> None:
    done = outcomes(REPORTS / "cols_reasoning.jsonl")
    for outcome in done:
        if isinstance(outcome, Converted):
            assert spoken(outcome.conversation) == [("user", "", "hi"), ("assistant", "I greet.", "yo")]
        else:
            assert outcome.reason == "answer_beside"
            key = next(key for key in outcome.read.value if key not in ("question", "answer"))
            assert f"--map reasoning={key}" in (outcome.remedy or "")
            assert f"--metadata {key}" in (outcome.remedy or "")
    assert len(done) == 10


@pytest.mark.parametrize("key", ["reasoning", "thinking", "cot", "think", "model_reasoning", "chainOfThought"])
def test_reasoning_beside_messages_is_asked_about(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, {"messages": [USER, ANSWER], key: "I add them."})
    ((reason, remedy),) = refused(file)
    assert (reason, f"--map reasoning={key}" in remedy) == ("answer_beside", True)
    assert spoken(read(file, maps=(f"reasoning={key}",))[0])[-1] == ("assistant", "I add them.", "A")
    assert spoken(read(file, metadata=(key,))[0])[-1] == ("assistant", "", "A")


@pytest.mark.parametrize(
    "beside",
    [
        {"reasoning": "on"}, {"thinking": True}, {"reasoning_tokens": 12}, {"cot_type": "long chain"},
        {"reasoning": ""}, {"reasoning_model": "a b"}, {"thinking_budget": 5}, {"rationale": "A"},
    ],
)  # fmt: skip
def test_facts_about_reasoning_are_metadata(tmp_path: Path, beside: Any) -> None:
    assert spoken(read(written(tmp_path, {"messages": [USER, ANSWER], **beside}))[0])[-1] == ("assistant", "", "A")


def test_reasoning_that_the_messages_hold_is_metadata(tmp_path: Path) -> None:
    thoughtful = {"role": "assistant", "content": "A", "reasoning_content": "I add them."}
    record = {"messages": [USER, thoughtful], "reasoning": "I add them."}
    assert spoken(read(written(tmp_path, record))[0])[-1] == ("assistant", "I add them.", "A")


# --- Flags, ends -----------------------------------------------------------------------------------------------------


def test_a_flag_by_another_name_is_honoured_and_no_remedy_drops_it(tmp_path: Path) -> None:
    (conversation,) = read(REPORTS / "trainable_flag.jsonl")
    assert [message.trained for message in conversation.messages if message.role == "assistant"] == [False, True]
    for flag in ("trainable", "loss_mask", "step_loss_mask"):
        with pytest.raises(SpanloomError, match="would train what is marked"):
            ChatConversion(drop=(flag,))
    for name in ("use_for_training", "is_supervised", "learnable", "mask_out"):
        file = written(tmp_path, {"messages": [USER, {**ANSWER, name: False}]})
        ((reason, remedy),) = refused(file)
        assert reason == "weight_zero"
        assert "--drop" not in remedy
        assert f"--map trained={name}" in remedy
        assert refused(file, maps=(f"trained={name}",)) == [
            ("nothing_trained", "--max-rejects 100% sets such records aside")
        ]


@pytest.mark.parametrize("flag", ["loss_mask", "train", "step_loss_mask"])
def test_flags_of_a_record_that_name_its_messages_are_refused(tmp_path: Path, flag: str) -> None:
    for value in ([0, 1], False, 0):
        ((reason, remedy),) = refused(written(tmp_path, {"messages": [USER, ANSWER], flag: value}))
        assert reason == "label_unclear"
        assert "--metadata" not in remedy
        assert "--drop" not in remedy


@pytest.mark.parametrize("key", ["functionCalls", "toolUses", "actions", "invocations"])
def test_no_remedy_loses_a_call(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, {"messages": [USER, {**ANSWER, key: [{"name": "f", "arguments": {}}]}]})
    ((reason, remedy),) = refused(file)
    assert reason == "key_unknown"
    assert "--drop" not in remedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("finish_reason", "length"),
        ("stop_reason", "max_tokens"),
        ("finishReason", "MAX_TOKENS"),
        ("finish_reason", "content_filter"),
        ("stop_reason", "refusal"),
        ("finishReason", "SAFETY"),
        ("finish_reason", "error"),
    ],
)
def test_an_answer_that_a_limit_cut_off_is_truncated(tmp_path: Path, key: str, value: str) -> None:
    within = {"messages": [USER, {**ANSWER, key: value}, USER, ANSWER]}
    (conversation,) = read(written(tmp_path, within))
    assert [message.truncated for message in conversation.messages] == [False, True, False, False]
    beside = ({"messages": [USER, ANSWER, USER, ANSWER], key: value}, {"prompt": "Q", "response": "A", key: value})
    for record in beside:
        (conversation,) = read(written(tmp_path, record))
        assert [message.truncated for message in conversation.messages][-1]
        assert counted(written(tmp_path, record))[0]["truncated"] == 1
        (conversation,) = read(written(tmp_path, record), drop=(key,))
        assert conversation.messages[-1].truncated, "a dropped key does not make the stop the model's"
    (conversation,) = read(written(tmp_path, {"messages": [USER, {**ANSWER, key: "stop"}]}))
    assert not conversation.messages[-1].truncated


# --- Rendered text of Harmony, markup --------------------------------------------------------------------------------


def test_an_answer_that_begins_like_harmony_stays_with_text_as_is() -> None:
    (conversation,) = read(REPORTS / "harmony_header.jsonl", text_as_is=True)
    assert spoken(conversation)[1][2] == "<|start|>assistant<|channel|>final<|message|>Hello.  "
    first, second = read(REPORTS / "harmony_header_mixed.jsonl", text_as_is=True)
    assert spoken(first)[1][2] == "<|channel|>analysis<|message|> marks a thought."
    assert spoken(second) == [("user", "", "Hi"), ("assistant", "", "Bye.")]


def test_an_answer_that_does_not_render_to_its_text_is_refused() -> None:
    assert [reason for reason, _ in refused(REPORTS / "harmony_header.jsonl")] == ["markup_unclear"]
    first, second = outcomes(REPORTS / "harmony_header_mixed.jsonl")
    assert isinstance(first, Rejected)
    assert (first.reason, "--text-as-is" in str(first.remedy)) == ("markup_unclear", True)
    assert isinstance(second, Converted)


@pytest.mark.parametrize(
    "answer",
    [
        "<|channel|>final<|message|>Hello<|return|>",
        "<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
        "<|start|>assistant<|channel|>final<|message|>Hello<|end|>",
    ],
)
def test_an_answer_that_renders_to_its_text_is_read_and_counted(tmp_path: Path, answer: str) -> None:
    record = {"messages": [USER, {"role": "assistant", "content": answer}, USER, ANSWER]}
    file = written(tmp_path, record, {"conversation": [USER, ANSWER]})
    first, second = read(file)
    assert spoken(first)[1][2] == "Hello"
    assert spoken(first)[1][1] == ("Greet." if "analysis" in answer else "")
    assert len(second.messages) == 2
    assert counted(file)[1]["rendered_harmony"] == 1
    for changed in (answer.replace("Hello", "Hello") + " more", answer[:-2], answer.replace("final", "last")):
        record["messages"][1] = {"role": "assistant", "content": changed}
        assert [reason for reason, _ in refused(written(tmp_path, record))] == ["markup_unclear"]
        assert spoken(read(written(tmp_path, record), text_as_is=True)[0])[1][2] == changed


def test_gemmas_thought_is_refused_or_read() -> None:
    file = REPORTS / "gemma4_thought.jsonl"
    assert [reason for reason, _ in refused(file)] == ["think_tags"]
    assert spoken(read(file, think_tags=True)[0])[-1] == ("assistant", "Add them.", "The answer is 4.")


# --- Files -----------------------------------------------------------------------------------------------------------


def test_an_array_over_lines_is_read(tmp_path: Path) -> None:
    assert spoken(read(REPORTS / "array_multi.jsonl")[0]) == [("user", "", "a"), ("assistant", "", "b")]
    record = {"messages": [USER, ANSWER]}
    for number, text in enumerate(
        (
            json.dumps([record, record], indent=1),
            f"[{json.dumps(record)},\n{json.dumps(record)}]",
            f"[\n{json.dumps(record)}\n]\n",
        )
    ):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(text)
        assert {len(each.messages) for each in read(path)} == {2}
    lists = tmp_path / "lists.jsonl"
    lists.write_text(json.dumps(record["messages"]) + "\n" + json.dumps(record["messages"]) + "\n")
    assert len(read(lists)) == 2, "a list of messages a line is JSON Lines"


def test_commas_between_lines_have_a_remedy_that_works_when_pasted(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as stopped:
        open_chat([REPORTS / "line_commas.jsonl"], ChatConversion())
    command = str(stopped.value.remedy).partition(" takes")[0]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert len(read(tmp_path / "records.jsonl")) == 2


@pytest.mark.parametrize(
    "line",
    ['{"prompt": "Q", "response": "A", "score": NaN}', "{'prompt': 'Q', 'response': 'A', 'score': None, 'ok': True}"],
    ids=["NaN", "a dict of Python"],
)
def test_lines_that_python_writes_have_a_remedy_that_works_when_pasted(tmp_path: Path, line: str) -> None:
    (tmp_path / "chat.jsonl").write_text(f"{line}\n" * 2)
    with pytest.raises(SourceError, match="the line is not JSON: it ") as stopped:
        open_chat([tmp_path / "chat.jsonl"], ChatConversion())
    command = str(stopped.value.remedy).partition(" writes ")[0]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert len(read(tmp_path / "records.jsonl")) == 2


def test_a_file_beside_the_data_is_named_with_the_files_to_give() -> None:
    chat = open_chat([REPORTS / "sidecars_json"], ChatConversion())
    done = next(iter(conversations(chat, ChatConversion())))
    assert isinstance(done, Rejected)
    remedy = remedy_of(done, chat)
    assert remedy == f"the file holds no chat data: name those that do: {REPORTS / 'sidecars_json/train.json'}"
    assert len(read(REPORTS / "sidecars_json/train.json")) == 1


def test_messages_within_a_request_are_read() -> None:
    (conversation,) = read(REPORTS / "nested_input.jsonl")
    assert [role for role, _, _ in spoken(conversation)] == ["system", "user", "assistant", "user", "assistant"]
    assert spoken(conversation)[-1][2] == "<followup>();"


@pytest.mark.parametrize(
    "form", sorted(path.name for path in (Path(__file__).parents[2] / "docs/examples/forms").glob("*.jsonl"))
)
def test_records_of_any_form_in_one_file_end_in_no_traceback(tmp_path: Path, form: str) -> None:
    folder = Path(__file__).parents[2] / "docs/examples/forms"
    others = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()[:1]]
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([*(folder / form).read_text("utf-8").splitlines()[:1], *others]), "utf-8")
    conversion = ChatConversion(think_tags=True, text_as_is=True)
    assert len(list(conversations(open_chat([path], conversion), conversion))) == len(others) + 1
    assert Refusal.UNREADABLE not in [reason for reason, _ in refused(path, think_tags=True, text_as_is=True)]


def test_an_array_on_one_line_has_a_remedy_that_works_when_pasted(tmp_path: Path) -> None:
    record = {"messages": [USER, ANSWER]}
    path = written(tmp_path, [record, record])
    with pytest.raises(SourceError) as stopped:
        open_chat([path], ChatConversion())
    subprocess.run(["bash", "-c", str(stopped.value.remedy).partition(" makes")[0]], cwd=tmp_path, check=True)
    assert len(read(tmp_path / "records.json")) == 2


@pytest.mark.parametrize("key", ["thoughts", "CoT", "modelCoT", "reasoning-trace", "thinking_process"])
def test_reasoning_by_any_spelling_is_asked_about(tmp_path: Path, key: str) -> None:
    for value in ("I add them.", ["I add them."]):
        file = written(tmp_path, {"question": "Q", "answer": "A", key: value})
        ((reason, remedy),) = refused(file)
        assert (reason, f"--map reasoning={key}" in remedy) == ("answer_beside", True)
        assert spoken(read(file, maps=(f"reasoning={key}",))[0])[-1] == ("assistant", "I add them.", "A")
    ((_, remedy),) = refused(written(tmp_path, {"question": "Q", "answer": "A", key: ["a b", "c d"]}))
    assert "--map reasoning" not in remedy, "it would be refused"


def test_an_end_within_metadata_counts(tmp_path: Path) -> None:
    for extra in (
        {"response_metadata": {"finish_reason": "length"}},
        {"truncated": True},
        {"stop_reason": "MAX_TOKENS"},
    ):
        conversation = ChatConversion(drop=("response_metadata",))
        chat = open_chat([written(tmp_path, {"messages": [USER, {**ANSWER, **extra}]})], conversation)
        (done,) = conversations(chat, conversation)
        assert isinstance(done, Converted)
        assert done.conversation.messages[1].truncated
