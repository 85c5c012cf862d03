"""What stands beside a conversation and would be lost, or trained although a verdict says no: refused with a remedy
that works when it is pasted. Texts that a program rendered or logged are no texts of a user or an answer.
"""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from spanloom.conversations.arranged import Arrangement, arranged
from spanloom.conversations.forms import ReadingOptions, read_record, recognise
from spanloom.conversations.turns import ChatRecord, Dropping, RecordRefusedError, Refusal
from spanloom.errors import SourceError
from support.read_chats import ANSWER, TALK, USER, texts

HUMAN = {"from": "human", "value": "Q"}
GPT = {"from": "gpt", "value": "A"}


def read(record: Any, **options: Any) -> ChatRecord:
    chosen = ReadingOptions(**options)
    form = recognise(record, chosen.keys, "here")
    dropping = Dropping(names=frozenset(chosen.drop))
    done = read_record(record, form, chosen.reading(), dropping)
    arranged(done, Arrangement(), dropping)
    return done


def refused(record: Any, **options: Any) -> tuple[Refusal, str]:
    with pytest.raises(RecordRefusedError) as caught:
        read(record, **options)
    return caught.value.reason, caught.value.remedy or ""


def after(remedy: str, record: Any) -> list[Any]:
    """The records that the remedy's program makes of a file with this record."""
    program = re.search(r"jq -c '([^']*)' FILE", remedy)
    if program is None or shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    command = ["jq", "-c", program[1]]
    done = subprocess.run(command, input=json.dumps(record), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- Calls, turns and texts beside messages ---------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "meaning"), [("rejected", "masked"), ("deleted", "masked"), ("correct", "trained")])
def test_a_verdict_on_a_message_is_read_and_not_dropped(key: str, meaning: str) -> None:
    for value in (True, False):
        record = {"messages": [USER, {**ANSWER, key: value}, USER, ANSWER]}
        reason, remedy = refused(record)
        assert reason is Refusal.KEY_UNKNOWN
        assert remedy.startswith(f"--map {meaning}={key} says whether it is trained")
        done = read(record, maps=(f"{meaning}={key}",))
        assert done.turns[1].trained is not (value == (meaning == "masked"))


