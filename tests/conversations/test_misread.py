"""Data that looks like a conversation and means something else is refused with an option that helps, or understood."""

import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.forms import key_map, recognise
from spanloom.conversations.reading.flags import FLAGS
from spanloom.conversations.reading.markup import CALL_STYLES, SOLUTION_TAGS, THINK_TAGS
from spanloom.conversations.turns import (
    LeftOut,
    RecordLeftOutError,
    Refusal,
)
from spanloom.errors import RejectedRowError, SourceError, SpanloomError
from spanloom.families.harmony.convert.chat import convert_chat, count_chat
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion
from support.read_chats import ANSWER, USER, read, refused, texts

ASKED = {"question": "Q", "answer": "A"}


def says(text: str) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": text}]}


# --- Media -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["images", "image", "videos", "video", "audio", "audios"])
@pytest.mark.parametrize("record", [{"messages": [USER, ANSWER]}, ASKED])
def test_columns_of_media_refuse_their_record_where_they_hold_something(key: str, record: dict[str, Any]) -> None:
    for nothing in (None, [], ""):
        assert read({**record, key: nothing}).rest == {}
    for value in (["a.png"], {"bytes": "x"}, "a.png"):
        assert refused({**record, key: value}) == (
            Refusal.MEDIA,
            f"--drop {key} leaves it out, and its place in the text stays",
        )
        assert texts(read({**record, key: value}, drop=(key,))) == [("user", "Q"), ("assistant", "A")]


# --- Preferences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["label", "kto_tag"])
@pytest.mark.parametrize("value", [False, "false", "False"])
def test_an_answer_that_is_labelled_as_bad_is_left_out(key: str, value: Any) -> None:
    for record in (ASKED, {"messages": [USER, ANSWER]}):
        with pytest.raises(RecordLeftOutError) as left:
            read({**record, key: value})
        assert left.value.reason is LeftOut.NOT_PREFERRED
        assert texts(read({**record, key: True})) == [("user", "Q"), ("assistant", "A")]
        assert read({**record, key: "spam"}).rest == {key: "spam"}, "a class of a classification is no preference"


def test_records_left_out_are_counted_and_stop_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": f"Q{n}", "completion": f"A{n}", "label": n % 2 == 0} for n in range(6)]
    path = tmp_path / "kto.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    conversion = ChatConversion(max_rejects="0")
    done = convert_chat(chat=open_chat([path], conversion), out=tmp_path / "out", conversion=conversion)["conversion"]
    assert (done["rows_read"], done["rows_written"], done["skipped"]) == (6, 3, {"not_preferred": 3})
    assert done["rejects"] == []
    counts, _ = count_chat(open_chat([path], conversion), conversion)
    assert (dict(counts.refused), dict(counts.left_out)) == ({}, {"not_preferred": 3})


def test_a_share_of_refusals_does_not_count_records_left_out(tmp_path: Path) -> None:
    rows = [{**ASKED, "label": n == 0, **({"image": "x"} if n == 1 else {})} for n in range(4)]
    rows[1]["label"] = True
    path = tmp_path / "kto.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    conversion = ChatConversion(max_rejects="25%")
    done = convert_chat(chat=open_chat([path], conversion), out=tmp_path / "out", conversion=conversion)["conversion"]
    assert done["skipped"] == {"media": 1, "not_preferred": 2}
    with pytest.raises(RejectedRowError, match="media"):
        conversion = ChatConversion(max_rejects="24%")
        convert_chat(chat=open_chat([path], conversion), out=tmp_path / "two", conversion=conversion)


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Q", "chosen": "A", "rejected": "B"},
        {"question": "Q", "chosen": "A", "rejected": "B", "system": ""},
        {"instruction": "Q", "input": "", "chosen": "A", "rejected": "B"},
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [ANSWER]},
        {"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
        {"prompt": "Q", "chosen": [USER, ANSWER], "rejected": [USER, ANSWER], "messages": [USER, ANSWER]},
        {"prompt": "Q", "chosen": json.dumps([USER, ANSWER]), "rejected": "B"},
        {"conversations": [USER], "chosen": ANSWER, "rejected": ANSWER},
        {"messages": [USER], "chosen": "A", "rejected": "B"},
        {"messages": [USER, ANSWER], "rejected_response": "B"},
        {"input": {"messages": [USER]}, "preferred_output": [ANSWER], "non_preferred_output": [ANSWER]},
    ],
)
def test_the_chosen_answer_is_trained_and_the_rejected_is_nowhere(record: dict[str, Any]) -> None:
    done = read(record)
    assert texts(done) == [("user", "Q"), ("assistant", "A")]
    assert not any(name.startswith(("rejected", "non_preferred")) for name in done.rest)


