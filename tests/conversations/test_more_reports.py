"""More records in shapes that people reported: each is understood, refused or counted.

In: files of `tests/cases/reports/more`. Their right values are those of the public reports that they follow: what a
record excludes is not trained, what an answer needs is not metadata, and no remedy loses either.
"""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.conversation import Conversation
from spanloom.conversations.outcomes import LeftAway, Rejected
from spanloom.errors import SourceError
from spanloom.families.harmony.convert.chat import conversations
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted
from support.cases import cases_of
from support.read_chats import ANSWER, USER

MORE = cases_of("reports") / "more"


def case(name: str) -> Path:
    return MORE / f"{name}.jsonl"


def written(tmp_path: Path, record: Any) -> Path:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", "utf-8")
    return path


def outcomes(file: Path, **options: Any) -> list[Any]:
    conversion = ChatConversion(**options)
    return list(conversations(open_chat([file], conversion), conversion))


def read(file: Path, **options: Any) -> list[Conversation]:
    done = outcomes(file, **options)
    assert all(isinstance(outcome, Converted) for outcome in done), done
    return [outcome.conversation for outcome in done]


def refused(file: Path, **options: Any) -> list[tuple[str, str]]:
    """Reason and remedy of each record; all are refused."""
    done = outcomes(file, **options)
    assert all(isinstance(outcome, Rejected) for outcome in done), done
    return [(outcome.reason, outcome.remedy or "") for outcome in done]


def the_refusal(name: str) -> tuple[str, str]:
    """Reason and remedy of the one record of a file, which is refused."""
    (refusal,) = refused(case(name))
    return refusal


def file_of(record: str | dict[str, Any], tmp_path: Path) -> Path:
    return case(record) if isinstance(record, str) else written(tmp_path, record)


def beside(**keys: Any) -> dict[str, Any]:
    return {"messages": [USER, ANSWER], **keys}


def within(*more: Any, **keys: Any) -> dict[str, Any]:
    return {"messages": [USER, {**ANSWER, **keys}, *more]}


# --- Refusals whose remedies lose nothing ----------------------------------------------------------------------------

NO_DROP = ("--drop",)
NO_METADATA = ("--metadata", "--drop")
MAY_CALL = ("server_tool_use", "tool-call", "functionCall", "web_search_tool_result")
FLAGS = {"should_train": "no", "supervise": "none", "weights": 0, "loss_masks": [0, 1], "masking": ["yes"]}
REFUSED: list[tuple[str | dict[str, Any], str, tuple[str, ...]]] = [
    # a file or a record, why it is refused, what no remedy says
    ("rec_mask", "label_unclear", NO_METADATA),
    ("rec_ignore_loss", "label_unclear", NO_METADATA),
    ("rec_loss_masks_pl", "label_unclear", NO_METADATA),
    ("rec_masks_pl", "label_unclear", NO_METADATA),
    ("rec_train_turns", "label_unclear", NO_METADATA),
    ("rec_last_only", "label_unclear", NO_METADATA),
    ({"messages": [USER, ANSWER, USER, ANSWER], "train_indices": [3]}, "label_unclear", ()),
    ("msg_skip", "weight_zero", NO_DROP),
    ("msg_enabled", "weight_zero", NO_DROP),
    *((within(USER, ANSWER, **{key: value}), "weight_zero", NO_DROP) for key, value in FLAGS.items()),
    (within(ANSWER, truncated=True), "assistant_after_answer", ("--join-consecutive",)),
    (within(tool_calls=[{"name": "f", "arguments": {}, "args": {"n": 5}}]), "tool_call_invalid", NO_DROP),
    *(
        (within(content=[{"type": "text", "text": "A"}, {"type": kind, "id": "c", "name": "f", "input": {"n": 5}}]),
         "part_unknown", NO_DROP)
        for kind in MAY_CALL
    ),
    ({"messages": [USER, {"role": "actions", "content": "lookup('ant')"}, ANSWER]}, "role_unknown", NO_DROP),
    ("lc_kwargs", "key_unknown", NO_DROP),
    ("recipient", "key_unknown", NO_DROP),
    ("call_result_inside", "key_unknown", NO_DROP),
    ("content_strs", "content_not_text", ()),  # texts in a list are not glued
    ("sg_value_strs", "content_not_text", ()),
    ("multi_gen", "answer_beside", ()),
    ("resp_list", "answer_beside", ()),
    ("img_media", "media", ()),
]  # fmt: skip