def test_the_plan_of_a_call_becomes_reasoning() -> None:
    call = {"id": "f0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    planned = {"role": "assistant", "tool_plan": "I call f.", "tool_calls": [call]}
    record = {"messages": [USER, planned, {"role": "tool", "tool_call_id": "f0", "content": "1"}, ANSWER]}
    reason, remedy = refused(record)
    assert reason is Refusal.KEY_UNKNOWN
    (made,) = after(remedy, record)
    assert read(made).turns[1].reasoning == ("I call f.",)


def test_calls_beside_messages_that_have_none_are_not_lost() -> None:
    call = {"name": "look", "arguments": {"at": "x"}}
    for value in ([call], json.dumps([call]), call):
        reason, remedy = refused({"messages": [USER, ANSWER], "tool_calls": value})
        assert reason is Refusal.TOOL_CALL_INVALID
        assert remedy.endswith("; --metadata tool_calls leaves them out")
        assert texts(read({"messages": [USER, ANSWER], "tool_calls": value}, metadata=("tool_calls",))) == TALK
    called = {"role": "assistant", "tool_calls": [call]}
    done = read({"messages": [USER, called, {"role": "tool", "content": "1"}, ANSWER], "tool_calls": [call]})
    assert [len(turn.calls) for turn in done.turns] == [0, 1, 0, 0]
    nothings: list[Any] = [[], None, "", "none", 3]
    for nothing in nothings:
        assert texts(read({"messages": [USER, ANSWER], "tool_calls": nothing})) == TALK


def test_a_question_and_its_answer_after_the_messages_are_not_lost() -> None:
    record = {"messages": [USER, ANSWER], "question": "Q2", "answer": "A2"}
    reason, remedy = refused(record)
    assert reason is Refusal.INPUT_BESIDE
    assert remedy.endswith(", --metadata question,answer leaves it out")
    assert texts(read(record, metadata=("question", "answer"))) == TALK
    assert texts(read({**record, "question": "Q"})) == TALK  # the messages hold it
    assert texts(read({**record, "answer": "A"})) == TALK
    in_parts = [{"role": "user", "content": [{"type": "text", "text": "So: Q2"}]}, ANSWER]
    assert texts(read({**record, "messages": in_parts})) == [("user", "So: Q2"), ("assistant", "A")]
    (made,) = after(remedy, record)
    assert texts(read(made)) == [*TALK, ("user", "Q2"), ("assistant", "A2")]


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ({"conversations": [HUMAN], "chosen": GPT, "rejected": {**GPT, "value": "B"}}, "context"),
        ({"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]}, "passage"),
        ({"data": ["Q", "A"]}, "document"),
        ({"trajectory": [USER, ANSWER]}, "context"),
    ],
)
def test_a_text_that_messages_of_any_form_are_about_is_not_lost(record: Any, key: str) -> None:
    reason, remedy = refused({**record, key: "C is D."})
    assert (reason, remedy) == (
        Refusal.INPUT_BESIDE,
        f"--map system={key} puts it before the messages, --metadata {key} leaves it out",
    )
    assert texts(read({**record, key: "C is D."}, metadata=(key,))) == TALK
    assert texts(read({**record, key: ""})) == TALK


def test_a_system_text_that_the_record_repeats_is_one_message() -> None:
    system = {"role": "system", "content": "Be brief."}
    done = read({"system_prompt": "Be brief.\n", "messages": [system, USER, ANSWER]})
    assert texts(done) == [("system", "Be brief."), *TALK]
    done = read({"system_prompt": "Be kind.", "messages": [system, USER, ANSWER]})
    assert texts(done) == [("system", "Be kind."), ("system", "Be brief."), *TALK]


def test_replies_of_gemini_and_bedrock_beside_a_request_are_its_answer() -> None:
    asked = {"contents": [{"role": "user", "parts": [{"text": "Q"}]}]}
    said = {"content": {"role": "model", "parts": [{"text": "A"}]}, "finishReason": "MAX_TOKENS"}
    record = {**asked, "response": {"candidates": [said]}}
    reason, remedy = refused(record)
    assert reason is Refusal.UNANSWERED
    (made,) = after(remedy, record)
    done = read(made)
    assert texts(done) == TALK
    assert done.turns[-1].truncated
    reply = {"role": "assistant", "content": [{"type": "text", "text": "A"}], "stop_reason": "end_turn"}
    record = {"messages": [USER], "modelOutput": reply}
    assert refused(record) == (Refusal.UNANSWERED, "--map query=messages,answer=modelOutput appends it to the messages")
    assert texts(read(record, maps=("query=messages", "answer=modelOutput"))) == TALK


# --- Beside a question and its answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["code", "starter_code", "sample_code", "code_snippet"])
def test_code_beside_question_and_answer_may_be_what_is_asked_about(key: str) -> None:
    code = "def f(n):\n    return n"
    record = {key: code, "input": "1", "output": "2"}
    reason, remedy = refused(record)
    assert reason is Refusal.INPUT_BESIDE
    assert remedy.startswith(f"--map query=input+{key} appends it to the question, --metadata {key} leaves it out")
    assert texts(read(record, maps=(f"query=input+{key}",)))[0] == ("user", f"1\n\n{code}")
    assert texts(read({**record, "output": f"So:\n{code}\n"}))[0] == ("user", "1")
    assert texts(read({**record, key: "E404"})) == [("user", "1"), ("assistant", "2")]
    assert texts(read({**record, "lang_code": "en"}, metadata=(key,))) == [("user", "1"), ("assistant", "2")]


@pytest.mark.parametrize("key", ["ground_truth", "groundTruth", "target", "reference_answer", "raw_answer", "sql"])
def test_the_truth_beside_a_try_is_asked_about(key: str) -> None:
    record = {"question": "Q", "answer": "A", key: "It is B."}
    reason, remedy = refused(record)
    assert reason is Refusal.ANSWER_BESIDE
    assert remedy.startswith(f"--map answer={key} trains it in place of answer, ")
    assert texts(read(record, maps=(f"answer={key}",)))[1] == ("assistant", "It is B.")
    assert texts(read(record, metadata=(key,))) == TALK
    assert texts(read({**record, "answer": "Since C, It is B."}))[1] == ("assistant", "Since C, It is B.")
    assert texts(read({**record, key: 3})) == TALK


def test_a_record_that_goes_on_from_another_one_is_not_trained_alone() -> None:
    record = {"instruction": "Q", "output": "A", "id": "2", "parent_id": "1"}
    reason, remedy = refused(record)
    assert reason is Refusal.INPUT_BESIDE
    assert remedy.endswith(", --metadata parent_id trains each by itself")
    assert texts(read(record, metadata=("parent_id",))) == TALK
    assert texts(read({**record, "parent_id": None})) == TALK


# --- Texts that a program wrote ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        {"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "A"}}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "A"}]}}]},
        {"text": "A", "finish_reason": "stop"},
    ],
)
def test_the_json_of_a_servers_reply_is_no_answer(reply: Any) -> None:
    record = {"prompt": "Q", "response": json.dumps(reply)}
    assert refused(record) == (Refusal.CONTENT_NOT_TEXT, "--text-as-is keeps it as text")
    assert texts(read(record, text_as_is=True))[1] == ("assistant", json.dumps(reply))