def test_a_question_that_is_not_in_the_chosen_conversation_is_not_passed_over() -> None:
    record = {"prompt": "another", "chosen": [USER, ANSWER], "rejected": [USER, ANSWER]}
    assert refused(record) == (Refusal.INPUT_BESIDE, "--metadata prompt leaves it out")
    assert texts(read(record, metadata=("prompt",))) == [("user", "Q"), ("assistant", "A")]


# --- Earlier turns, and texts beside the question --------------------------------------------------------------------

EARLIER = [("user", "Q1"), ("assistant", "A1"), ("user", "Q"), ("assistant", "A")]


@pytest.mark.parametrize(
    "history",
    [[["Q1", "A1"]], '[["Q1", "A1"]]', [{"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1"}]],
)
@pytest.mark.parametrize("record", [{"instruction": "Q", "output": "A"}, {"query": "Q", "response": "A"}])
def test_history_is_earlier_turns(record: dict[str, Any], history: Any) -> None:
    assert texts(read({**record, "history": history})) == EARLIER
    assert texts(read({**record, "history": []})) == EARLIER[2:]


@pytest.mark.parametrize("history", ["what came before", [["Q1"]], {"a": "b"}])
def test_a_history_that_is_none_is_refused_and_never_passed_over(history: Any) -> None:
    assert refused({**ASKED, "history": history}) == (Refusal.INPUT_BESIDE, "--metadata history leaves it out")
    assert read({**ASKED, "history": history}, metadata=("history",)).rest == {"history": history}


@pytest.mark.parametrize("key", ["context", "passage", "document", "knowledge", "background"])
def test_a_text_beside_the_question_is_asked_about(key: str) -> None:
    record = {**ASKED, key: "C"}
    assert refused(record) == (
        Refusal.INPUT_BESIDE,
        f"--map query=question+{key} appends it to the question, --metadata {key} leaves it out of the question",
    )
    assert texts(read(record, maps=(f"query=question+{key}",))) == [("user", "Q\n\nC"), ("assistant", "A")]
    done = read(record, metadata=(key,))
    assert (texts(done), done.rest) == ([("user", "Q"), ("assistant", "A")], {key: "C"})
    assert read({**ASKED, key: ""}).rest == {}
    assert read({"question": f"About C: Q {key}", "answer": "A", key: "C"}).rest == {key: "C"}, "the question holds it"
    assert refused({**ASKED, key: ["C", "D"]}) == (
        Refusal.INPUT_BESIDE,
        f"--metadata {key} leaves it out of the question",
    )


@pytest.mark.parametrize("value", ["on", "off"])
def test_whether_there_is_reasoning_is_no_reasoning(value: str) -> None:
    done = read({**ASKED, "reasoning": value})
    assert (done.turns[1].reasoning, done.rest) == ((), {"reasoning": value})


# --- Markup ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", THINK_TAGS)
def test_reasoning_in_any_tags_is_refused_and_read_by_the_option_it_names(pair: tuple[str, str]) -> None:
    record = says(f"{pair[0]}\nR\n{pair[1]}\n\nA")
    reason, remedy = refused(record)
    assert reason is Refusal.THINK_TAGS
    assert remedy is not None
    assert remedy.startswith("--think-tags ")
    turn = read(record, think_tags=True).turns[1]
    assert (turn.reasoning, turn.texts) == (("R",), ("A",))
    for kept in ({"think_tags": False}, {"text_as_is": True}):
        assert read(record, **kept).turns[1].texts == (f"{pair[0]}\nR\n{pair[1]}\n\nA",)
    assert read(record, drop=("think",)).turns[1].texts == ("A",)


@pytest.mark.parametrize("thought", ["<|begin_of_thought|>\n\nR\n\n<|end_of_thought|>\n\n", ""])
@pytest.mark.parametrize("pair", SOLUTION_TAGS)
def test_tags_around_the_answer_go_with_those_around_the_reasoning(pair: tuple[str, str], thought: str) -> None:
    record = says(f"{thought}{pair[0]}\n\nA\n\n{pair[1]}")
    assert refused(record)[0] is Refusal.THINK_TAGS
    turn = read(record, think_tags=True).turns[1]
    assert (turn.reasoning, turn.texts) == (("R",) if thought else (), ("A",))


CALLS = {
    "hermes": 'P\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "glaive": """P <functioncall> {"name": "f", "arguments": '{"a": 1}'}""",
    "mistral": 'P[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]',
    "openhands": "P\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
    "toolace": "[f(a=1)]",
}


