"""What is found in exported files: the recorded findings, and those of lines that break one rule each."""

import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.families.traces.store.manifest import load_ids
from spanloom.families.traces.verify.export import CheckedExport, check_export
from support.traces import CASES, read_json

EXPECTED = CASES / "fixtures/validate/expected.json"
RECORDED = {case["case"]: case for case in read_json(EXPECTED)} if EXPECTED.is_file() else {}


@pytest.mark.parametrize("name", sorted(RECORDED) or ["the trace cases"])
def test_recorded_findings(trace_cases: Path, name: str) -> None:
    case, folder = RECORDED[name], trace_cases / "fixtures"
    # What varies from run to run is written as "<varies>" in recorded manifests.
    ids = None if case["manifest"] is None else load_ids(folder / case["manifest"])
    done = check_export(folder / case["file"], case["format"], ids)
    said = done.as_dict()
    assert said["lines"] == case["lines"]
    assert said["n_findings"] == case.get("n_findings", len(case["findings"]))
    for found in said["findings"]:
        del found["message"]
    recorded = case["findings"]  # of many, the first
    assert said["findings"][: len(recorded)] == recorded
    assert sum(found["severity"] == "ERROR" for found in said["findings"][: len(recorded)]) == case["errors"]
    assert bool(done.report.exit_code) == bool(case["exit_code"])


HEAD = "<start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\n"


def check(tmp_path: Path, *values: Any, form: Any = "tunix_sft") -> CheckedExport:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return check_export(path, form)


def codes(done: CheckedExport) -> list[tuple[int | None, str | None, str | None]]:
    return [(finding.line, finding.code, finding.path) for finding in done.report.findings]


def test_the_shape_of_the_template(tmp_path: Path) -> None:
    good = {"id": "1", "prompts": f"{HEAD}Answer: A<end_of_turn>", "final_answer": "A", "metadata": {}}
    wrong = [
        {**good, "id": "2", "prompts": "Q"},
        {**good, "id": "3", "final_answer": "B"},
        {**good, "id": "4", "prompts": good["prompts"].replace("Q", "Q<bos>")},
        {**good, "id": "5", "prompts": good["prompts"].removesuffix("<end_of_turn>")},
        {**good, "id": "6", "final_answer": ""},
        {**good, "id": "7", "prompts": ""},
    ]
    done = check(tmp_path, good, *wrong)
    assert codes(done) == [
        (2, "V10", "prompts"),
        (3, "V10", "prompts"),
        (4, "V11", "prompts"),
        (5, "V10", "prompts"),
        (6, "V6", "final_answer"),
        (7, "V5", "prompts"),
    ]
    assert done.report.errors == 5


def test_bytes_that_are_no_text_and_json_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xff\n{"id": NaN}\n\n[]\n')
    done = check_export(path, "trace")
    assert [finding.code for finding in done.report.findings] == ["V1", "V1", "V2"]
    assert done.lines == 3


def test_an_empty_file_is_valid(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.report.clean
    assert done.lines == 0