@pytest.mark.parametrize(("record", "reason", "unsaid"), REFUSED)
def test_no_remedy_loses_what_a_record_says(
    tmp_path: Path, record: str | dict[str, Any], reason: str, unsaid: tuple[str, ...]
) -> None:
    ((given, remedy),) = refused(file_of(record, tmp_path))
    assert given == reason
    assert [option for option in unsaid if option in remedy] == []
    assert ("--map masked=" in remedy) or record not in ("msg_skip", "msg_enabled")


@pytest.mark.parametrize(
    "record",
    [
        *(beside(attention_mask=[1, 0]), beside(mask=False), beside(train=True), beside(masks="text")),
        beside(reasoning={"effort": "high", "summary": "auto"}, thinking={"type": "enabled", "budget_tokens": 5}),
        {"question": "Q", "answer": "A", "c": "text"},  # one letter is no choice
    ],
)
def test_what_excludes_and_adds_nothing_is_metadata(tmp_path: Path, record: dict[str, Any]) -> None:
    assert len(read(written(tmp_path, record))) == 1


@pytest.mark.parametrize("name", ["kto_undesirable", "kto_rejected"])
def test_a_label_in_words_leaves_the_record_out(name: str) -> None:
    assert [type(done) for done in outcomes(case(name))] == [LeftAway]


def test_a_label_of_minus_one_is_asked_about() -> None:
    assert the_refusal("kto_m1")[0] == "label_unclear"
    assert [type(done) for done in outcomes(case("kto_m1"), maps=("preferred=label",))] == [LeftAway]


# --- Cut-off answers -------------------------------------------------------------------------------------------------


RESPONSE = {"input": "Q", "output": [{"type": "message", "role": "assistant", "content": "A"}]}
CUT_OFF = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
CUT = ("fr_mcwe", "fr_trunc", "fr_rec_trunc", "fr_verif", "fr_list", "prefill", "fr_abort")


@pytest.mark.parametrize(
    ("record", "truncated"),
    [
        *((name, [False, True]) for name in CUT),
        ("msg_eot", [False, True, False, False]),  # without its end of turn
        ({**RESPONSE, **CUT_OFF}, [False, True]),
        (beside(status="incomplete"), [False, True]),
        (within(**CUT_OFF), [False, True]),
        (within(incomplete_details=CUT_OFF["incomplete_details"]), [False, True]),
        ({**RESPONSE, "status": "completed", "incomplete_details": None}, [False, False]),
        (beside(truncated=False), [False, False]),
        (beside(finish_reasons=["length", "stop"]), [False, False]),
        (beside(prefix="Q"), [False, False]),
        (beside(finish_reasons=None), [False, False]),
    ],
)
def test_an_answer_that_is_not_whole_is_truncated(
    tmp_path: Path, record: str | dict[str, Any], truncated: list[bool]
) -> None:
    (conversation,) = read(file_of(record, tmp_path))
    assert [message.truncated for message in conversation.messages] == truncated


# --- Calls in parts --------------------------------------------------------------------------------------------------


def test_a_call_in_a_part_keeps_its_arguments_under_any_name(tmp_path: Path) -> None:
    for name in ("args", "input", "parameters", "arguments"):
        part = {"type": "tool_call", "id": "c", "name": "f", name: {"n": 5}}
        (conversation,) = read(written(tmp_path, {"messages": [USER, {"role": "assistant", "content": [part]}]}))
        assert json.loads(conversation.messages[1].calls[0].arguments) == {"n": 5}


# --- Reasoning and tools in objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [
    {"text": "Add them all."},
    [{"type": "summary", "summary": [{"text": "Add them all."}]}],
    [{"type": "thinking", "thinking": "Add them all."}],
])  # fmt: skip
def test_reasoning_in_objects_beside_the_messages_is_asked_about(tmp_path: Path, value: object) -> None:
    ((reason, remedy),) = refused(written(tmp_path, {"messages": [USER, ANSWER], "reasoning": value}))
    assert reason == "answer_beside"
    assert "--map" not in remedy  # which reads one text
    assert read(written(tmp_path, {"messages": [USER, ANSWER], "reasoning": value}), metadata=("reasoning",))