@pytest.mark.parametrize("answer", [{"choices": [{"label": "A", "text": "x"}]}, {"candidates": [{"content": "x"}]}])
def test_the_json_that_an_answer_is_to_be_stays(answer: Any) -> None:
    assert texts(read({"prompt": "Q", "response": json.dumps(answer)}))[1] == ("assistant", json.dumps(answer))


@pytest.mark.parametrize(
    ("question", "end"),
    [
        ("<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>assistant"),
        ("<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\\n<think>"),
        ("<|user|>\nQ\n<|assistant|>\n", "<|assistant|>"),
        ("<s>[INST] Q [/INST]", "[/INST]"),
        ("<start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\n", "<start_of_turn>model"),
        ("<extra_id_1>User\nQ\n<extra_id_1>Assistant\n", "<extra_id_1>Assistant"),
        ("Below is …\n\n### Instruction:\nQ\n\n### Response:\n", "### Response:"),
        ("User: Q\nAssistant:", "Assistant:"),
        ("Human: Q Assistant:", "Assistant:"),
        ("A chat. USER: Q ASSISTANT:", "ASSISTANT:"),
        ("Be kind.\n\nHuman: Q\n\nAssistant:", "Assistant:"),
        ("Q1<extra_id_1>Assistant\nA1\n<extra_id_1>User\nQ", "<extra_id_1>Assistant"),
        ("<s>[INST] Q1 [/INST] A1 </s><s>[INST] Q", "[/INST]"),
        ("### Instruction:\nQ\n\n### Output:\nThe answer", "### Output:"),
    ],
)
def test_a_question_that_a_template_rendered_is_no_text_of_the_user(question: str, end: str) -> None:
    answer = "The answer" if question.endswith("The answer") else "A"
    asked = {"prompt": question, "instruction": "Q", "input": ""}
    for record in ({**asked, "completion": answer}, {**asked, "chosen": answer, "rejected": "B"}):
        with pytest.raises(RecordRefusedError) as caught:
            read(record)
        assert (caught.value.reason, end in caught.value.detail) == (Refusal.MARKUP, True)
        remedy = (
            "--map query=instruction+input --metadata prompt reads what was rendered, --text-as-is keeps it as text"
        )
        assert caught.value.remedy == remedy
        bare = read(record, maps=("query=instruction+input",), metadata=("prompt",))
        assert texts(bare) == [("user", "Q"), ("assistant", answer)]
        assert texts(read(record, text_as_is=True)) == [("user", question), ("assistant", answer)]
        reason, remedy = refused({key: record[key] for key in record if key not in ("instruction", "input")})
        assert (reason, remedy) == (
            Refusal.MARKUP,
            "give the messages that were rendered; --text-as-is keeps it as text",
        )


