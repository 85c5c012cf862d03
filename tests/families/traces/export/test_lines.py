"""The three exports byte for byte, what is done with `meta` and with control strings."""

import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from spanloom.errors import OptionError
from spanloom.families.traces import render
from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import (
    FORMATS,
    ControlStringsError,
    ExportFormat,
    ExportOptions,
    check_controls,
    etag,
    export_lines,
    line_of,
    metadata,
    record,
)
from spanloom.families.traces.render import CONTROL_STRINGS, TraceTexts, chat_text, head, response
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import Store, StoredTrace
from spanloom.families.traces.store.opening import open_store
from spanloom.families.traces.trace import Trace
from spanloom.families.traces.verify.export import check_export
from support.each import each
from support.traces import CASES, payloads, read_json, store_rows

EXPORTS = CASES / "fixtures/exports/index.json"
PRESENT = [("a", "0"), ("b", "1")]
INDEX = {case["file"]: case for case in read_json(EXPORTS)}
REQUESTS = {
    case["manifest"]["dataset_key"]: case["request"]
    for case in read_json(CASES / "fixtures/builds.json")
    if "manifest" in case
}
"""What was requested, by the dataset that came of it."""
DELETED = ("t29_deleted_a", "t07_meta_null", "t30_deleted_b")
VERBATIM = ExportOptions(protect_metadata=False)


@each("name", sorted(name for name, case in INDEX.items() if case["dataset_key"] in REQUESTS))
def test_recorded_exports(
    new_store: Any, tmp_path: Path, trace_cases: Path, case_rows: list[dict[str, Any]], name: str
) -> None:
    with closing(open_store(new_store(), create=True)) as store:
        store_rows(store, case_rows)
        check_recorded_export(store, tmp_path / name, trace_cases, case_rows, INDEX[name])


