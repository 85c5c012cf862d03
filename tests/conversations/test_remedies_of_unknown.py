"""What is said of a record of no known form works when it is pasted: the commands of jq are run, where there is jq."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading
from spanloom.errors import SourceError

USER = {"role": "user", "content": "Q"}
ANSWER = {"role": "assistant", "content": "A"}
TALK = [("user", "Q"), ("assistant", "A")]


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


def test_a_tree_of_messages_is_named() -> None:
    tree = {"message_tree_id": "1", "prompt": {"role": "prompter", "text": "Q", "replies": []}}
    assert "a record for each path" in remedy(tree).replace("one record", "a record")
