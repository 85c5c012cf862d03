"""harmony_chat from `conversations_v1`: the dataset that messages of Harmony give; what Harmony cannot hold refused."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from spanloom.conversations.source.manifest import ConversationsManifest
from spanloom.dataset import manifest
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import RejectedRowError
from spanloom.families.harmony import chat_dataset
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.families.harmony.contract.messages import SystemFields
from spanloom.families.harmony.convert.chat import convert_chat
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion
from support import chat_sources

CALLS = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in "ab"]
TOOL = {"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}}}


def records() -> list[dict[str, Any]]:
    """Conversations that Harmony can hold: of several turns, with reasoning, instructions, tools, settings."""
    made = []
    for number in range(12):
        turns: list[dict[str, Any]] = [{"role": "user", "content": f"Question {number}?", "name": "Ada"}]
        turns.append({"role": "assistant", "content": f"Answer {number}.", "reasoning_content": "Let me see."})
        if number % 2:
            turns.append({"role": "user", "content": "Look it up."})
            turns.append({"role": "assistant", "content": "I look.", "tool_calls": CALLS[:1]})
            turns.append({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "4"}] * 2})
            turns.append({"role": "assistant", "content": "Four."})
        record: dict[str, Any] = {"id": f"c-{number}", "messages": turns}
        made.append({**record, **({"tools": [TOOL]} if number % 2 else {"system": "Be brief."})})
    made[0]["reasoning_effort"] = "low"
    made[1]["chat_template_kwargs"] = {"model_identity": "You are Loom.", "enable_thinking": False}
    return made


def unheld() -> list[dict[str, Any]]:
    """One record for each of these reasons why Harmony cannot hold it."""
    user, answer = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
    at_once = {"role": "assistant", "content": None, "tool_calls": CALLS}
    return [
        {"id": "tool_calls_parallel", "messages": [user, at_once]},
        {"id": "system_twice", "system": "S", "messages": [{"role": "system", "content": "T"}, user, answer]},
        {"id": "system_not_first", "messages": [user, answer, {"role": "system", "content": "T"}, user, answer]},
        {"id": "effort_unknown", "reasoning_effort": "minimal", "messages": [user, answer]},
        {"id": "answer_missing", "messages": [user, {"role": "assistant", "reasoning_content": "R"}]},
        {"id": "tool_result_unmatched", "messages": [user, {"role": "tool", "content": "x"}, answer]},
    ]


def source(folder: Path, made: list[dict[str, Any]], **options: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    chat = folder / "chat.jsonl"
    chat.write_text("".join(json.dumps(record) + "\n" for record in made))
    conversion = ChatConversion(**options)
    out = folder / conversion.format
    convert_chat(chat=open_chat([chat], conversion), out=out, conversion=conversion)
    return out


def files_of(root: Path) -> dict[str, bytes]:
    found = sorted(path for path in root.rglob("*") if path.suffix in (".bin", ".idx", ".parquet"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_a_dataset_is_the_same_from_both_formats(tmp_path: Path) -> None:
    fields = SystemFields(reasoning_effort="High", knowledge_cutoff="2025-01")
    roots = []
    for name in ("conversations", "harmony"):
        folder = source(tmp_path, records(), system_fields=fields, format=name)
        result = build(BuildOptions(source=folder, out=tmp_path / f"{name}_root", workers=1, deep=30))
        assert result.report.clean, result.report.findings
        roots.append(result.root)
    assert files_of(roots[0]) == files_of(roots[1])
    assert files_of(roots[0])
    content = manifest.read(roots[0]).content
    assert content.input.schema_version == content.config["input_schema"] == "conversations_v1"


def test_what_harmony_cannot_hold_is_counted_by_convert_and_refused_by_build(tmp_path: Path) -> None:
    folder = source(tmp_path, [*records(), *unheld()])
    reasons = dict.fromkeys(sorted(record["id"] for record in unheld()), 1)
    said = json.loads((folder / "manifest.json").read_bytes())
    assert said["conversion"]["harmony"]["refused"] == reasons
    assert said["conversion"]["harmony"]["not_rendered"] == {"chat_template_kwargs.enable_thinking": 1}
    assert said["conversion"]["rows_written"] == 12 + len(reasons)
    with pytest.raises(RejectedRowError, match="tool_calls_parallel"):
        build(BuildOptions(source=folder, out=tmp_path / "stopped", workers=1))
    options = BuildOptions(source=folder, out=tmp_path / "root", workers=1, max_rejects="6", deep=30)
    result = build(options)
    assert result.report.clean, result.report.findings
    assert result.manifest.content.totals.rejected == reasons
    lines = (result.root / "rejects/shard_00.jsonl").read_text().splitlines()
    assert {line["id"]: line["reason"] for line in map(json.loads, lines)} == {reason: reason for reason in reasons}


def test_an_answer_without_text_and_a_weight_beyond_a_float_are_refused(tmp_path: Path) -> None:
    """Validation judges both as the build does."""
    question, answer = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
    rows = [chat_sources.row(name, [question, answer]) for name in ("right", "nothing_trained", "field_invalid")]
    rows[1]["messages_json"] = json.dumps({"messages": [question, {**answer, "content": ""}]})
    rows[2]["messages_json"] = rows[0]["messages_json"][:-1] + f', "weight": 1{"0" * 400}}}'
    folder = chat_sources.write_source(tmp_path / "source", [rows])
    chat_sources.write_manifest(folder, 1, schema_version="conversations_v1")
    result = build(BuildOptions(source=folder, out=tmp_path / "root", workers=1, max_rejects="2"))
    assert result.report.clean, result.report.findings
    assert result.manifest.content.totals.rejected == {"field_invalid": 1, "nothing_trained": 1}


def test_validation_finds_a_reject_whose_reason_was_changed(tmp_path: Path) -> None:
    folder = source(tmp_path, [*records(), *unheld()[:1]])
    result = build(BuildOptions(source=folder, out=tmp_path / "root", workers=1, max_rejects="1", deep=5))
    rejects = result.root / "rejects/shard_00.jsonl"
    rejects.write_text(rejects.read_text().replace("2 calls at once", "3 calls at once"))
    report = validate_dataset(result.root, chat_dataset, source=folder, deep=5)
    assert any(finding.check == "rejects" and "3 calls" in finding.message for finding in report.findings)


def test_the_manifest_follows_its_schema_which_is_that_of_its_type(tmp_path: Path) -> None:
    file = files("spanloom.conversations.source").joinpath("conversations_v1.schema.json")
    schema = {key: value for key, value in json.loads(file.read_bytes()).items() if key != "$schema"}
    assert schema == ConversationsManifest.model_json_schema()
    said = json.loads((source(tmp_path, records()) / "manifest.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(said)
    assert ConversationsManifest.model_validate(said).as_dict() == said