@pytest.mark.parametrize(
    "question",
    [
        "What does <|im_end|> do in a prompt?",
        "Question: Q\nAnswer:",
        "Who wrote this? Assistant:",
        "Explain the heading ### Response:",
        "Is [/INST] or <|assistant|> closed?",
        "Say it again: A",
    ],
)
def test_a_question_about_a_template_is_one(question: str) -> None:
    assert texts(read({"prompt": question, "completion": "A"})) == [("user", question), ("assistant", "A")]


def test_a_transcript_of_human_and_assistant_is_read_as_before() -> None:
    record = {"prompt": "\n\nHuman: Q\n\nAssistant:", "completion": " A"}
    assert texts(read(record)) == TALK


def test_a_transcript_may_have_a_turn_a_line() -> None:
    second = [("user", "Q2"), ("assistant", "A2\n\nmore")]
    lines = "Human: Q\nAssistant: A\nHuman: Q2\nAssistant: A2\n\nmore"
    assert texts(read({"chosen": lines, "rejected": lines})) == [*TALK, *second]
    assert texts(read({"prompt": lines.removesuffix(" A2\n\nmore"), "completion": " A2\n\nmore"})) == [*TALK, *second]


@pytest.mark.parametrize(
    "record",
    [
        {"chosen": "\n\nHuman: Q\n\nAssistant: A\nHuman: Q2\nAssistant: A2", "rejected": "B"},
        {"chosen": "\n\nHuman: Q\nAssistant: A\n\nHuman: Q2\n\nAssistant: A2", "rejected": "B"},
        {"prompt": "\n\nHuman: Q\n\nAssistant:", "completion": "A\n\nHuman: Q2"},
    ],
)
def test_a_turn_of_a_transcript_that_holds_another_is_not_trained(record: Any) -> None:
    assert refused(record) == (Refusal.MARKUP_UNCLEAR, "--text-as-is keeps it as text")
    assert "Q2" in "".join(text for _, text in texts(read(record, text_as_is=True)))


def test_reasoning_that_was_redacted_is_no_reasoning() -> None:
    thought = {"type": "reasoning", "reasoning": "R", "redacted": False}
    said = {"type": "text", "text": "A"}
    done = read({"messages": [USER, {"role": "assistant", "content": [thought, said]}]})
    assert (done.turns[1].reasoning, done.turns[1].texts) == (("R",), ("A",))
    record = {"messages": [USER, {"role": "assistant", "content": [{**thought, "redacted": True}, said]}]}
    assert refused(record) == (Refusal.PART_UNKNOWN, "--drop part:reasoning leaves all reasoning out")
    assert texts(read(record, drop=("part:reasoning",))) == TALK


# --- Remedies that lose nothing ---------------------------------------------------------------------------------------


def test_records_within_a_list_of_a_known_name_are_taken_out() -> None:
    for record in (
        {"conversations": [{"id": "1", "turns": [USER, ANSWER]}, {"id": "2", "turns": [USER, ANSWER]}]},
        {"system": "Be brief.", "conversations": [{"messages": [USER, ANSWER]}]},
    ):
        with pytest.raises(SourceError, match="a list of records") as caught:
            read(record)
        made = after(caught.value.remedy or "", record)
        assert len(made) == len(record["conversations"])
        assert [text for text in texts(read(made[0])) if text[0] != "system"] == TALK
        assert ("system", "Be brief.") in texts(read(made[0])) or "system" not in record


