"""Runs over files: given reports, lines that are no samples, ids and contents that come again, batches."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from families.toolcalls.conftest import Run, values
from spanloom.families.toolcalls.format.source import files_below, one_file
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import Validation, validate_files, validate_stream
from support.toolcall_samples import harmful, retain, write_samples

EXIT_CODES = {0: 0, 1: 4, 2: 1}
"""Of the cases → of this project."""


def found_in(run: Validation) -> list[tuple[str, int, str, str]]:
    return [(found.file, found.line, found.finding.code, found.finding.path) for found in run.findings]


def as_set(findings: list[dict[str, Any]]) -> set[str]:
    return {json.dumps(found, sort_keys=True) for found in findings}


def test_every_given_report(fixtures: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fixtures)
    cases = values(fixtures / "reports/index.json")
    assert cases
    for number, case in enumerate(cases):
        report = tmp_path / f"{number}.json"
        arguments = ["--" + case["kind"], case["target"], "--no-require-system", "--report", str(report)]
        arguments += ["--strict"] if case["strict"] else []
        arguments += ["--split", case["split"]] if case.get("split") else []
        ended = run("validate", *arguments)
        assert ended.code == EXIT_CODES[case["exit_code"]], case["case"]
        if "text" in case:
            assert ended.out.encode() == (fixtures / case["text"]).read_bytes(), case["case"]
        if "json" in case:
            ours, theirs = values(report), values(fixtures / case["json"])
            assert as_set(ours.pop("findings")) == as_set(theirs.pop("findings")), case["case"]
            assert ours.pop("exit_code") == EXIT_CODES[theirs.pop("exit_code")]
            assert ours == theirs, case["case"]
            printed = json.loads(run("validate", *arguments, "--format", "json").out)
            assert printed == values(report)


def test_a_run_over_no_samples_warns(tmp_path: Path, run: Run) -> None:
    (tmp_path / "x.jsonl").write_text("\n \n")
    ended = run("validate", "--data-dir", tmp_path, "--strict")
    assert ended.code == 0
    assert "no samples" in ended.err


def test_usage(tmp_path: Path, run: Run) -> None:
    assert run("validate").code == 2
    assert run("validate", "--data", "x", "--data-dir", "y").code == 2
    assert run("validate", "--data", tmp_path, "--split", "x").code == 2


def test_strict_demands_a_system_message(tmp_path: Path, run: Run) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    file = write_samples(tmp_path / "x.jsonl", [retain(messages=messages)])
    assert run("validate", "--data", file).code == 0
    assert run("validate", "--data", file, "--strict").code == 4
    assert run("validate", "--data", file, "--strict", "--no-require-system").code == 0


def test_the_page(tmp_path: Path, run: Run) -> None:
    file = write_samples(tmp_path / "x.jsonl", [harmful(id="<b>"), retain()])
    page = tmp_path / "report.html"
    ended = run("validate", "--data", file, "--report", page, "--format", "html")
    assert ended.out == page.read_text()
    assert "&lt;b&gt;" in ended.out
    assert "<b>" not in ended.out


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=40)).map(b"\n".join))
def test_any_bytes_are_validated(data: bytes) -> None:
    run = validate_stream(data.split(b"\n"), Rules())
    assert run.samples + run.invalid_lines <= data.count(b"\n") + 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"id": "\\ud800"}', "J1"),
        (b"[" * 100_000 + b"]" * 100_000, "J1"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "J1"),
        (b"9" * 10_000, "J1"),
        (b"12345678901234567890123", "J2"),
        (b'{"id": "caf\xe9"}', "J1"),
        (b"1e400", "J2"),
        (b"-Infinity", "J1"),
        (b'"' + b"x" * 1_000_000 + b'"', "J2"),
        (b"{} {}", "J1"),
    ],
)
def test_lines_that_are_no_samples(line: bytes, code: str) -> None:
    run = validate_stream([b"", b" \r", line, b'\t{"id": "x"}\r'], Rules())
    first = run.findings[0]
    assert (first.file, first.line, first.finding.code, first.id) == ("-", 3, code, None)
    assert (run.invalid_lines, run.samples) == (1, 1)
    assert run.findings[1].id == "x"


def test_a_mark_before_the_first_line_alone_is_passed_over() -> None:
    line = json.dumps(retain()).encode()
    marked = b"\xef\xbb\xbf" + line
    assert validate_stream([marked], Rules()).invalid_lines == 0
    assert validate_stream([line, marked], Rules()).invalid_lines == 1


def test_an_integer_beyond_64_bits_is_an_integer() -> None:
    line = json.dumps({**retain(), "training": {"loss_mask_start": 2**70, "loss_mask_end": 2**71}}).encode()
    assert validate_stream([line], Rules()).findings == []


NUMBERS = st.integers() | st.sampled_from([2**63, 2**64, -(2**70), 10**30])
VALUES = st.recursive(
    st.none() | NUMBERS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = {"a": [value]}
    return value


@given(
    st.sampled_from([harmful(1), retain(1)]),
    st.sampled_from(["tools", "messages", "metadata", "note"]),
    VALUES,
    st.sampled_from([0, 1, 90, 120, 200, 500]),
    st.booleans(),
)
def test_any_values_at_any_depth_are_validated(sample: Any, key: str, value: Any, depth: int, batched: bool) -> None:
    changed_one = {**sample, key: [nested(value, depth)]}
    if key == "messages":
        changed_one[key] = [*sample[key], {"role": "user", "content": "x", "extra": nested(value, depth)}]
    line = json.dumps({"harmful": [changed_one], "benign": []} if batched else changed_one)
    run = validate_stream([line.encode()] * 2, Rules())
    if depth >= 120:
        assert [found.finding.code for found in run.findings] == ["J1", "J1"]
    else:
        assert run.samples == 2


def test_weights_of_hundreds_of_digits_are_still_json(tmp_path: Path, run: Run) -> None:
    heavy = [
        {**retain(1), "training": {"sample_weight": 10**400}},
        {**harmful(1), "training": {"sample_weight": 10**400}},
    ]
    file = write_samples(tmp_path / "x.jsonl", heavy)
    report = json.loads(run("validate", "--data", file, "--format", "json").out, parse_constant=pytest.fail)
    assert report["subtypes"]["retain"]["general_conversation"] == {"count": 1, "weight": None}
    assert report["effective_ratio"] is None


def test_ids_and_contents_that_come_again(tmp_path: Path) -> None:
    other = {"messages": harmful(9)["messages"]}
    write_samples(tmp_path / "a.jsonl", [harmful(1), harmful(2), harmful(1), harmful(1, **other)])
    write_samples(
        tmp_path / "b/c.jsonl", [{**harmful(2), "id": "b4_harmful_00007"}, harmful(2), {**harmful(2), "id": None}]
    )
    run = validate_files(files_below(tmp_path), Rules())
    firsts = [
        (found.file, found.line, found.id, found.finding.code, found.finding.more.get("first"))
        for found in run.findings
    ]
    assert firsts == [
        ("a.jsonl", 3, "b4_harmful_00001", "I3", "a.jsonl:1"),
        ("a.jsonl", 4, "b4_harmful_00001", "I3", "a.jsonl:1"),
        ("b/c.jsonl", 1, "b4_harmful_00007", "I4", "a.jsonl:2"),
        ("b/c.jsonl", 2, "b4_harmful_00002", "I3", "a.jsonl:2"),
        ("b/c.jsonl", 3, None, "F1", None),
        ("b/c.jsonl", 3, None, "I4", "a.jsonl:2"),
    ]


def test_the_order_of_keys_makes_no_other_content() -> None:
    turned = {
        **retain(2),
        "messages": [dict(reversed(m.items())) for m in retain(1)["messages"]],
        "assistant_raw": "Answer 1.",
    }
    lines = [json.dumps(sample).encode() for sample in (retain(1), turned)]
    assert [found.finding.code for found in validate_stream(lines, Rules()).findings] == ["I4"]


def test_the_members_of_batches() -> None:
    kept = retain(1)
    batches = [
        {"batch_id": 0, "batch_size": 3, "harmful": [harmful(1)], "benign": [kept, retain(2)]},
        {"batch_id": 1, "batch_size": 3, "harmful": [harmful(2, tools=None)], "benign": [kept, 5, harmful(3)]},
    ]
    run = validate_stream([json.dumps(batch).encode() for batch in batches], Rules(split="retain"))
    assert found_in(run) == [
        ("-", 2, "F1", "harmful[0].tools"),
        ("-", 2, "J2", "benign[1]"),
        ("-", 2, "L6", "benign[2].labels.split"),
    ]
    assert (run.samples, run.splits) == (6, {"harmful": 3, "retain": 3})


def test_a_member_that_comes_again_with_another_content_is_found() -> None:
    batches = [
        {"harmful": [harmful(1)], "benign": [retain(1)]},
        {"harmful": [], "benign": [retain(1, assistant_raw="x")]},
    ]
    run = validate_stream([json.dumps(batch).encode() for batch in batches], Rules())
    assert found_in(run) == [("-", 2, "I3", "benign[0].id")]


def test_memory_grows_with_ids_and_hashes_alone(tmp_path: Path) -> None:
    few, many = 1_000, 6_000
    peaks = []
    for count in (few, many):
        file = write_samples(tmp_path / f"{count}.jsonl", (harmful(number) for number in range(count)))
        tracemalloc.start()
        validate_files(one_file(file), Rules())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (many - few) <= 200


@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_a_file_whose_name_is_not_utf_8_is_refused(tmp_path: Path, run: Run, form: str) -> None:
    write_samples(tmp_path / "in" / os.fsdecode(b"\xff.jsonl"), [harmful(1)])
    ended = run("validate", "--data-dir", tmp_path / "in", "--format", form, "--report", tmp_path / "report.json")
    assert ended.code == 1
    assert "the file's name is not UTF-8" in ended.err
    assert "remedy: rename the file" in ended.err