@pytest.mark.parametrize("style", CALL_STYLES)
def test_calls_in_texts_are_refused_and_read_by_the_option_they_name(style: str) -> None:
    record = {"system": 'functions: [{"name": "f"}]', **says(CALLS[style])}
    assert refused(record) == (
        Refusal.MARKUP,
        f"--call-tags {style} reads it as calls, --text-as-is keeps it as text",
    )
    (call,) = read(record, call_tags=style).turns[-1].calls
    assert (call.name, json.loads(call.arguments)) == ("f", {"a": "1" if style == "openhands" else 1})
    assert "".join(read(record, call_tags=style).turns[-1].texts) == ("" if style == "toolace" else "P")
    assert read(record, text_as_is=True).turns[-1].texts == (CALLS[style],)


def test_several_calls_and_results_of_one_text() -> None:
    two = "".join(f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>\n' for name in "fg")
    results = "".join(f'<tool_response>{{"name": "{name}", "content": 1}}</tool_response>' for name in "fg")
    record = {"messages": [USER, {"role": "assistant", "content": two}, {"role": "tool", "content": results}, ANSWER]}
    turns = read(record, call_tags="hermes").turns
    assert [call.name for call in turns[1].calls] == ["f", "g"]
    assert [(turn.name, "".join(turn.texts)) for turn in turns[2:4]] == [
        (name, f'{{"name": "{name}", "content": 1}}') for name in "fg"
    ]


def test_results_that_the_user_brings() -> None:
    call = {"role": "assistant", "content": CALLS["hermes"]}
    result = {"role": "user", "content": "<tool_response>\n4\n</tool_response>"}
    turns = read({"messages": [USER, call, result, ANSWER]}, call_tags="hermes").turns
    assert [(turn.role, "".join(turn.texts)) for turn in turns[2:]] == [("tool", "4"), ("assistant", "A")]
    assert refused({"messages": [USER, call, result, ANSWER]})[0] is Refusal.MARKUP


@pytest.mark.parametrize("channel", ["final", "commentary"])
def test_text_of_harmony_without_its_tokens_is_no_answer(channel: str) -> None:
    text = f"analysisHm, let me see.assistant{channel}Yes."
    assert refused(says(text)) == (Refusal.MARKUP, "--text-as-is keeps it as text")
    assert read(says(text), text_as_is=True).turns[1].texts == (text,)
    assert read(says("analysis of the final assistant")).turns[1].texts == ("analysis of the final assistant",)


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("hermes", "<tool_call>{</tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call> more'),
        ("hermes", "<tool_call>[1]</tool_call>"),
        ("glaive", "<functioncall> f(a)"),
        ("mistral", "[TOOL_CALLS] {}"),
    ],
)
def test_calls_that_do_not_read_as_their_style_are_refused(style: str, text: str) -> None:
    remedy = "--text-as-is without --call-tags keeps such markup as text; --max-rejects 100% sets such records aside"
    assert refused(says(text), call_tags=style) == (Refusal.MARKUP_UNCLEAR, remedy)
    assert read(says(text), text_as_is=True).turns[1].texts == (text,)


TEMPLATE_MARKS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|python_tag|>", "<start_of_turn>", "<end_of_turn>",
    "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<|user|>", "<|assistant|>", "<|system|>", "<tool_response>",
    "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>",
    "<｜begin▁of▁sentence｜>", "<｜tool▁call▁begin｜>", "<｜tool▁outputs▁begin｜>", "[TOOL_RESULTS]",
    "[AVAILABLE_TOOLS]", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call|>", "<|observation|>",
    "<|im_sep|>", "<|header_start|>", "<|header_end|>", "<|eot|>", "<|start_of_role|>", "<|end_of_role|>",
    "<|action_start|>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|START_ACTION|>", "<function_calls>",
    "<invoke name=", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>",
    "<extra_id_0>", "<extra_id_1>",
)  # fmt: skip


@pytest.mark.parametrize("mark", TEMPLATE_MARKS)
def test_tokens_of_templates_are_refused_in_answers_alone(mark: str) -> None:
    text = f"A {mark} B"
    assert refused(says(text)) == (Refusal.MARKUP, "--text-as-is keeps it as text")
    assert read(says(text), text_as_is=True).turns[1].texts == (text,)
    asked = {"messages": [{"role": "user", "content": text}, ANSWER]}
    assert texts(read(asked)) == [("user", text), ("assistant", "A")]


@pytest.mark.parametrize("text", ["a < b > c", "[f(a=1)]", "see [link](x)", "<b>A</b>", "List<Integer>", "[1, 2]"])
def test_texts_that_hold_no_markup_stay(text: str) -> None:
    assert read(says(text)).turns[1].texts == (text,)


