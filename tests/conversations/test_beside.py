"""Data of published shapes whose meaning depends on other keys of the record, or on how a list is written.

Each is understood as its authors mean it, or refused with options that work when they are pasted.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import (
    ChatRecord,
    Dropping,
    Reading,
    RecordLeftOutError,
    RecordRefusedError,
    Refusal,
)
from spanloom.errors import SourceError, SpanloomError
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion
from support.read_chats import ANSWER, TALK, USER, texts

EARLIER = [("user", "Q1"), ("assistant", "A1"), *TALK]
ASKED = {"question": "Q", "answer": "A"}


def read(record: Any, *pasted: str, **options: Any) -> ChatRecord:
    """A record with options as they are pasted: `--map query=a`, `--metadata b`, `--drop c`."""
    named: dict[str, list[str]] = {"--map": [], "--metadata": [], "--drop": []}
    for option in pasted:
        name, value = option.split(" ", 1)
        named[name] += value.split(",")
    form = recognise(record, key_map(named["--map"], named["--metadata"]), "here")
    reading = Reading(metadata=frozenset(named["--metadata"]), **options)
    return read_record(record, form, reading, Dropping(names=frozenset(named["--drop"])))


def refused(record: Any, *pasted: str, **options: Any) -> tuple[Refusal, list[str]]:
    """The reason, and the options that the remedy names."""
    with pytest.raises(RecordRefusedError) as caught:
        read(record, *pasted, **options)
    clauses = (caught.value.remedy or "").replace("; ", ", ").split(", ")
    return caught.value.reason, [" ".join(clause.split(" ")[:2]) for clause in clauses if clause.startswith("--")]


# --- Lists that are not written as JSON ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        repr([USER, ANSWER]),
        repr([{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A", "weight": None}]),
        {"role": ["user", "assistant"], "content": ["Q", "A"], "name": [None, None]},
        {"from": ["human", "gpt"], "value": ["Q", "A"], "weight": None},
        [json.dumps(USER), json.dumps(ANSWER)],
    ],
)
def test_lists_of_pandas_and_columns_of_arrow_are_messages(messages: Any) -> None:
    assert texts(read({"conversations": messages})) == TALK


def test_a_quote_within_a_list_of_pandas_stays() -> None:
    said = 'it\'s "so"\n\\n é'
    assert texts(read({"messages": repr([{"role": "user", "content": said}, ANSWER])}))[0] == ("user", said)
    tools = repr([{"name": "f", "description": "it's", "parameters": None}])
    assert read({"messages": [USER, ANSWER], "tools": tools}).tools == ({"name": "f", "description": "it's"},)


@pytest.mark.parametrize(
    "text",
    [
        "[{'role': 'user', 'content': 'Q'}\n {'role': 'user', 'content': 'Q'}]",  # NumPy leaves out the comma
        "[{'role': 'user', 'content': 'a' 'b'}]",  # Python would join them
        "[{'role': 'user', 'content': b'Q'}]",
        "[{'role': 'user', 'content': 'Q'}, …]",
    ],
)
def test_a_list_that_cannot_be_read_is_no_text_of_a_question(text: str) -> None:
    assert refused({"prompt": text, "response": "A"})[0] is Refusal.NO_MESSAGES
    assert texts(read({"prompt": "[Note] 'Q'", "response": "A"})) == [("user", "[Note] 'Q'"), ("assistant", "A")]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
def test_a_file_of_another_encoding_is_named_with_the_command_that_helps(tmp_path: Path, encoding: str) -> None:
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).write_bytes("prompt,response\nQ,A\n".encode(encoding))
        with pytest.raises(SourceError, match=encoding) as unread:
            open_chat([tmp_path / name], ChatConversion())
        assert unread.value.remedy is not None
        assert unread.value.remedy.startswith(f"iconv -f {encoding} -t UTF-8 ")


# --- Answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["solution", "rationale", "Complex_CoT", "explanation"])
def test_a_longer_text_beside_the_answer_is_asked_about(key: str) -> None:
    record = {"question": "Q", key: "First S, then 2.", "answer": "2"}
    reason, options = refused(record)
    assert reason is Refusal.ANSWER_BESIDE
    assert options == [f"--map answer={key}", f"--map reasoning={key}", f"--metadata {key}"]
    assert texts(read(record, options[0])) == [("user", "Q"), ("assistant", "First S, then 2.")]
    assert read(record, options[1]).turns[1].reasoning == ("First S, then 2.",)
    assert texts(read(record, options[2])) == [("user", "Q"), ("assistant", "2")]
    assert texts(read({**record, "answer": "First S, then 2. So 2."}))[1][1] == "First S, then 2. So 2."


def test_an_answer_beside_messages_is_named() -> None:
    for value in ("A", ANSWER, [ANSWER], {"role": "assistant", "content": [{"type": "text", "text": "A"}]}):
        for messages, expected in (([USER], TALK), ([*_earlier(), USER], EARLIER)):
            reason, options = refused({"messages": messages, "response": value})
            assert (reason, options) == (Refusal.UNANSWERED, ["--map query=messages,answer=response"])
            done = read({"messages": messages, "response": value}, "--map query=messages", "--map answer=response")
            assert texts(done) == expected
    assert texts(read({"messages": [USER, ANSWER], "answer": "2"})) == TALK


def _earlier() -> list[dict[str, str]]:
    return [{"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1"}]


@pytest.mark.parametrize("key", ["rejected", "rejected_response", "non_preferred_output"])
def test_no_option_trains_the_rejected_answer(key: str) -> None:
    for meaning in ("answer", "messages", "query", "reasoning"):
        with pytest.raises(SpanloomError, match="rejected"):
            key_map([f"{meaning}={key}"])
    assert texts(read({"query": "Q", "response": "A", key: "B"})) == TALK


@pytest.mark.parametrize("value", [0, 1, "0", "1", 0.0])
def test_a_label_of_zero_or_one_may_be_a_class_and_is_asked_about(value: Any) -> None:
    for record in ({**ASKED, "label": value}, {"messages": [USER, ANSWER], "label": value}):
        reason, options = refused(record)
        assert (reason, options) == (Refusal.LABEL_UNCLEAR, ["--map preferred=label", "--metadata label"])
        assert texts(read(record, options[1])) == TALK
        if float(value):
            assert texts(read(record, options[0])) == TALK
        else:
            with pytest.raises(RecordLeftOutError):
                read(record, options[0])
    for other in (2, "spam", 0.5, [0]):
        assert texts(read({**ASKED, "label": other})) == TALK


def test_kto_tags_of_zero_are_left_out_and_other_keys_by_option() -> None:
    for record, option in (({**ASKED, "kto_tag": 0}, "--drop x"), ({**ASKED, "liked": False}, "--map preferred=liked")):
        with pytest.raises(RecordLeftOutError):
            read(record, option)
    assert refused({**ASKED, "liked": "so-so"}, "--map preferred=liked") == (
        Refusal.LABEL_UNCLEAR,
        ["--metadata liked"],
    )


@pytest.mark.parametrize("key", ["train", "loss", "train_on_turn"])
def test_a_record_whose_own_flag_is_false_is_asked_about(key: str) -> None:
    for record in ({**ASKED, key: False}, {"messages": [USER, ANSWER], key: False}):
        reason, options = refused(record)
        assert (reason, options) == (Refusal.LABEL_UNCLEAR, [f"--map preferred={key}"]), "no remedy trains it"
        with pytest.raises(RecordLeftOutError):
            read(record, options[0])
    assert texts(read({**ASKED, key: 0.37})) == TALK, "a loss that was measured"


def test_a_weight_within_a_message_has_a_remedy_that_can_be_pasted() -> None:
    part = {"role": "assistant", "content": [{"type": "text", "text": "A", "weight": 0}]}
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}, "weight": 0}]}
    for message in (part, call, {**ANSWER, "label": False}):
        assert refused({"messages": [USER, message]}) == (Refusal.WEIGHT_ZERO, ["--max-rejects 100%"])
    assert refused({**ASKED, "weight": 0}) == (Refusal.WEIGHT_INVALID, ["--max-rejects 100%"])
    assert refused({**ASKED, "weight": -1}) == (Refusal.WEIGHT_INVALID, ["--max-rejects 100%", "--metadata weight"])


# --- Questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["chat_history", "conversation_history"])
def test_earlier_turns_under_other_names(key: str) -> None:
    assert texts(read({**ASKED, key: [["Q1", "A1"]]})) == EARLIER
    cohere = [{"role": "USER", "message": "Q1"}, {"role": "CHATBOT", "message": "A1"}]
    assert texts(read({**ASKED, key: cohere})) == EARLIER


@pytest.mark.parametrize("key", ["options", "choices", "sql_context", "passage_2", "Context", "retrieved_documents"])
def test_more_names_of_a_text_that_the_question_is_about(key: str) -> None:
    reason, options = refused({**ASKED, key: "C"})
    assert (reason, options[-1]) == (Refusal.INPUT_BESIDE, f"--metadata {key}")
    assert texts(read({**ASKED, key: "C"}, options[0])) == [("user", "Q\n\nC"), ("assistant", "A")]
    assert refused({**ASKED, key: ["C", "D"]})[1] == [f"--metadata {key}"]
    for other in ("context_length", "document_id", "knowledge_cutoff_year", "options_count"):
        assert texts(read({**ASKED, other: "C"})) == TALK


@pytest.mark.parametrize("key", ["context", "documents", "retrieved_passages", "passage_2"])
def test_a_text_beside_messages_is_asked_about(key: str) -> None:
    record = {"messages": [USER, ANSWER], key: "C"}
    reason, options = refused(record)
    assert (reason, options) == (Refusal.INPUT_BESIDE, [f"--map system={key}", f"--metadata {key}"])
    assert texts(read(record, options[0])) == [("system", "C"), *TALK]
    assert texts(read(record, options[1])) == TALK
    both = {**record, "system": "S"}
    assert texts(read(both, refused(both)[1][0])) == [("system", "S\n\nC"), *TALK]
    assert texts(read({**record, key: "Q"})) == TALK, "a message says it"
    assert refused({**record, key: [{"data": "C"}]})[1] == [f"--metadata {key}"]


@pytest.mark.parametrize("key", ["image_path", "img", "image_url", "input_audio", "Images", "video_ids"])
def test_columns_that_point_to_media_refuse_their_record(key: str) -> None:
    assert refused({**ASKED, key: "a.png"}) == (Refusal.MEDIA, [f"--drop {key}"])
    for other in ({"image_count": "3"}, {"imagery": "x"}, {"has_video": False}, {"video": ""}):
        assert texts(read({**ASKED, **other})) == TALK


def test_a_transcript_that_ends_where_the_answer_begins_is_messages() -> None:
    prompt = "\n\nHuman: Q1\n\nAssistant: A1\n\nHuman: Q\n\nAssistant:"
    assert texts(read({"prompt": prompt, "completion": " A"})) == EARLIER
    assert texts(read({"prompt": prompt, "chosen": " A", "rejected": " B"})) == EARLIER
    assert texts(read({"prompt": prompt[:-10], "completion": " A"}))[0] == ("user", prompt[:-10])
    assert texts(read({"prompt": "Q", "completion": " A"})) == [("user", "Q"), ("assistant", " A")]


def test_the_word_for_no_input_is_none() -> None:
    assert texts(read({"instruction": "Q", "input": "<noinput>", "output": "A"})) == TALK
    assert texts(read({"instruction": "", "input": "Q", "output": "A"})) == TALK
    assert texts(read({"inputs": "Q", "targets": "A"})) == TALK


def test_a_system_text_under_another_name() -> None:
    assert texts(read({**ASKED, "system_message": "S"})) == [("system", "S"), *TALK]


@pytest.mark.parametrize("value", ["low", "High"])
def test_an_effort_is_no_reasoning(value: str) -> None:
    reason, options = refused({**ASKED, "reasoning": value})
    assert (reason, options) == (Refusal.SETTING_INVALID, ["--map effort=reasoning", "--metadata reasoning"])
    assert read({**ASKED, "reasoning": value}, options[0]).settings == {"reasoning_effort": value}
    assert read({**ASKED, "reasoning": value}, options[1]).rest == {"reasoning": value}
    for said in (True, False):
        assert read({**ASKED, "reasoning": said}).rest == {"reasoning": said}


def test_the_effort_of_a_response_is_its_setting() -> None:
    record = {"input": [USER], "output": [{"type": "message", **ANSWER}], "reasoning": {"effort": "high"}}
    assert read(record).settings == {"reasoning_effort": "high"}
    custom = {"input": [USER, {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}, ANSWER]}
    assert refused(custom) == (Refusal.PART_UNKNOWN, ["--drop part:custom_tool_call"])


# --- Keys, roles, markup ---------------------------------------------------------------------------------------------


def test_a_key_has_one_meaning() -> None:
    with pytest.raises(SpanloomError, match="two meanings"):
        key_map(["id=prompt", "query=prompt"])
    assert key_map(["query=a", "query=b"]).names["query"] == ("b",)
    with pytest.raises(SourceError, match="no known form"):
        recognise({"prompt": "Q", "response": "A"}, key_map(["id=prompt"]), "here")


def test_all_keys_without_a_place_are_named_at_once() -> None:
    record = {"messages": [USER, {**ANSWER, "grade": 3, "odd": "x"}]}
    assert refused(record) == (Refusal.KEY_UNKNOWN, ["--drop grade,odd"])
    assert texts(read(record, "--drop grade,odd")) == TALK


def test_a_count_under_the_name_of_messages_is_metadata() -> None:
    assert read({**ASKED, "turns": 1, "conversation": "c17"}).rest == {"turns": 1, "conversation": "c17"}


@pytest.mark.parametrize(
    ("record", "options"),
    [
        ({"Question": "Q", "Response": "A"}, "--map query=Question,answer=Response"),
        (
            {"Question": "Q", "Reasoning": "R", "Response": "A"},
            "--map query=Question,answer=Response,reasoning=Reasoning",
        ),
        ({"problem": "Q", "generated_solution": "A"}, "--map query=problem,answer=generated_solution"),
        ({"dialog": [USER, ANSWER]}, "--map messages=dialog"),
        ({"Messages": [USER, ANSWER]}, "--map messages=Messages"),
    ],
)
def test_the_remedy_of_an_unknown_form_can_be_pasted(record: dict[str, Any], options: str) -> None:
    with pytest.raises(SourceError) as unknown:
        recognise(record, key_map(()), "here")
    assert unknown.value.remedy == options
    assert texts(read(record, options)) == TALK


def test_records_that_lie_deeper_are_named() -> None:
    remedies = []
    for record in (
        {"version": 1, "data": [{"messages": [USER, ANSWER]}]},
        {"message_id": "b", "parent_id": "a", "role": "assistant", "text": "A"},
        {"text": "<|im_start|>user\nQ<|im_end|>"},
        {"prompt;response": "Q;A"},
    ):
        with pytest.raises(SourceError) as unknown:
            recognise(record, key_map(()), "here")
        remedies.append(unknown.value.remedy or "")
    assert "jq -c '.data[]'" in remedies[0]
    assert "one record for each path" in remedies[1]
    assert "<|im_start|>" in remedies[2]
    assert "commas" in remedies[3]


@pytest.mark.parametrize("role", ["ipython", "function_response", "tool_result"])
def test_more_names_of_roles(role: str) -> None:
    call = {"role": "chatbot", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}], "action": "f()"}
    done = read({"messages": [USER, call, {"role": role, "content": "4"}, ANSWER]})
    assert [turn.role for turn in done.turns] == ["user", "assistant", "tool", "assistant"]
    assert done.message_metadata == ({"message": 1, "action": "f()"},)


@pytest.mark.parametrize("key", ["reasoning_content", "thinking"])
def test_tags_around_a_reasoning_of_its_own_key(key: str) -> None:
    record = {"messages": [USER, {**ANSWER, key: "<think>\nR\n</think>\n"}]}
    assert refused(record) == (Refusal.THINK_TAGS, ["--think-tags takes", "--text-as-is keeps"])
    assert read(record, think_tags=True).turns[1].reasoning == ("R",)
    assert read(record, text_as_is=True).turns[1].reasoning == ("<think>\nR\n</think>\n",)
    kept = {"messages": [USER, {**ANSWER, key: "So <think> is a tag: <b>"}]}
    assert read(kept).turns[1].reasoning == ("So <think> is a tag: <b>",)


@pytest.mark.parametrize("role", ["reasoning", "thinking", "thought"])
def test_a_turn_of_reasoning_belongs_to_the_answer_behind_it(role: str) -> None:
    done = read(
        {
            "conversations": [
                {"from": "human", "value": "Q"},
                {"from": role, "value": "R"},
                {"from": "gpt", "value": "A"},
            ]
        }
    )
    assert [(turn.role, turn.reasoning, turn.texts) for turn in done.turns] == [
        ("user", (), ("Q",)),
        ("assistant", ("R",), ("A",)),
    ]


def test_arguments_of_llama_are_kept_and_text_beside_parameters_is_not_lost() -> None:
    def says(body: str) -> dict[str, Any]:
        return {"messages": [USER, {"role": "assistant", "content": f"<function=f>{body}</function>"}]}

    (call,) = read(says('{"city": "Oslo"}'), call_tags="openhands").turns[1].calls
    assert call.arguments == '{"city": "Oslo"}'
    for body in ("Oslo", "<parameter=a>1</parameter> and more", "<parameter=a>x</parameter>y</parameter>"):
        assert refused(says(body), call_tags="openhands")[0] is Refusal.MARKUP_UNCLEAR


def test_an_answer_in_tags_behind_its_reasoning() -> None:
    said = {"messages": [USER, {"role": "assistant", "content": "<think>R</think>\n<answer>\nA\n</answer>"}]}
    turn = read(said, think_tags=True).turns[1]
    assert (turn.reasoning, turn.texts) == (("R",), ("A",))
    for text in ("<answer>A</answer>", "So <answer>A</answer>"):
        assert read({"messages": [USER, {"role": "assistant", "content": text}]}, think_tags=True).turns[1].texts == (
            text,
        )


# --- Forms -----------------------------------------------------------------------------------------------------------


def test_blocks_of_bedrock_are_refused_by_their_names() -> None:
    for name in ("image", "document", "video", "cachePoint"):
        record = {"messages": [{"role": "user", "content": [{"text": "Q"}, {name: {"format": "x"}}]}, ANSWER]}
        assert refused(record) == (Refusal.PART_UNKNOWN, [f"--drop part:{name}"])
        assert texts(read(record, f"--drop part:{name}")) == TALK


def test_scored_completions_without_a_best_are_refused() -> None:
    def scored(*scores: float) -> dict[str, Any]:
        completions = [{"score": score, "completion": {"role": "model", "parts": [{"text": "A"}]}} for score in scores]
        return {"contents": [{"role": "user", "parts": [{"text": "Q"}]}], "completions": completions}

    assert texts(read(scored(0.0, 1.0))) == TALK
    for scores in ((1.0, 1.0), ()):
        with pytest.raises(RecordRefusedError):
            texts(read({**scored(*scores), "completions": scored(*scores)["completions"] or [{}]}))


def test_texts_in_turn_under_the_name_of_conversations() -> None:
    assert texts(read({"conversations": ["Q1", "A1", "Q", "A"]})) == EARLIER
    assert refused({"turns": ["Q1", "Q2"], "id": "x"})[0] is Refusal.MESSAGE_NOT_OBJECT
