"""Chat data of any form becomes samples as `spanloom convert` reads it; what a sample cannot hold is left out by name.

The right values are those of `docs/families/toolcalls.md`. That a form changes nothing is checked with the second
program of `tool_messages_checker`, which knows OpenAI's messages alone: each run is rewritten in another form.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from families.toolcalls.conftest import Run
from spanloom.conversations.forms import ReadingOptions
from spanloom.errors import SpanloomError
from spanloom.families.toolcalls.convert.drafts import Completion, Completions, Options
from spanloom.families.toolcalls.convert.sources import CONVERTERS, Converted, convert
from spanloom.families.toolcalls.format.source import files_below
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import validate_files
from support import tool_messages_checker as checker
from support.cases import beside, cases_of, lines
from support.requirements import TAU_RUNS, absent
from support.toolcall_samples import CALL, write_samples

Record = dict[str, Any]

ASKED: list[Record] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
LOOK = '<|python_tag|>{"name": "look", "parameters": {"x": 1}}<|eom_id|>'


def made(tmp_path: Path, *records: Any, source: Any = "messages", **options: Any) -> tuple[Converted, list[Record]]:
    """What a conversion counts, and its samples, which pass the strictest check."""
    reading = {name: options.pop(name) for name in ReadingOptions.__dataclass_fields__ if name in options}
    given = {"split": "retain"} if source == "messages" else {}
    out = tmp_path / "out"
    place = write_samples(tmp_path / "in.jsonl", list(records))
    done = convert(source, place, out, Options(**given, reading=ReadingOptions(**reading), **options))
    run = validate_files([file for file in files_below(out) if file.path.stat().st_size], Rules(require_system=True))
    assert not run.errors
    return done, [sample for file in sorted(out.glob("*/*.jsonl")) for sample in lines(file)]


def rejects(tmp_path: Path, source: str = "messages") -> list[Record]:
    return lines(tmp_path / f"out/rejects/{source}.ndjson")


def answered(answer: Any, **more: Any) -> Record:
    return {"messages": [*ASKED, {"role": "assistant", "content": answer, **more}]}


# --- the inputs of public reports


def test_a_text_beside_a_function_call_keeps_the_call_and_no_arguments_are_an_object(tmp_path: Path) -> None:
    done = convert("messages", cases_of("reports") / "function_call.jsonl", tmp_path / "out", Options())
    assert not done.left_out
    assert [sample["assistant_raw"] for sample in lines(tmp_path / "out/retain/messages.jsonl")] == [
        'I will look.<|python_tag|>{"name": "get_inbox", "parameters": {}}<|eom_id|>',
        '<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|>',
    ]


@pytest.mark.parametrize(
    "said",
    [
        {"content": "Look.", "function_call": {"name": "look", "arguments": {"x": 1}}},
        {"content": "Look.", "tool_calls": '[{"name": "look", "arguments": {"x": 1}}]'},
        {"content": "Look.", "tool_calls": [{"function": "look", "args": {"x": 1}, "id": "1"}]},
        {"content": [{"type": "text", "text": "Look."}, {"type": "tool_use", "name": "look", "input": {"x": 1}}]},
    ],
)
def test_calls_in_all_notations(tmp_path: Path, said: Record) -> None:
    _, (sample,) = made(tmp_path, {"messages": [*ASKED, {"role": "assistant", **said}]})
    assert sample["assistant_raw"] == "Look." + LOOK


@pytest.mark.parametrize("arguments", ["", None, " ", {}])
def test_no_arguments(tmp_path: Path, arguments: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    _, (sample,) = made(tmp_path, answered(None, tool_calls=[call]))
    assert sample["assistant_raw"] == '<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|>'


def looked_up(*words: str) -> str:
    texts = [json.dumps({"name": "lookup", "parameters": {"word": word}}) for word in words]
    return "".join(f"<|python_tag|>{text}<|eom_id|>" for text in texts)


NOW = '<|python_tag|>{"name": "now", "parameters": {}}<|eom_id|>'


@pytest.mark.parametrize(
    ("name", "options", "answers", "left_out"),
    [
        ("args_none", {}, [NOW, "It is noon."], {}),
        ("args_empty", {}, [NOW, "It is noon."], {}),
        ("sep_calls", {}, ["Both are insects."], {"assistant_in_a_row": 2}),
        ("sep_calls", {"join_consecutive": True}, [looked_up("ant", "bee"), "Both are insects."], {}),
        ("tool_call_role", {}, [], {"think_tags": 1}),
        (
            "tool_call_role",
            {"think_tags": True},
            ["Hi, what shall I do?", looked_up("ant", "bee"), "Both are insects."],
            {},
        ),
        ("tool_call_role_name", {"think_tags": True}, [looked_up("ant"), "An insect."], {}),
        ("function_call_thought", {"think_tags": True}, [looked_up("ant"), "An insect."], {}),
        ("trainable_flag", {}, ["2"], {}),
        ("reasoning_only_end", {}, [], {"answer_missing": 1}),
        ("harmony_header", {}, [], {"markup": 1}),
        ("completion_list_answer_differs", {}, ["I think 5."], {}),
        ("more/toolcalls/tc_args_list", {}, ['<|python_tag|>{"name": "lookup", "parameters": {}}<|eom_id|>'], {}),
        ("more/toolcalls/tc_conv", {}, [], {"think_tags": 1}),
        ("more/toolcalls/tc_conv", {"think_tags": True}, [looked_up("ant")], {}),
        ("more/toolcalls/tc_fc_list", {}, [looked_up("ant")], {}),
        ("more/toolcalls/tc_label_false", {}, [], {"not_preferred": 1}),
        ("more/toolcalls/tc_lc", {}, [], {"key_unknown": 1}),
        ("more/toolcalls/tc_null_pad", {}, [looked_up("ant")], {}),
        ("more/toolcalls/tc_rec_mask", {}, [], {"label_unclear": 1}),
        ("more/toolcalls/tc_think", {"think_tags": True}, ["An insect."], {}),
        ("more/toolcalls/tc_tool_list", {}, [looked_up("ant"), "An insect."], {}),
        ("more/toolcalls/tc_trunc", {}, [], {"truncated": 1}),
        ("more/toolcalls/tc_two_calls", {}, [], {"assistant_in_a_row": 2}),
        ("more/toolcalls/tc_two_calls", {"join_consecutive": True}, [looked_up("ant", "bee")], {}),
        ("more/toolcalls/tc_weight0", {}, [], {"nothing_trained": 1}),
    ],
)
def test_inputs_that_other_commands_read_too(
    tmp_path: Path, name: str, options: Record, answers: list[str], left_out: dict[str, int]
) -> None:
    records = lines(cases_of("reports") / f"{name}.jsonl")
    done, samples = made(tmp_path, *records, turns="all", system="s", **options)
    assert ([sample["assistant_raw"] for sample in samples], dict(done.left_out)) == (answers, left_out)


# --- forms: a run rewritten in another form gives the same samples


def sharegpt(messages: list[Record]) -> Record:
    """Calls and results as turns of their own; a text before calls is a turn before them."""
    roles = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
    turns: list[Record] = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        if calls:
            text = json.dumps([{**call, "arguments": json.loads(call["arguments"])} for call in calls])
            turns.append(
                {"from": "function_call", "value": f"{message['content']}\n{text}" if message["content"] else text}
            )
        else:
            turns.append({"from": roles[message["role"]], "value": message["content"] or ""})
    return {"conversations": turns}


def anthropic(messages: list[Record]) -> Record:
    """Calls as blocks of the assistant, results as blocks of the user, the system text beside the messages."""
    turns: list[Record] = []
    for message in messages[1:]:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"] or ""}
            turns.append({"role": "user", "content": [block]})
            continue
        blocks: list[Record] = [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls") or ():
            arguments = json.loads(call["function"]["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
        turns.append({"role": message["role"], "content": blocks})
    return {"system": messages[0]["content"], "messages": turns}


def responses(messages: list[Record]) -> Record:
    """Calls and results as items of their own."""
    items: list[Record] = []
    for message in messages:
        if message["role"] == "tool":
            output = {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
            items.append(output)
            continue
        if message["content"]:
            items.append({"type": "message", "role": message["role"], "content": message["content"]})
        calls = message.get("tool_calls") or ()
        items += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
    return {"input": items}


def as_text(messages: list[Record]) -> Record:
    return {"messages": json.dumps(messages)}


def parted(messages: list[Record]) -> Record:
    """Each text as a part."""
    parts = [[{"type": "text", "text": message["content"]}] if message["content"] else None for message in messages]
    return {"messages": [{**message, "content": part} for message, part in zip(messages, parts, strict=True)]}


FORMS: list[Callable[[list[Record]], Record]] = [sharegpt, anthropic, responses, as_text, parted]


def call(number: int, name: str, arguments: str) -> Record:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


SMALL: list[list[Record]] = [
    [
        *ASKED,
        {"role": "assistant", "content": "Look.", "tool_calls": [call(1, "find", '{"user": "mia", "n": 1}')]},
        {"role": "tool", "tool_call_id": "c1", "content": "two"},
        {"role": "user", "content": "Both."},
        {"role": "assistant", "content": None, "tool_calls": [call(2, "f", '{"é": 2}'), call(3, "f", "{}")]},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
        {"role": "tool", "tool_call_id": "c3", "content": "done"},
        {"role": "assistant", "content": "They are cancelled."},
    ],
    [
        *ASKED,
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "B"},
    ],
]


def published() -> list[list[Record]]:
    path = beside("SPANLOOM_TAU_RUNS", "families/toolcalls/tau") / "gpt-4o-airline.json"
    runs = json.loads(path.read_bytes()) if path.is_file() else absent(TAU_RUNS, f"{path} is not there")
    # A blank result of a tool says nothing, and Responses cannot tell two answers apart that it stands between.
    return [
        run["traj"] for run in runs if all(message["content"] or message.get("tool_calls") for message in run["traj"])
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("runs", ["small", "published"])
def test_another_form_gives_the_same_samples(tmp_path: Path, runs: str, form: Callable[[list[Record]], Record]) -> None:
    chats = SMALL if runs == "small" else published()
    records = [{"id": str(number), **form(chat)} for number, chat in enumerate(chats)]
    done, samples = made(tmp_path, *records, turns="all")
    assert set(done.left_out) <= {"duplicate"}
    of_record: dict[str, list[Record]] = {}
    for sample in samples:
        of_record.setdefault(sample["metadata"]["original"]["id"], []).append(sample)
    wrong = [
        line
        for number, chat in enumerate(chats)
        for line in checker.wrong_turns(of_record.get(str(number), []), chat, every=True)
    ]
    assert wrong == []
    answers = sum(len(checker.answers(chat, calling=False, every=True)) for chat in chats)
    assert done.written.total() + done.left_out["duplicate"] == answers > len(chats)


def test_each_record_has_its_own_form(tmp_path: Path) -> None:
    columns = {"prompt": "q", "response": "A", "system": "s"}
    done, samples = made(
        tmp_path, {"id": "c", **columns}, sharegpt(SMALL[0]), [*ASKED, {"role": "assistant", "content": "L"}], {"x": 1}
    )
    assert [sample["assistant_raw"] for sample in samples] == ["A", "They are cancelled.", "L"]
    assert dict(done.left_out) == {"no messages": 1}
    assert "--map query=KEY" in rejects(tmp_path)[0]["remedy"]


def test_tools_are_read_from_any_notation(tmp_path: Path) -> None:
    schema: Record = {"type": "object", "properties": {"x": {"type": "integer"}}}
    bare = {"name": "look", "description": "d", "parameters": schema}
    wrapped = {"type": "function", "function": bare}
    calling = answered(None, tool_calls=[call(1, "look", '{"x": 1}')])["messages"]
    notations = [
        {"tools": [wrapped]},
        {"tools": [bare]},
        {"tools": json.dumps([bare])},
        {"tools": [{"name": "look", "description": "d", "input_schema": schema}]},
        {"functions": [bare]},
        {"tool_defs": json.dumps([wrapped])},
        {"tools": [{**bare, "parameters": {**schema, "properties": {**schema["properties"], "y": None}}}]},
    ]
    records = [
        {"id": str(number), "messages": [{"role": "system", "content": f"s{number}"}, *calling[1:]], **tools}
        for number, tools in enumerate(notations)
    ]
    _, samples = made(tmp_path, *records)
    assert [sample["tools"] for sample in samples] == [[wrapped], [bare], *[[wrapped]] * 5]
    assert [sample["metadata"]["original"] for sample in samples] == [{"id": str(n)} for n in range(7)]


def test_the_name_of_a_registry_stays_a_name(tmp_path: Path) -> None:
    _, (sample,) = made(tmp_path, {**answered("A"), "tools": "agentdojo_native"})
    assert sample["tools"] == "agentdojo_native"


def test_a_record_without_tools_has_those_that_an_option_names_or_none(tmp_path: Path) -> None:
    """No template shows the model tools that it did not have."""
    call = {"function": {"name": "look", "arguments": {"x": 1}}}
    flipped = {"split": "harmful", "expected_tool": "look", "simulated_tool": "send", "is_flip_success": True}
    records = [answered("A"), answered(None, tool_calls=[call]), {**answered("B"), **flipped}]
    _, samples = made(tmp_path, *records)
    assert {sample["assistant_raw"]: sample["tools"] for sample in samples} == {"A": None, LOOK: [], "B": []}
    (tmp_path / "named").mkdir()
    _, samples = made(tmp_path / "named", *records, tools="llmail_inject_v1")
    assert [sample["tools"] for sample in samples] == ["llmail_inject_v1"] * 3


def test_nulls_of_absent_arguments_are_padding(tmp_path: Path) -> None:
    """As `Dataset.to_json` writes calls of different tools: each has the arguments of all."""
    properties = {"x": {"type": "integer"}, "zone": None}
    tool = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": properties}},
    }
    padded = {"function": {"name": "look", "arguments": {"x": 1, "zone": None}}}
    done, (sample,) = made(tmp_path, {**answered(None, tool_calls=[padded]), "tools": [tool]})
    assert sample["assistant_raw"] == LOOK
    assert sample["tools"][0]["function"]["parameters"]["properties"] == {"x": {"type": "integer"}}
    assert done.as_dict()["read_as"] == {"null_padding": 2}


# --- thoughts


THOUGHT = "I cannot do that, it is a scam."


@pytest.mark.parametrize(
    "said",
    [
        {"content": "Done.", "reasoning_content": THOUGHT},
        {"content": "Done.", "reasoning": THOUGHT},
        {"content": "Done.", "thinking": THOUGHT},
        {"content": [{"type": "thinking", "content": THOUGHT}, {"type": "text", "content": "Done."}]},
        {"content": [{"type": "thinking", "thinking": THOUGHT, "signature": "s"}, {"type": "text", "text": "Done."}]},
        {"content": [{"type": "reasoning", "text": THOUGHT}, {"type": "text", "text": "Done."}]},
    ],
)
def test_a_thought_is_left_out_and_counted(tmp_path: Path, said: Record) -> None:
    done, samples = made(
        tmp_path,
        {
            "messages": [
                *ASKED,
                {"role": "assistant", **said},
                {"role": "user", "content": "and?"},
                {"role": "assistant", "content": "Yes."},
            ]
        },
        turns="all",
    )
    assert [sample["assistant_raw"] for sample in samples] == ["Done.", "Yes."]
    assert samples[1]["messages"][2] == {"role": "assistant", "content": "Done."}
    assert done.as_dict()["dropped"]["reasoning"] == {"times": 1, "characters": len(THOUGHT)}


def test_encrypted_thoughts_are_counted_too(tmp_path: Path) -> None:
    block = {"type": "redacted_thinking", "data": "Zm9v"}
    done, (sample,) = made(tmp_path, answered([block, {"type": "text", "text": "Done."}]))
    assert sample["assistant_raw"] == "Done."
    assert done.dropped["part:redacted_thinking"][0] == 1


@pytest.mark.parametrize(
    ("options", "text", "dropped"),
    [
        ({}, None, None),
        ({"think_tags": True}, "Done.", ("reasoning", len(THOUGHT))),
        ({"drop": ("think",)}, "Done.", ("think", len(THOUGHT))),
        ({"think_tags": False}, f"<think>{THOUGHT}</think>Done.", None),
        ({"text_as_is": True}, f"<think>{THOUGHT}</think>Done.", None),
    ],
)
@pytest.mark.parametrize("source", ["messages", "ultrachat", "tau2"])
def test_thoughts_in_tags(
    tmp_path: Path, source: str, options: Record, text: str | None, dropped: tuple[str, int] | None
) -> None:
    done, samples = made(tmp_path, answered(f"<think>{THOUGHT}</think>Done."), source=source, **options)
    assert [sample["assistant_raw"] for sample in samples] == ([] if text is None else [text])
    assert dict(done.left_out) == ({"think_tags": 1} if text is None else {})
    assert {name: characters for name, (_, characters) in done.dropped.items()} == dict([dropped] if dropped else [])


@pytest.mark.parametrize("source", ["b4", "xstest"])
def test_completions_with_thoughts(source: str) -> None:
    records = {
        "b4": {"record_id": "r", "combined_query": "q", "expected_tool": "f", "simulated_tool": "search_web"},
        "xstest": {"id": "r", "prompt": "q", "label": "safe"},
    }
    texts = [f"<think>{THOUGHT}</think>{CALL}", f"<think>{THOUGHT}</think>"]
    completions = Completions({"r": [Completion(text=text, about={}) for text in texts]})
    drafts: Any = CONVERTERS[source]
    refused = list(drafts(records[source], Options(completions=completions)))
    assert [str(fault) for fault in refused] == ["think_tags", "think_tags"]
    reading = ReadingOptions(think_tags=True)
    first, second = drafts(records[source], Options(completions=completions, reading=reading))
    assert (first.assistant_raw, first.dropped.characters) == (CALL, {"reasoning": len(THOUGHT)})
    assert str(second) == "answer_missing"


def test_a_thought_alone_is_no_answer(tmp_path: Path) -> None:
    chat = [*ASKED, {"role": "assistant", "content": "A"}, {"role": "user", "content": "and?"}]
    record = {"messages": [*chat, {"role": "assistant", "content": None, "reasoning_content": THOUGHT}]}
    done, samples = made(tmp_path, record)
    assert (samples, dict(done.left_out)) == ([], {"answer_missing": 1})
    done, (sample,) = made(tmp_path, record, turns="all")
    assert (sample["assistant_raw"], dict(done.left_out)) == ("A", {"answer_missing": 1})


def test_a_thought_before_its_call_is_part_of_the_same_message(tmp_path: Path) -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [call(1, "look", '{"x": 1}')]}
    thinking = {"role": "assistant", "content": None, "reasoning_content": THOUGHT}
    done, (sample,) = made(tmp_path, {"messages": [*ASKED, thinking, calling]}, turns="all")
    assert (sample["messages"], sample["assistant_raw"], done.left_out) == (ASKED, LOOK, {})


# --- flags, ends, order


@pytest.mark.parametrize(
    "flag",
    [{"weight": 0}, {"train": False}, {"trainable": False}, {"loss_mask": 0}, {"step_loss_mask": 0}, {"masked": True}],
)
def test_an_untrained_message_is_only_context(tmp_path: Path, flag: Record) -> None:
    first = {"role": "assistant", "content": "A", **flag}
    chat = [*ASKED, first, {"role": "user", "content": "and?"}, {"role": "assistant", "content": "B"}]
    _, (sample,) = made(tmp_path, {"messages": chat}, turns="all")
    assert (sample["assistant_raw"], sample["messages"][2]["content"]) == ("B", "A")
    done, samples = made(tmp_path, {"messages": chat[:3]})
    assert (samples, dict(done.left_out)) == ([], {"nothing_trained": 1})


def test_a_flag_cannot_be_dropped_and_a_mapped_one_is_honoured(tmp_path: Path) -> None:
    with pytest.raises(SpanloomError, match="would train what is marked"):
        ReadingOptions(drop=("weight",))
    done, samples = made(tmp_path, answered("A", learn=0))
    assert (samples, dict(done.left_out)) == ([], {"weight_zero": 1})
    assert "--map trained=learn" in rejects(tmp_path)[0]["remedy"]
    done, samples = made(tmp_path, answered("A", learn=0), maps=("trained=learn",))
    assert (samples, dict(done.left_out)) == ([], {"nothing_trained": 1})


def test_an_answer_that_is_not_preferred_is_left_out(tmp_path: Path) -> None:
    done, samples = made(tmp_path, {**answered("A"), "label": False})
    assert (samples, dict(done.left_out)) == ([], {"not_preferred": 1})


@pytest.mark.parametrize("end", [{"finish_reason": "length"}, {"stop_reason": "max_tokens"}])
def test_an_answer_that_was_cut_off_is_left_out(tmp_path: Path, end: Record) -> None:
    chat = [*ASKED, {"role": "assistant", "content": "A"}, {"role": "user", "content": "and?"}]
    cut = {"messages": [*chat, {"role": "assistant", "content": "B", **end}]}
    done, samples = made(tmp_path, cut)
    assert (samples, dict(done.left_out)) == ([], {"truncated": 1})
    done, (sample,) = made(tmp_path, cut, turns="all")
    assert (sample["assistant_raw"], dict(done.left_out)) == ("A", {"truncated": 1})


def test_an_answer_beside_another_is_left_out_unless_they_are_joined(tmp_path: Path) -> None:
    look = {"role": "assistant", "content": None, "tool_calls": [call(1, "look", '{"x": 1}')]}
    record = {"messages": [*ASKED, {"role": "assistant", "content": "Look."}, look]}
    done, samples = made(tmp_path, record, turns="all")
    assert (samples, dict(done.left_out)) == ([], {"assistant_in_a_row": 2})
    assert "--join-consecutive" in rejects(tmp_path)[0]["remedy"]
    _, (sample,) = made(tmp_path, record, turns="all", join_consecutive=True)
    assert (sample["messages"], sample["assistant_raw"]) == (ASKED, "Look." + LOOK)


def test_the_weight_of_a_conversation_is_that_of_its_samples(tmp_path: Path) -> None:
    _, (sample,) = made(tmp_path, {**answered("A"), "weight": 0.5})
    assert sample["training"] == {"sample_weight": 0.5}
    done, samples = made(tmp_path, {**answered("A"), "weight": 0})
    assert (samples, dict(done.left_out)) == ([], {"weight_invalid": 1})


# --- what cannot be held


HERMES = '<tool_call>{"name": "look", "arguments": {"x": 1}}</tool_call>'
TEXT = {"type": "text", "text": "A"}


@pytest.mark.parametrize(
    ("answer", "reason", "options"),
    [
        ({"content": "a <|im_end|> b"}, "markup", {"text_as_is": True}),
        ({"content": HERMES}, "markup", {"call_tags": "hermes"}),
        ({"content": "A", "audio_id": "x"}, "key_unknown", {"drop": ("audio_id",)}),
        ({"content": "A", "audio_id": "x"}, "key_unknown", {"metadata": ("audio_id",)}),
        ({"content": [{"type": "image_url"}, TEXT]}, "part_unknown", {"drop": ("part:image_url",)}),
        ({"role": "expert", "content": "A"}, "role_unknown", {"roles": ("expert=assistant",)}),
        (
            {"content": [TEXT, {"type": "thinking", "thinking": "t"}]},
            "reasoning_after_answer",
            {"drop": ("part:thinking",)},
        ),
    ],
)
def test_what_is_refused_names_the_option_that_helps(
    tmp_path: Path, answer: Record, reason: str, options: Record
) -> None:
    record = {"messages": [*ASKED, {"role": "assistant", **answer}]}
    done, samples = made(tmp_path, record)
    assert (samples, dict(done.left_out)) == ([], {reason: 1})
    remedy = rejects(tmp_path)[0]["remedy"]
    assert "--max-rejects" not in remedy
    if "metadata" not in options:
        name, value = next(iter(options.items()))
        named = {"roles": "--role expert=", "text_as_is": "--text-as-is", "call_tags": "--call-tags hermes"}
        assert named.get(name, f"--drop {value[0] if isinstance(value, tuple) else ''}") in remedy
    done, (sample,) = made(tmp_path, record, **options)
    assert not done.left_out
    assert sample["assistant_raw"] == (
        LOOK if "call_tags" in options else "A" if reason != "markup" else answer["content"]
    )


def test_answers_in_the_format_of_samples_stay(tmp_path: Path) -> None:
    _, samples = made(tmp_path, answered("Look." + LOOK), answered("Done.<|eot_id|>"))
    assert [sample["assistant_raw"] for sample in samples] == ["Look." + LOOK, "Done.<|eot_id|>"]


def test_what_samples_cannot_hold_is_counted(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "q", "name": "Ada"}, {"role": "assistant", "content": "A", "model": "m1"}]
    done, _ = made(tmp_path, {"messages": chat, "system": "s"})
    assert done.dropped == {"message.name": (1, 3), "message.model": (1, 2)}


def test_the_command_says_what_was_left_out_and_what_helps(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "in"
    without = {"messages": [ASKED[1], *SMALL[1][2:]]}
    place = write_samples(folder / "x.jsonl", [without, answered("B", reasoning=THOUGHT)])
    (folder / "notes.txt").write_text("no data")
    options = ["--from", "messages", "--split", "retain"]
    ended = run("convert", *options, "--input", folder, "--out", tmp_path / "out")
    counts = json.loads(ended.out)
    assert (ended.code, counts["left_out"], counts["not_read"]) == (0, {"M3": 1}, ["notes.txt"])
    assert counts["dropped"] == {"reasoning": {"times": 1, "characters": len(THOUGHT)}}
    assert f"left out, M3: 1, such as {place}, line 1: --system TEXT|FILE" in ended.err
    assert f"left out of messages: reasoning 1 ({len(THOUGHT)} characters)" in ended.err
    assert "not read: 1 file (notes.txt)" in ended.err
    ended = run("convert", *options, "--input", folder, "--out", tmp_path / "given", "--system", "S")
    assert json.loads(ended.out)["written"]["retain"] == 2


def test_commas_between_lines_have_a_remedy_that_works(tmp_path: Path) -> None:
    place = cases_of("reports") / "line_commas.jsonl"
    done = convert("messages", place, tmp_path / "out", Options(split="retain", system="S"))
    assert dict(done.left_out) == {"the record cannot be read": 2}
    command = rejects(tmp_path)[0]["remedy"].removesuffix(" takes the commas away")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    done = convert("messages", tmp_path / "records.jsonl", tmp_path / "again", Options(split="retain", system="S"))
    assert done.written["retain"] == 2