def test_a_dialogue_of_utterances_keeps_its_texts() -> None:
    """Schema-Guided Dialogue and MultiWOZ: the system is the one that answers."""
    turns = [{"speaker": "USER", "utterance": "Q"}, {"speaker": "SYSTEM", "utterance": "A"}]
    record = {"dialogue_id": "1", "turns": turns}
    reason, remedy = refused(record)
    assert reason is Refusal.CONTENT_MISSING
    (made,) = after(remedy, record)
    reason, remedy = refused(made)
    assert (reason, remedy) == (Refusal.NO_ASSISTANT, "--role system=assistant if the system answers the user")
    assert texts(read(made, roles=("system=assistant",))) == TALK


BY_AUTOGEN = [{"type": "UserMessage", "content": "Q"}, {"type": "AssistantMessage", "content": "A"}]
BY_FLAG = [{"message": "Q", "is_human": True}, {"message": "A", "is_human": False}]


@pytest.mark.parametrize(
    ("record", "why", "conversations"),
    [
        ({"conversation": BY_FLAG}, Refusal.ROLE_UNKNOWN, 1),
        ({"messages": BY_AUTOGEN}, Refusal.ROLE_UNKNOWN, 1),
        ({"instruction": "Q", "input": "", "output": {"chosen": "A", "rejected": "B"}}, Refusal.CONTENT_NOT_TEXT, 1),
        ({"instruction": ["Q", "Q"], "input": ["", ""], "output": ["A", "A"]}, Refusal.CONTENT_NOT_TEXT, 2),
        ({"prompt": [[USER], [USER]], "completion": [[ANSWER], [ANSWER]]}, Refusal.CONTENT_NOT_TEXT, 2),
    ],
)
def test_the_program_of_a_remedy_makes_records_that_are_read(record: Any, why: Refusal, conversations: int) -> None:
    reason, remedy = refused(record)
    assert reason is why
    assert [texts(read(one)) for one in after(remedy, record)] == [TALK] * conversations


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "human", "data": {"content": "Q", "type": "human"}}, {"type": "ai", "data": {"content": "A"}}],
        [
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "schema", f"{name}Message"],
                "kwargs": {"content": text},
            }
            for name, text in [("Human", "Q"), ("AI", "A")]
        ],
        [{"source": "user", "content": "Q"}, {"source": "assistant", "content": "A"}],
    ],
    ids=["messages_to_dict of LangChain", "dumps of LangChain", "AgentChat"],
)
def test_objects_of_other_libraries_are_messages_after_the_remedy(messages: list[Any]) -> None:
    reason, remedy = refused({"messages": messages})
    assert reason is Refusal.ROLE_UNKNOWN
    (made,) = after(remedy, {"messages": messages})
    assert texts(read(made)) == TALK


def test_replies_within_a_message_are_not_dropped() -> None:
    tree = {"messages": [{**USER, "children": [ANSWER]}]}
    reason, remedy = refused(tree)
    assert reason is Refusal.KEY_UNKNOWN
    assert remedy.startswith("'children' holds the replies: write one record for each path through them")