# --- Flags, metadata of messages, forms ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "yes", "no"),
    [
        *((name, (1, True, 1.0), (0, False)) for name in ("train", "training", "train_on_turn", "loss", "weight")),
        *((name, (1, True), (0, False)) for name in ("trainable", "loss_mask", "step_loss_mask", "trained")),
        *((name, (1, 1.0), (0, 0.0)) for name in ("loss_weight", "loss_scale")),
        *((name, (False, 0), (True, 1)) for name in ("mask", "is_demo", "masked", "ignore_loss")),
        ("train_detail", ([{"begin_offset": 0, "end_offset": 0, "train": True}],), ([{"train": False}],)),
    ],
)
def test_flags_of_a_message_are_honoured(flag: str, yes: tuple[Any, ...], no: tuple[Any, ...]) -> None:
    for value in yes:
        assert texts(read({"messages": [{**USER, flag: no[0]}, {**ANSWER, flag: value}]})) == [
            ("user", "Q"),
            ("assistant", "A"),
        ]
    for value in no:
        untrained = read({"messages": [USER, {**ANSWER, flag: value}, USER, ANSWER]})
        assert [turn.trained for turn in untrained.turns] == [True, False, True, True]
        assert texts(untrained) == [("user", "Q"), ("assistant", "A")] * 2
    for unclear in (0.5, "yes", [{"train": True}, {"train": False}]):
        assert refused({"messages": [USER, {**ANSWER, flag: unclear}]})[0] is Refusal.WEIGHT_ZERO


def test_flags_that_differ_or_mean_two_things_are_refused() -> None:
    assert refused({"messages": [USER, {**ANSWER, "train": True, "weight": 0}]})[0] is Refusal.WEIGHT_ZERO
    for value in (0, 1):
        record = {"messages": [USER, {**ANSWER, "label_mask": value}]}
        reason, remedy = refused(record)
        assert reason is Refusal.WEIGHT_ZERO
        assert remedy == "--map trained=label_mask or --map masked=label_mask says which it is"
        assert read(record, trained_if=("label_mask",)).turns[1].trained is bool(value)
        assert read(record, masked_if=("label_mask",)).turns[1].trained is not bool(value)


@pytest.mark.parametrize("name", [*sorted(FLAGS), "label", "kto_tag"])
def test_flags_cannot_be_dropped(name: str) -> None:
    with pytest.raises(SpanloomError, match=f"--drop {name} would train what is marked"):
        ChatConversion(drop=("refusal", name))


def test_what_data_sets_write_beside_a_message_is_its_metadata() -> None:
    about = {"language": "English", "toxic": False, "redacted": False, "country": "DE", "turn_identifier": 7}
    done = read({"messages": [{**USER, **about}, {**ANSWER, "timestamp": "t"}]})
    assert done.message_metadata == ({"message": 0, **about}, {"message": 1, "timestamp": "t"})
    other = {"messages": [USER, {**ANSWER, "grade": 3}]}
    assert refused(other)[0] is Refusal.KEY_UNKNOWN
    assert read(other, metadata=("grade",)).message_metadata == ({"message": 1, "grade": 3},)


def test_keys_of_late_rows_are_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"messages": [USER, ANSWER]} for _ in range(1001)]
    rows += [
        {"messages": [USER, ANSWER], "late": 1},
        {"messages": [{**USER, "country": "DE"}, ANSWER]},
        {"messages": [USER, {**ANSWER, "odd": 1}]},
        {"messages": [USER, {**ANSWER, "refusal": "no"}]},
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    conversion = ChatConversion(drop=("refusal",))
    counts, _ = count_chat(open_chat([path], conversion), conversion)
    assert dict(counts.metadata) == {"late": 1, "message.country": 1}
    assert (dict(counts.refused_keys), dict(counts.dropped)) == ({"odd": 1}, {"refusal": 1})


@pytest.mark.parametrize("record", [{"text": "Once upon a time"}, "Once upon a time", {"content": "x", "url": "y"}])
def test_plain_text_is_pointed_to_packed_chat(record: Any) -> None:
    with pytest.raises(SourceError, match="no known form of chat data") as unknown:
        recognise(record, key_map(()), "here")
    assert unknown.value.remedy is not None
    assert "packed chat" in unknown.value.remedy


def test_a_file_of_plain_text_is_pointed_to_packed_chat(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Once upon a time")
    with pytest.raises(SourceError, match="packed chat"):
        open_chat([tmp_path / "a.txt"], ChatConversion())
