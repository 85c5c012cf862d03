"""The export `messages`: conversations that `spanloom convert` takes, and what its validation finds."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading
from spanloom.families.traces.export.file import ExportCounts, records, write_file
from spanloom.families.traces.export.lines import ExportOptions
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.verify.export import check_export


def export(store: Store, path: Path, **options: Any) -> list[str]:
    with store.snapshot() as snapshot:
        ids = list(snapshot.ids())
        rows = records(snapshot, ids, "messages", ExportOptions(**options), None, ExportCounts())
        write_file(path, rows, "messages", len(ids))
    return ids


def test_each_trace_is_a_question_with_a_reasoned_answer(filled: Store, tmp_path: Path) -> None:
    ids = export(filled, tmp_path / "m.jsonl", system="Think.")
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ids
    with filled.snapshot() as snapshot:
        for row, trace in zip(rows, snapshot.traces(ids), strict=True):
            system, user, assistant = row["messages"]
            own = (trace.payload["meta"] or {}).get("system")
            assert system == {"role": "system", "content": f"Think.\n\n{own}" if own else "Think."}
            assert user == {"role": "user", "content": trace.payload["prompt"]}
            assert assistant["reasoning_content"].split("\n\n") == "\n\n".join(
                step["content"] for step in trace.payload["steps"]
            ).split("\n\n")
            assert assistant["content"] == trace.payload["final_answer"]
    assert check_export(tmp_path / "m.jsonl", "messages", ids).report.clean


def test_convert_reads_reasoning_and_answer_of_it(filled: Store, tmp_path: Path) -> None:
    export(filled, tmp_path / "m.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    form = recognise(rows[0], key_map([]), "m.jsonl")
    for row in rows:
        if not row["messages"][-1]["content"].strip():
            continue  # an answer of blanks is a trace, but no answer to chat data
        chat = read_record(row, form, Reading(think_tags=False, text_as_is=True), Dropping())
        *system, user, assistant = chat.turns
        *instructions, asked, answered = row["messages"]
        assert ["".join(turn.texts) for turn in system] == [message["content"] for message in instructions]
        assert "".join(user.texts) == asked["content"]
        assert "".join(assistant.reasoning) == answered["reasoning_content"]
        assert "".join(assistant.texts) == answered["content"]


def test_parquet_holds_the_same_messages(filled: Store, tmp_path: Path) -> None:
    export(filled, tmp_path / "m.jsonl")
    export(filled, tmp_path / "m.parquet")
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    for row, held in zip(rows, pq.read_table(tmp_path / "m.parquet").to_pylist(), strict=True):
        assert held["id"] == row["id"]
        assert [{k: v for k, v in message.items() if v is not None} for message in held["messages"]] == row["messages"]


def test_validation_finds_what_is_no_conversation(tmp_path: Path) -> None:
    user, assistant = {"role": "user", "content": "q"}, {"role": "assistant", "reasoning_content": "r", "content": "a"}
    wrong = {
        "V5": [[], "q", [user], [assistant, user], [user, assistant, user], [{"role": "user"}, assistant], [user, 1]],
        "V6": [[user, {"role": "assistant", "content": "a"}], [user, {**assistant, "content": ""}]],
    }
    for code, lists in wrong.items():
        for messages in lists:
            path = tmp_path / "m.jsonl"
            path.write_text(json.dumps({"id": "x", "messages": messages, "metadata": {}}) + "\n")
            assert [finding.code for finding in check_export(path, "messages").report.findings] == [code], messages