def of_chatgpt(role: str, parts: list[Any] | None, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": parts} if parts is not None else {"content_type": "code", "text": "x"}
    author = {"role": role, "name": None, "metadata": {}}
    return {"id": "i", "author": author, "content": content, "status": "", "weight": 1.0, "recipient": "all", **more}


def test_an_export_of_chatgpt_becomes_the_path_that_was_shown_last() -> None:
    said = [
        ("s", None, ["q"], of_chatgpt("system", [""], weight=0.0)),
        ("q", "s", ["b", "a"], of_chatgpt("user", ["Q"])),
        ("b", "q", [], of_chatgpt("assistant", ["another"])),
        ("a", "q", [], of_chatgpt("assistant", ["A"])),
    ]
    nodes = {name: {"id": name, "parent": up, "children": down, "message": each} for name, up, down, each in said}
    nodes["s"]["parent"], nodes["r"] = "r", {"id": "r", "message": None, "parent": None, "children": ["s"]}
    record = {"id": "c", "title": "t", "mapping": nodes, "current_node": "a"}

    def made() -> Any:
        with pytest.raises(SourceError) as caught:
            read(record)
        return after(caught.value.remedy or "", record)[0]

    assert texts(read(made())) == TALK
    for other, reason in [
        (of_chatgpt("assistant", None), Refusal.ASSISTANT_EMPTY),
        (of_chatgpt("assistant", [{"content_type": "image_asset_pointer"}, "A"]), Refusal.CONTENT_NOT_TEXT),
        (of_chatgpt("assistant", ["x"], recipient="python"), Refusal.KEY_UNKNOWN),
    ]:
        nodes["a"]["message"] = other
        assert refused(made())[0] is reason


def test_of_a_tree_of_openassistant_the_best_replies_are_taken() -> None:
    said = [("B", 1, {}), ("A", 0, {}), ("spam", None, {}), ("bad", 0, {"deleted": True})]
    replies = [{"role": "assistant", "text": text, "rank": rank, "replies": [], **more} for text, rank, more in said]
    record = {"message_tree_id": "t", "prompt": {"role": "prompter", "text": "Q", "replies": replies}}
    with pytest.raises(SourceError) as caught:
        read(record)
    (made,) = after(caught.value.remedy or "", record)
    assert texts(read(made)) == TALK


def test_of_two_conversations_the_winner_is_taken() -> None:
    loser = [USER, {"role": "assistant", "content": "B"}]
    record = {"winner": "model_b", "conversation_a": loser, "conversation_b": [USER, ANSWER]}
    with pytest.raises(SourceError) as caught:
        read(record)
    (made,) = after(caught.value.remedy or "", record)
    assert texts(read(made)) == TALK
    assert after(caught.value.remedy or "", {**record, "winner": "tie"}) == []


def test_reasoning_and_answer_beside_a_question_are_read_together() -> None:
    """Dolphin R1."""
    record = {"messages": [USER], "reasoning": "First this.", "answer": "A"}
    maps = ("query=messages", "reasoning=reasoning", "answer=answer")
    reason, remedy = refused(record)
    assert reason is Refusal.ANSWER_BESIDE
    assert remedy.startswith(f"--map {','.join(maps)} reads it")
    done = read(record, maps=maps)
    assert (texts(done), done.turns[1].reasoning) == (TALK, ("First this.",))


def test_the_definition_of_a_task_is_not_lost() -> None:
    record = {"definition": "Translate to French.", "inputs": "Q", "targets": "A"}
    reason, remedy = refused(record)
    assert reason is Refusal.INPUT_BESIDE
    assert remedy.startswith("--map query=inputs+definition appends it to the question")


# --- Answers that are no text, and records in lists ------------------------------------------------------------------


@pytest.mark.parametrize(("value", "text"), [(10000, "10000"), (2.5, "2.5"), (True, "true"), (False, "false")])
def test_numbers_and_truths_are_written_as_text(value: Any, text: str) -> None:
    record = {"question": "Q", "answer": value}
    reason, remedy = refused(record)
    assert reason is Refusal.CONTENT_NOT_TEXT
    (made,) = after(remedy, record)
    assert texts(read(made)) == [("user", "Q"), ("assistant", text)]
    assert after(remedy, {"question": "Q", "answer": "A"}) == [{"question": "Q", "answer": "A"}]


def test_lists_of_questions_and_answers_are_turns_or_records() -> None:
    record = {"input": ["Q", "Q2"], "output": ["A", "A2"], "id": "x"}
    reason, remedy = refused(record)
    assert reason is Refusal.CONTENT_NOT_TEXT
    turns, columns = remedy.split("; if they are columns")
    (made,) = after(turns, record)
    assert texts(read(made)) == [*TALK, ("user", "Q2"), ("assistant", "A2")]
    assert [texts(read(one)) for one in after(columns, record)] == [TALK, [("user", "Q2"), ("assistant", "A2")]]
    assert refused({**record, "output": ["A"]}) == (Refusal.CONTENT_NOT_TEXT, "")


def test_a_list_of_conversations_becomes_a_record_of_each() -> None:
    turns = [USER, ANSWER]
    records: list[Any] = [
        {"messages": [turns, turns], "id": "x"},
        {"conversations": [[HUMAN, GPT]] * 2},
        [turns, turns],
    ]
    for record in records:
        with pytest.raises(SourceError) as caught:
            read(record)
        assert [texts(read(one)) for one in after(caught.value.remedy or "", record)] == [TALK, TALK]


@pytest.mark.parametrize("reply", [{"choices": [{"message": ANSWER}]}, {"content": "A"}])
def test_a_reply_of_a_server_is_made_a_message(reply: Any) -> None:
    reason, remedy = refused({"prompt": "Q", "response": reply})
    assert reason is Refusal.CONTENT_NOT_TEXT
    (made,) = after(remedy, {"prompt": "Q", "response": reply})
    assert texts(read(made)) == TALK
    record = {"messages": [USER], "response": {**reply, "reasoning": "R"}, "reasoning": "R is long"}
    reason, remedy = refused(record, metadata=() if "content" in reply else ("reasoning",))
    assert reason is Refusal.UNANSWERED
    (made,) = after(remedy, record)
    assert texts(read(made, metadata=("reasoning",))) == TALK


@pytest.mark.parametrize("key", ["expected", "corrected_response", "revised_answer"])
def test_a_truth_or_a_better_answer_is_not_passed_over(key: str) -> None:
    record = {"input": "Q", "output": "A", key: "B"}
    assert refused(record)[0] is Refusal.ANSWER_BESIDE
    assert texts(read(record, metadata=(key,))) == TALK


@pytest.mark.parametrize("content", ["B", [{"type": "text", "text": "B"}]])
def test_a_reply_beside_the_beginning_of_its_answer_is_not_lost(content: Any) -> None:
    message = {"role": "assistant", "content": content}
    replies: list[Any] = [("response", message), ("choices", [{"message": message}])]
    for key, reply in [*replies, ("response", {"choices": [{"message": message}]})]:
        record = {"messages": [USER, ANSWER], key: reply}
        assert refused(record)[0] is Refusal.ANSWER_BESIDE
        assert texts(read(record, metadata=(key,))) == TALK
        whole = {"messages": [USER, {**ANSWER, "content": "A and B"}], key: reply}
        assert texts(read(whole)) == [("user", "Q"), ("assistant", "A and B")]
    assert texts(read({"messages": [USER, ANSWER], "choices": ["a", "b"], "response": {"status": 200}})) == TALK


@pytest.mark.parametrize("key", ["row", "the row"])
def test_rows_of_a_viewer_are_taken_out(key: str) -> None:
    for row in ({"question": "Q", "answer": "A"}, {"messages": [USER, ANSWER]}):
        record = {"features": [], "rows": [{"row_idx": 0, key: row}, {"row_idx": 1, key: row}], "num_rows_total": 2}
        with pytest.raises(SourceError) as caught:
            read(record)
        assert [texts(read(one)) for one in after(caught.value.remedy or "", record)] == [TALK, TALK]


@pytest.mark.parametrize("within", [True, False])
def test_spans_of_opentelemetry_are_not_all_answers(within: bool) -> None:
    def span(operation: str) -> dict[str, Any]:
        said = {"gen_ai.operation.name": operation}
        return {**({"attributes": said} if within else said), "input": "Q", "output": "A"}

    for operation, kept in (("execute_tool", 0), ("invoke_agent", 0), ("chat", 1)):
        with pytest.raises(SourceError) as caught:
            read(span(operation))
        remedy = caught.value.remedy or ""
        made = after(remedy, span(operation))
        assert len(made) == kept
        assert "--map query=input,answer=output reads them" in remedy
        assert [texts(read(one, maps=("query=input", "answer=output"))) for one in made] == [TALK] * kept
    assert texts(read({"gen_ai.operation.name": "chat", "messages": [USER, ANSWER]})) == TALK