def test_the_definition_of_one_tool_is_a_list_of_one(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    (conversation,) = read(written(tmp_path, {"messages": [USER, ANSWER], "tool_schema": tool}))
    assert [each["name"] for each in conversation.tools] == ["f"]


# --- Nulls in nested schemas -----------------------------------------------------------------------------------------


def test_a_null_stays_where_a_nested_schema_allows_it(tmp_path: Path) -> None:
    text, null = {"type": "string"}, {"type": "null"}
    node = {"type": "object", "properties": {"a": text, "n": {"anyOf": [text, null]}, "next": {"$ref": "#/$defs/N"}}}
    schema = {
        "type": "object",
        "$defs": {"N": node},
        "properties": {
            "may": {"anyOf": [{"$ref": "#/$defs/N"}, null]},
            "must": {"$ref": "#/$defs/N"},
            "all": {"allOf": [{"type": ["string", "null"]}]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/N"}},
            "free": {"anyOf": [node, {"type": "object"}]},
        },
    }
    inner = {"a": None, "n": None, "next": {"a": "x", "n": None, "next": None}}
    arguments = {"may": inner, "must": None, "all": None, "list": [{"a": None}], "free": {"a": None}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    record = {
        "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
    }
    (conversation,) = read(written(tmp_path, record))
    assert json.loads(conversation.messages[1].calls[0].arguments) == {
        "may": {"n": None, "next": {"a": "x", "n": None}},
        "all": None,
        "list": [{}],
        "free": {"a": None},
    }


# --- Columns beside --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tools_camel", "tools_toolspec", "tools_info"])
def test_definitions_of_tools_under_any_name_are_asked_about(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert (reason, remedy.split()[0]) == ("tools_invalid", "--map")
    key = remedy.split()[1]
    (conversation,) = read(case(name), maps=(key,))
    assert [tool["name"] for tool in conversation.tools] == ["lookup"]


@pytest.mark.parametrize("name", ["analysis_col", "plan_col", "thoughts_list"])
def test_reasoning_under_other_names_is_asked_about(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "answer_beside"
    for option in ("reasoning=analysis", "reasoning=internal_monologue", "reasoning=thoughts"):
        if f"--map {option} " in remedy:
            assert read(case(name), maps=(option,))[0].messages[-1].reasoning


CHOICES = ("ant", "cat")


@pytest.mark.parametrize("name", ["mc_option_a", "mc_ABCD", "mc_opa", "mc_option1"])
def test_choices_are_not_lost(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "input_beside"
    (conversation,) = read(case(name), maps=(remedy.split()[1],))
    asked = "".join(conversation.messages[0].texts)
    assert all(choice in asked for choice in CHOICES)


@pytest.mark.parametrize("name", ["sys_camel", "sys_instructions", "sys_preamble", "sys_sp_cols"])
def test_a_system_text_under_another_name_is_not_lost(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "input_beside"
    (conversation,) = read(case(name), maps=(remedy.split()[1],))
    assert conversation.messages[0].role == "system"


def test_a_system_text_that_the_messages_hold_is_metadata(tmp_path: Path) -> None:
    record = {"messages": [{"role": "system", "content": "S"}, USER, ANSWER], "systemPrompt": "S"}
    (conversation,) = read(written(tmp_path, record))
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant"]


# --- Calls, results, parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["role_toolcalls", "role_function_call_dash"])
def test_roles_of_calls_by_other_names_are_calls(name: str) -> None:
    (conversation,) = read(case(name))
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert [(call.name, json.loads(call.arguments)) for call in conversation.messages[1].calls] == [
        ("lookup", {"word": "ant"})
    ]


def test_a_result_whose_objects_have_a_type_is_json() -> None:
    (conversation,) = read(case("tool_typed_list"))
    result = json.loads("".join(conversation.messages[2].texts))
    assert result == [{"type": "noun", "gloss": "insect"}, {"type": "verb", "gloss": "none"}]


def test_one_text_in_a_list_is_the_text(tmp_path: Path) -> None:
    (conversation,) = read(written(tmp_path, {"messages": [USER, {"role": "assistant", "content": ["A"]}]}))
    assert conversation.messages[1].texts == ("A",)


# --- Reasoning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rd_only", "rd_both"])
def test_details_of_reasoning_are_its_text_or_repeat_it(name: str) -> None:
    (conversation,) = read(case(name))
    assert conversation.messages[1].reasoning == ("I recall.",)


def test_the_same_reasoning_twice_is_one() -> None:
    (conversation,) = read(case("think_dup"), think_tags=True)
    assert "".join(conversation.messages[1].reasoning).strip() == "I recall."
    assert conversation.messages[1].texts == ("An insect.",)


def test_two_reasonings_name_the_options_that_choose(tmp_path: Path) -> None:
    said = {"role": "assistant", "reasoning_content": "One.", "content": "<think>Two.</think>A"}
    file = written(tmp_path, {"messages": [USER, said]})
    ((reason, remedy),) = refused(file, think_tags=True)
    assert reason == "reasoning_twice"
    assert "--drop reasoning_content" in remedy
    (conversation,) = read(file, think_tags=True, drop=("reasoning_content",))
    assert conversation.messages[1].reasoning == ("Two.",)


# --- Markup ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["think_upper", "think_unused", "think_mm", "think_longcat", "think_hyp"])
def test_reasoning_in_more_tags_is_refused_or_read(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert (reason, remedy.split()[0]) == ("think_tags", "--think-tags")
    (conversation,) = read(case(name), think_tags=True)
    said = conversation.messages[1]
    assert (said.reasoning, said.texts) == (("I recall.",), ("An insect.",))


@pytest.mark.parametrize(
    "name",
    [
        *("think_details", "call_xai", "call_qwen_agent", "call_functiongemma"),
        *("call_tool_use", "bos_answer", "eos_answer", "eot_answer"),
    ],
)
def test_more_of_what_templates_and_servers_write_is_no_answer(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert (reason, remedy.split()[0]) == ("markup", "--text-as-is")
    assert read(case(name), text_as_is=True)


@pytest.mark.parametrize(
    "text",
    [
        "<s>Old</s> text, struck out.",
        "The token <eos> ends a sequence.",
        "<details><summary>More</summary>text</details>",
        "Set <thinking-process> aside.",
        "unused94 and ✿ flowers",
    ],
)
def test_ordinary_text_stays(tmp_path: Path, text: str) -> None:
    (conversation,) = read(written(tmp_path, {"messages": [USER, {"role": "assistant", "content": text}]}))
    assert conversation.messages[1].texts == (text,)


# --- Remedies of unknown forms ---------------------------------------------------------------------------------------


def pasted(tmp_path: Path, remedy: str, file: Path) -> Path:
    """The file that the command of a remedy writes."""
    command = re.search(r"jq -c.*? FILE > (\S+)", remedy)
    assert command, remedy
    subprocess.run(command[0].replace("FILE", shlex.quote(str(file))), shell=True, check=True, cwd=tmp_path)
    return tmp_path / command[1]


def remedy_of(file: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_chat([file], ChatConversion())
    return caught.value.remedy or ""


needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")


@needs_jq
def test_messages_of_several_conversations_stay_apart(tmp_path: Path) -> None:
    file = MORE / "several/jsonl_long.jsonl"
    made = read(pasted(tmp_path, remedy_of(file), file))
    assert [["".join(message.texts) for message in each.messages] for each in made] == [["Hi", "Yes"], ["Ho", "No"]]


@needs_jq
def test_records_under_their_ids_are_all_read(tmp_path: Path) -> None:
    file = MORE / "several/json_byid.json"
    made = pasted(tmp_path, remedy_of(file), file)
    assert [json.loads(line)["id"] for line in made.read_text("utf-8").splitlines()] == ["a1", "a2"]
    assert len(read(made)) == 2


def test_columns_of_pandas_are_named() -> None:
    assert 'orient="records"' in remedy_of(MORE / "several/json_orient.json")


def test_columns_of_messages_are_no_message(tmp_path: Path) -> None:
    assert "jq" not in remedy_of(written(tmp_path, {"role": ["user", "assistant"], "content": ["Q", "A"]}))


@needs_jq
@pytest.mark.parametrize("name", ["log_resp2", "fr_choices"])
def test_the_reply_of_a_server_is_appended_with_its_end(tmp_path: Path, name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "unanswered"
    (conversation,) = read(pasted(tmp_path, remedy, case(name)))
    last = conversation.messages[-1]
    assert (last.role, last.texts, last.truncated) == ("assistant", ("An insect.",), True)


def test_each_case_has_one_record() -> None:
    files = sorted(MORE.glob("*.jsonl"))
    assert files
    assert all(len(file.read_text("utf-8").splitlines()) == 1 for file in files)


@pytest.mark.parametrize("name", ["nulls_no_tools", "nulls_undeclared"])
def test_a_null_that_no_tool_declares_is_no_argument(name: str) -> None:
    for conversation in read(case(name)):
        arguments = [json.loads(call.arguments) for message in conversation.messages for call in message.calls]
        assert arguments
        assert None not in [value for each in arguments for value in each.values()]


def test_a_call_that_begins_with_functools_is_markup() -> None:
    assert the_refusal("call_functools") == ("markup", "--text-as-is keeps it as text")


def test_tools_within_the_request_are_asked_about(tmp_path: Path) -> None:
    reason, remedy = the_refusal("tools_rcp")
    assert reason == "tools_invalid"
    program = remedy.partition(" FILE ")[0].removeprefix("jq -c ").strip("'")
    assert program == '.tools = .["request"]["tools"]'
    record = json.loads(case("tools_rcp").read_text("utf-8"))
    (conversation,) = read(written(tmp_path, {**record, "tools": record["request"]["tools"]}))
    assert [tool["name"] for tool in conversation.tools] == ["lookup"]