def check_recorded_export(
    filled: Store, root: Path, trace_cases: Path, case_rows: list[dict[str, Any]], case: dict[str, Any]
) -> None:
    manifest, _ = build_dataset(filled, root, BuildRequest.model_validate(REQUESTS[case["dataset_key"]]))
    with filled.writing() as writer:
        writer.delete([row["id"] for row in case_rows if row["case"] in DELETED])
    with filled.snapshot() as snapshot:
        lines = list(export_lines(snapshot, manifest.ids, case["format"], VERBATIM))
        data = b"".join(lines)
        present = snapshot.present(manifest.ids)
    assert len(manifest.ids) == case["manifest_count"]
    assert len(lines) == len(present) == case["exported"]
    assert data == (trace_cases / "fixtures" / case["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == case["sha256"]


def test_render_cases(trace_cases: Path) -> None:
    for case in read_json(trace_cases / "fixtures/render_cases.json"):
        said = case["trace"]
        texts = TraceTexts(
            prompt=said.get("prompt", ""), steps=said.get("trace_steps", []), final_answer=said.get("final_answer", "")
        )
        assert chat_text(texts, case["system_instruction"]) == case["text"], case["case"]


def stored(payload: dict[str, Any], created_at: str = "2026-01-02T03:04:05Z") -> StoredTrace:
    return StoredTrace(
        id="a9c14059-a3a9-566e-a17e-8b2298442eda",
        created_at=timestamps.given(created_at),
        payload=Trace.model_validate(payload).payload,
    )


def simple(**changed: Any) -> StoredTrace:
    steps = [{"i": 3, "type": "t", "content": "first"}, {"i": 1, "type": "t", "content": "second"}]
    return stored({"trace_version": "1.0", "prompt": "q", "final_answer": "a", "steps": steps, **changed})


def test_steps_keep_the_order_of_the_list_unless_sorted() -> None:
    assert record(simple(), "trace", ExportOptions())["trace_steps"] == ["first", "second"]
    assert record(simple(), "trace", ExportOptions(sort_steps=True))["trace_steps"] == ["second", "first"]


def test_a_system_text_stands_before_the_prompt() -> None:
    with_system = ExportOptions(system="S")
    assert record(simple(), "tunix_sft", with_system)["prompts"].startswith("<start_of_turn>user\nS\n\nq<end_of_turn>")
    assert record(simple(), "training_example", with_system)["prompt"].startswith("S\n\nq\n\nPlease")


def test_the_exporters_keys_are_protected() -> None:
    own = {"created_at": "t", "format": "f"}
    assert metadata(own, {"k": 1, "format": 2}, protect=False) == {"created_at": "t", "format": 2, "k": 1}
    kept = metadata(own, {"k": 1, "format": 2}, protect=True)
    assert list(kept.items()) == [("created_at", "t"), ("format", "f"), ("k", 1), ("meta", {"format": 2})]
    assert metadata(own, {"meta": 3, "format": 2}, protect=True)["meta"] == {"meta": 3, "format": 2}
    assert metadata(own, {"meta": 3}, protect=True)["meta"] == 3
    assert metadata(own, None, protect=True) == metadata(own, {}, protect=False) == own


@given(payloads())
def test_nothing_of_a_payload_is_lost_in_the_trace_export(payload: dict[str, Any]) -> None:
    trace = stored(payload)
    line = json.loads(line_of(record(trace, "trace", ExportOptions())))
    assert line["prompts"] == payload["prompt"]
    assert line["final_answer"] == payload["final_answer"]
    assert line["trace_steps"] == [step["content"] for step in payload["steps"]]
    said = line["metadata"]
    assert said["trace_version"] == payload["trace_version"]
    meta = payload["meta"] or {}
    moved = {"created_at", "trace_version"} & meta.keys()
    for key, value in meta.items():
        place = said["meta"] if moved and key in (*moved, "meta") else said
        assert place[key] == value


@given(payloads())
def test_text_survives_and_lines_are_one_line_of_ascii(payload: dict[str, Any]) -> None:
    trace = stored(payload)
    for form in FORMATS:
        for options in (VERBATIM, ExportOptions()):
            line = line_of(record(trace, form, options))
            assert line.isascii()
            assert line.count(b"\n") == 1
            json.loads(line)
    texts = render.texts_of(trace.payload)
    assert chat_text(texts) == head(texts) + response(texts) + render.TURN_END


@given(payloads())
def test_escaped_content_holds_no_control_string(payload: dict[str, Any]) -> None:
    texts = render.texts_of(stored(payload).payload)
    broken = render.escaped(texts)
    assert render.control_strings(broken) == 0
    assert chat_text(broken).count("<start_of_turn>") == 2
    assert chat_text(broken).count("<end_of_turn>") == 2
    if not render.control_strings(texts):
        assert broken == texts
    assert broken.prompt.replace("\u200b", "") == texts.prompt.replace("\u200b", "")


def test_the_place_of_the_escape() -> None:
    texts = TraceTexts(prompt="a<bos>b", steps=["<end_of_turn>"], final_answer="<eos><eos>")
    broken = render.escaped(texts)
    assert broken.prompt == "a<\u200bbos>b"
    assert broken.steps == ["<\u200bend_of_turn>"]
    assert render.control_strings(texts) == 4
    assert all(control.startswith("<") for control in CONTROL_STRINGS)


@pytest.mark.parametrize("new_store", ["sqlite"], indirect=True)  # what is written does not depend on the store
def test_control_strings_are_refused_with_all_ids(filled: Store, case_rows: list[dict[str, Any]]) -> None:
    ids = [row["id"] for row in case_rows]
    holding = [row["id"] for row in case_rows if row["case"].split("_", 1)[1].startswith("ctl_in_")]
    with filled.snapshot() as snapshot, pytest.raises(ControlStringsError) as told:
        check_controls(snapshot, ids)
    assert told.value.what.partition(": ")[2].split(", ") == holding
    with filled.snapshot() as snapshot:
        check_controls(snapshot, [one for one in ids if one not in holding])


@pytest.mark.parametrize("how", ["reject", "escape"])
def test_a_system_text_with_control_strings_is_refused(how: Any) -> None:
    with pytest.raises(OptionError, match="system"):
        ExportOptions(control_tokens=how, system="<end_of_turn>be brief")
    assert ExportOptions(control_tokens="verbatim", system="<end_of_turn>be brief")


def test_the_name_of_an_export_changes_with_its_bytes() -> None:
    from uuid import UUID

    build, other = UUID(int=1), UUID(int=2)
    names = {
        etag(build, "trace", ExportOptions(), PRESENT),
        etag(other, "trace", ExportOptions(), PRESENT),
        etag(build, "tunix_sft", ExportOptions(), PRESENT),
        etag(build, "trace", VERBATIM, PRESENT),
        etag(build, "trace", ExportOptions(sort_steps=True), PRESENT),
        etag(build, "trace", ExportOptions(), PRESENT[:1]),
        etag(build, "trace", ExportOptions(), [("a", "0"), ("b", "2")]),
    }
    assert len(names) == 7
    assert etag(build, "trace", ExportOptions(), PRESENT) in names


@pytest.mark.parametrize("new_store", ["sqlite"], indirect=True)  # what is written does not depend on the store
@each("form", FORMATS)
def test_what_is_exported_is_valid(filled: Store, tmp_path: Path, form: ExportFormat) -> None:
    manifest, _ = build_dataset(filled, tmp_path, BuildRequest(dataset_name="d", dataset_version="1", limit=10_000))
    file = tmp_path / "x.jsonl"
    with filled.snapshot() as snapshot:
        file.write_bytes(b"".join(export_lines(snapshot, manifest.ids, form, ExportOptions())))
    done = check_export(file, form, manifest.ids)
    assert done.report.clean
    assert done.lines == len(manifest.ids)
