"""OpenAI messages of your own become samples that pass the strictest check; rewards of TAU decide what is taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from families.toolcalls.conftest import Run
from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.messages import read_labels
from spanloom.families.toolcalls.convert.sources import convert
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.source import files_below
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import validate_files
from support.cases import beside
from support.requirements import TAU_RUNS, absent

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}
ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
FLIP = {
    "expected_tool": "retrieve_multimodal_docs",
    "simulated_tool": "search_web",
    "observed_tool": "search_web",
    "is_flip_success": True,
}


def called(name: str, arguments: Any, text: str | None = None) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


RECORDS = [
    {"id": "r", "split": "retain", "tools": [TOOL], "messages": [*ASKED, called("f", '{"x": 1}', "See.")], "topic": 7},
    {"id": "h", "split": "harmful", **FLIP, "messages": [*ASKED, called("search_web", {"query": "t"})]},
    {"id": "n", "messages": [*ASKED, {"role": "assistant", "content": "no"}]},
]


def samples(tmp_path: Path, records: list[dict[str, Any]], **options: Any) -> tuple[Any, dict[str, dict[str, Any]]]:
    """What the conversion counts, and its samples by the id of their record."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    out = tmp_path / "out"
    done = convert("messages", tmp_path / "in.jsonl", out, Options(**options))
    made = [json.loads(line) for file in files_below(out) for line in file.path.read_text().splitlines()]
    run = validate_files(files_below(out), Rules(require_system=True))
    assert "ERROR" not in run.severities.values(), run.by_code
    return done, {sample["metadata"]["original"]["id"]: sample for sample in made}


def test_split_and_labels_come_from_columns(tmp_path: Path) -> None:
    done, by_id = samples(tmp_path, RECORDS)
    assert dict(done.left_out) == {"no split": 1}
    assert by_id["r"]["assistant_raw"] == 'See.<|python_tag|>{"name": "f", "parameters": {"x": 1}}<|eom_id|>'
    assert by_id["r"]["tools"] == [TOOL]
    assert by_id["r"]["metadata"]["original"] == {"id": "r", "topic": 7}
    assert by_id["r"]["messages"] == ASKED
    assert by_id["h"]["labels"] == {"split": "harmful", **FLIP}


def test_split_and_labels_come_from_a_file(tmp_path: Path) -> None:
    bare = [{key: value for key, value in record.items() if key in ("id", "messages")} for record in RECORDS]
    (tmp_path / "labels.jsonl").write_text(json.dumps({"id": "h", "split": "harmful", **FLIP}) + "\n")
    done, by_id = samples(tmp_path, bare, split="retain", labels=read_labels(tmp_path / "labels.jsonl"))
    assert not done.left_out
    assert {name: sample["labels"]["split"] for name, sample in by_id.items()} == {
        "r": "retain",
        "h": "harmful",
        "n": "retain",
    }
    assert by_id["h"]["labels"] == {"split": "harmful", **FLIP}
    with pytest.raises(ToolCallError, match="needs an id"):
        (tmp_path / "labels.jsonl").write_text("{}\n")
        read_labels(tmp_path / "labels.jsonl")


def test_a_split_of_another_name_is_left_out(tmp_path: Path) -> None:
    done, _ = samples(tmp_path, [{**RECORDS[2], "split": "test"}])
    assert dict(done.left_out) == {"a split that is none of harmful and retain": 1}


def test_validate_says_that_rows_are_no_samples(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    done = run("validate", "--data", tmp_path / "in.jsonl")
    assert "3 of 3 rows have no assistant_raw" in done.err
    assert "convert --from messages" in done.err


def _airline() -> Path:
    path = beside("SPANLOOM_TAU_RUNS", "families/toolcalls/tau") / "gpt-4o-airline.json"
    return path if path.is_file() else absent(TAU_RUNS, f"{path} is not there")


def test_runs_without_reward_are_left_out_on_demand(tmp_path: Path) -> None:
    path = _airline()
    rewards = [simulation["reward"] for simulation in json.loads(path.read_bytes())]
    done = convert("tau2", path, tmp_path / "all", Options())
    assert done.written["retain"] + done.left_out.total() == len(rewards)
    done = convert("tau2", path, tmp_path / "out", Options(min_reward=1))
    assert done.left_out["reward below --min-reward"] == sum(reward < 1 for reward in rewards)
    kept = [json.loads(line) for line in (tmp_path / "out/retain/tau2.jsonl").read_text().splitlines()]
    assert {sample["metadata"]["original"]["reward"] for sample in kept} == {1.0}


def test_min_reward_of_a_simulation(tmp_path: Path) -> None:
    of_record = {"task_id": 1, "messages": [*ASKED, called("f", {})]}
    given = [{**of_record, "task_id": number, "reward": reward} for number, reward in enumerate((0, 0.5, 1.0, None))]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in given))
    done = convert("tau2", tmp_path / "in.jsonl", tmp_path / "out", Options(min_reward=0.5))
    assert (done.written["retain"], done.left_out["reward below --min-reward"]) == (2, 2)
