"""What is said of a record of no known form works when it is pasted: the commands of jq are run, where there is jq."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal
from spanloom.errors import SourceError
from support.read_chats import ANSWER, TALK, USER


def remedy(record: Any) -> str:
    with pytest.raises(SourceError) as unknown:
        recognise(record, key_map(()), "here")
    return unknown.value.remedy or ""


def texts(record: Any) -> list[tuple[str, str]]:
    done = read_record(record, recognise(record, key_map(()), "here"), Reading(), Dropping(names=frozenset()))
    return [(turn.role, "".join(turn.texts)) for turn in done.turns]


def pasted(said: str, records: list[Any], folder: Path) -> list[list[tuple[str, str]]]:
    """The conversations that the command of a remedy makes of a file of these records, one a line."""
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (folder / "FILE").write_text("".join(json.dumps(record) + "\n" for record in records))
    command = said[said.index("jq ") : said.index(" > ")]
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True)
    return [texts(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("asked", ["", "the first"])
def test_an_instruction_beside_a_list_of_its_instances_goes_along(asked: str, tmp_path: Path) -> None:
    instances = [{"input": asked, "output": "A"}, {"input": "the second", "output": "B"}]
    record = {"id": "seed_1", "name": "n", "instruction": "Do", "instances": instances, "is_classification": False}
    first = f"Do\n\n{asked}" if asked else "Do"
    assert pasted(remedy(record), [record], tmp_path) == [
        [("user", first), ("assistant", "A")],
        [("user", "Do\n\nthe second"), ("assistant", "B")],
    ]


def test_records_in_a_list_of_an_object_are_taken_out(tmp_path: Path) -> None:
    for key in ("data", "1 all"):
        record = {"version": 1, key: [{"messages": [USER, ANSWER]}, {"messages": [USER, ANSWER]}]}
        assert pasted(remedy(record), [record], tmp_path) == [TALK, TALK]


def test_records_in_several_lists_are_all_named() -> None:
    said = remedy({"train": [{"messages": [USER, ANSWER]}], "test": [{"messages": [USER, ANSWER]}]})
    assert "'train', 'test'" in said
    assert "those of the first" in said


def test_completions_that_were_sampled_for_a_question_are_no_records() -> None:
    record = {"question": "Q", "inferences": [{"completion": "A", "pass_rate": 1.0}, {"completion": "B"}]}
    assert "inferences" not in remedy(record)


def test_an_object_that_holds_messages_is_opened(tmp_path: Path) -> None:
    record = {"conversation": {"messages": [USER, ANSWER]}, "topic": "t"}
    assert pasted(remedy(record), [record], tmp_path) == [TALK]


def test_a_message_a_record_is_one_conversation(tmp_path: Path) -> None:
    assert pasted(remedy(USER), [USER, ANSWER], tmp_path) == [TALK], "a message a line"
    assert pasted(remedy(USER), [[USER, ANSWER]], tmp_path) == [TALK], "an array of messages"


def test_messages_without_an_answer_are_not_mapped_to_a_conversation() -> None:
    record = {"data_source": "d", "prompt": [USER], "reward_model": {"style": "rule", "ground_truth": "A"}}
    assert "--map" not in remedy(record)
    assert "no answer" in remedy(record)
    assert remedy({"dialog": [USER], "solution": "A"}) == "--map query=dialog,answer=solution"
    assert remedy({"dialog": [USER, ANSWER]}) == "--map messages=dialog"
    named = [{"role": "Ann", "content": "Q"}, {"role": "Ben", "content": "A"}]
    assert remedy({"dialog": named}) == "--map messages=dialog", "roles by --role"


def test_events_of_claude_code_are_gathered_by_session(tmp_path: Path) -> None:
    events: list[Any] = [
        {"type": "summary", "summary": "S", "leafUuid": "2"},
        {"type": "user", "sessionId": "b", "uuid": "1", "isSidechain": False, "message": USER},
        {"type": "user", "sessionId": "b", "uuid": "3", "isSidechain": True, "message": {**USER, "content": "aside"}},
        {"type": "user", "sessionId": "a", "uuid": "4", "message": {**USER, "content": "another"}},
        {"type": "system", "sessionId": "b", "message": "no message of the conversation"},
        {"type": "assistant", "sessionId": "b", "message": {**ANSWER, "model": "<synthetic>", "content": "API Error"}},
        [1],
        {"type": "assistant", "sessionId": "b", "uuid": "2", "message": {"type": "message", **ANSWER}},
    ]
    assert pasted(remedy(events[0]), events, tmp_path) == [[("user", "another")], TALK]
    assert remedy(events[1]) == remedy(events[0])


def test_events_of_codex_are_gathered(tmp_path: Path) -> None:
    items = [{"type": "message", **USER}, {"type": "message", **ANSWER}]
    events = [
        {"type": "session_meta", "payload": {"id": "s"}},
        *({"type": "response_item", "payload": item} for item in items),
        {"type": "event_msg", "payload": {"type": "agent_message", "message": "A"}},
    ]
    assert pasted(remedy(events[0]), events, tmp_path) == [TALK]


SPAN = {
    "id": "1",
    "traceId": "t",
    "parentObservationId": None,
    "input": json.dumps([USER]),
    "output": json.dumps(ANSWER),
}


def test_spans_of_a_trace_are_no_conversations(tmp_path: Path) -> None:
    spans = [
        {**SPAN, "type": "TOOL", "input": '{"city": "Oslo"}', "output": "4"},
        {**SPAN, "type": "GENERATION"},
    ]
    said = remedy(spans[1])
    assert said == remedy(spans[0])
    (tmp_path / "FILE").write_text("".join(json.dumps(span) + "\n" for span in spans))
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    command = said[said.index("jq ") : said.index(" > ")]
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    (span,) = map(json.loads, done.stdout.splitlines())
    keys = key_map(said[said.index("--map ") + 6 :].split()[0].split(","))
    form = recognise(span, keys, "here")
    read = read_record(span, form, Reading(), Dropping(names=frozenset()))
    assert [(turn.role, "".join(turn.texts)) for turn in read.turns] == TALK


@pytest.mark.parametrize(
    ("span", "program"),
    [
        ({"trace_id": "t", "run_type": "chain", "inputs": {}, "outputs": {}}, 'select(.run_type == "llm")'),
        ({"trace_id": "t", "type": "generation", "input": "Q", "output": "A"}, 'select(.type == "generation")'),
        ({"trace_id": "t", "span_kind": "TOOL", "input": "Q", "output": "A"}, 'select(.span_kind == "LLM")'),
    ],
)
def test_spans_are_selected_by_the_key_of_their_type(span: dict[str, Any], program: str) -> None:
    assert program in remedy(span)


def test_spans_in_a_list_are_taken_out() -> None:
    assert ".observations[]" in remedy({"trace": {"id": "t"}, "observations": [{"traceId": "t", "type": "SPAN"}]})


def test_a_trace_id_beside_a_conversation_is_metadata() -> None:
    assert texts({"trace_id": "t", "type": "chat", "messages": [USER, ANSWER]}) == TALK
    assert texts({"trace_id": "t", "question": "Q", "answer": "A"}) == TALK


def test_a_list_without_objects_is_no_list_of_messages() -> None:
    assert "give records" in remedy([1])


def test_an_object_of_objects_beside_a_text_is_no_column_of_pandas() -> None:
    assert "pandas" not in remedy({"scenario": "9", "steps": {"0": {"score": 1}, "3": {"score": 2}}})


def test_a_tree_of_messages_is_named() -> None:
    node = {"id": "n", "parent": "r", "children": [], "message": {"author": {"role": "user"}}}
    assert "one record for each path" in remedy({"title": "t", "mapping": {"r": {"children": ["n"]}, "n": node}})
    tree = {"message_tree_id": "1", "prompt": {"role": "prompter", "replies": []}}
    assert "a record for each path" in remedy(tree).replace("one record", "a record")


def test_a_table_without_a_line_of_names_gets_one() -> None:
    row = "Why is the sky blue?", "Light is scattered."
    assert "question,answer" in remedy(dict.fromkeys(row, "text"))
    names = "question", "answer"
    assert texts(dict(zip(names, row, strict=True))) == [("user", row[0]), ("assistant", row[1])], "the line it names"


@pytest.mark.parametrize(
    ("record", "option"),
    [
        ({"instruction": "Q", "generation": "A", "model_name": "m"}, "--map query=instruction,answer=generation"),
        ({"prompt": "Q", "reasoning": "R", "content": "A"}, "--map query=prompt,answer=content,reasoning=reasoning"),
        ({"message": "Q", "chat_history": [USER, ANSWER], "text": "A"}, "--map query=message,answer=text"),
    ],
)
def test_names_of_answers_are_guessed(record: Any, option: str) -> None:
    assert remedy(record) == option
    assert "--map query=user" not in remedy({"user": "bob", "text": "T"}), "a name"


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Q", "outputs": [{"index": 0, "text": "A", "finish_reason": "length"}], "finished": True},
        {"inputs": {"question": "Q"}, "outputs": {"answer": "A"}, "id": "x"},
    ],
)
def test_a_question_and_an_answer_in_objects_are_taken_out(record: Any, tmp_path: Path) -> None:
    assert pasted(remedy(record), [record], tmp_path) == [TALK]


def test_answers_without_a_question_are_not_mapped_to_a_conversation() -> None:
    assert "no question" in remedy({"output": [ANSWER], "status": "fail"})


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        ({"body": {"messages": [USER]}}, {"response": {"body": {"choices": [{"message": ANSWER}]}}}),
        ({"body": {"input": "Q"}}, {"response": {"body": {"output": [{"type": "message", **ANSWER}]}}}),
        ({"params": {"messages": [USER]}}, {"result": {"type": "succeeded", "message": ANSWER}}),
    ],
)
def test_answers_of_a_batch_are_joined_with_its_requests(asked: Any, reply: Any, tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    for name, ids, record in (("REQUESTS.jsonl", "21", asked), ("FILE", "12", reply)):
        (tmp_path / name).write_text("".join(json.dumps({"custom_id": at, **record}) + "\n" for at in ids))
    said = remedy({"custom_id": "1", **reply})
    command = said[said.index("jq ") : said.index(" > ")]
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["id"] for record in records] == ["1", "2"]
    for record in records:
        if "messages" in record:  # the answer is beside them; the next refusal says how to append it
            with pytest.raises(RecordRefusedError) as refused:
                texts(record)
            assert refused.value.reason is Refusal.UNANSWERED
        else:
            assert texts(record) == TALK


def test_records_under_their_names_become_records() -> None:
    named = {f"{number}.json": {"problem": "Q", "solution": "A"} for number in range(40)}
    assert "to_entries[] | .value + {id: .key}" in remedy(named)
    with pytest.raises(SourceError, match=r"'29\.json', … \(40\)"):
        recognise(named, key_map(()), "here")


def test_records_as_texts_are_taken_out(tmp_path: Path) -> None:
    record = json.dumps({"messages": [USER, ANSWER]})
    assert pasted(remedy(record), [record, record], tmp_path) == [TALK, TALK]
