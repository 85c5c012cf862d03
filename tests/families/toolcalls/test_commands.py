"""From the demo's sources to both datasets, by the commands that the page shows."""

import json
import os
from pathlib import Path

import pytest

from families.toolcalls.conftest import Run
from spanloom.dataset import manifest
from spanloom.families.toolcalls.samples.sample import SYSTEM, files
from support.cases import lines
from support.toolcall_samples import harmful, retain, write_samples


def test_from_the_demo_to_datasets(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("demo", "--out", "in").code == 0
    inputs = {"b4": "b4.jsonl", "agentdojo": "agentdojo.jsonl", "tau2": "tau2", "ultrachat": "ultrachat.jsonl"}
    written = {}
    for source, name in {**inputs, "xstest": "xstest.csv"}.items():
        completions = ["--completions", "in/completions.jsonl"] if source in ("b4", "xstest") else []
        options = ["--from", source, "--input", f"in/{name}", "--out", "samples", "--system", SYSTEM, *completions]
        ended = run("convert", *options)
        assert ended.code == 0, ended.err
        done = json.loads(ended.out)
        assert done["left_out"] == {}
        written[source] = (done["written"]["harmful"], done["written"]["retain"])
    assert written == {"b4": (6, 6), "agentdojo": (8, 4), "tau2": (0, 12), "ultrachat": (0, 12), "xstest": (0, 12)}
    assert run("validate", "--data-dir", "samples", "--strict").code == 0
    folders = ["--harmful-dir", "samples/harmful", "--retain-dir", "samples/retain"]
    assert run("merge", *folders, "--output", "train.jsonl").code == 0
    assert run("sample", "--data", "train.jsonl", "--per-source", 1).out.count("== ") == 6
    made_with = ["--template", "in/chat_template.jinja", "--tokenizer", "in"]
    assert run("audit", "--data", "train.jsonl", *made_with, "--limit", 0, "--strict").code == 0
    assert run("mask", "--data", "train.jsonl", "--output", "masked.jsonl", *made_with).code == 0
    assert run("validate", "--data", "masked.jsonl", "--strict").code == 0
    assert run("export", "--data", "train.jsonl", "--output", "rows.jsonl", *made_with).code == 0
    assert len(lines(tmp_path / "rows.jsonl")) == len(lines(tmp_path / "train.jsonl")) == 60
    ended = run("tokenize", "--data", "train.jsonl", *made_with, "--out", "roots", "--valid-fraction", 0.2, "-q")
    assert ended.code == 0, ended.err
    assert [manifest.read(tmp_path / "roots" / split).content.harmful for split in ("harmful", "retain")] == [
        True,
        False,
    ]


def test_the_demo_is_the_same_each_time() -> None:
    assert files() == files()


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("demo", "--out", "in").code == 0
    os.mkfifo("fifo.json")
    (tmp_path / "tools").mkdir()
    os.mkfifo("tools/x.json")
    write_samples(tmp_path / "x.jsonl", [retain(1)])
    template = ["--template", "in/chat_template.jinja"]
    for arguments in (
        ["validate", "--data", "fifo.json"],
        ["validate", "--data", "x.jsonl", "--tools-dir", "tools"],
        ["audit", "--data", "x.jsonl", "--template", "fifo.json"],
        ["export", "--data", "x.jsonl", *template, "--tokenizer", "fifo.json", "--output", "y.jsonl"],
        ["convert", "--from", "ultrachat", "--input", "fifo.json", "--out", "made"],
        ["convert", "--from", "b4", "--input", "in/b4.jsonl", "--completions", "fifo.json", "--out", "made"],
        ["batches", "--data", "fifo.json", "--output", "y.jsonl"],
    ):
        ended = run(*arguments)
        assert ended.code == 1, arguments
        assert "fifo.json" in ended.err or "x.json" in ended.err, ended.err


def test_an_output_never_takes_the_place_of_a_datasets_file(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("demo", "--out", "in").code == 0
    write_samples(tmp_path / "x.jsonl", [retain(1)])
    made_with = ["--template", "in/chat_template.jinja", "--tokenizer", "in"]
    assert run("tokenize", "--data", "x.jsonl", *made_with, "--out", "roots", "-q").code == 0
    held = tmp_path / "roots/retain/tokenizer.json"
    before = held.read_bytes()
    for arguments in (
        ["validate", "--data", "x.jsonl", "--report", held],
        ["sample", "--data", "x.jsonl", "--html", held],
        ["mask", "--data", "x.jsonl", *made_with, "--output", held],
        ["batches", "--data", "x.jsonl", "--output", held],
    ):
        ended = run(*arguments)
        assert ended.code == 1, ended.err
        assert "belongs to the data" in ended.err
    assert run("validate", "--data", "x.jsonl", "--report", "gs://bucket/x.json").code == 2
    assert held.read_bytes() == before


def test_outputs_do_not_lie_in_what_is_read(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path / "h/h.jsonl", [harmful(1)])
    write_samples(tmp_path / "r/r.jsonl", [retain(1)])
    folders = ["--harmful-dir", "h", "--retain-dir", "r"]
    for arguments in (
        ["merge", *folders, "--output", "h/train.jsonl"],
        ["merge", *folders, "--output", "train.jsonl", "--eval-output", "r/below/eval.jsonl"],
        ["convert", "--from", "ultrachat", "--input", "r", "--out", "r"],
        ["convert", "--from", "ultrachat", "--input", "r", "--out", "r/made"],
    ):
        ended = run(*arguments)
        assert ended.code == 1, arguments
        assert "inside the input folder" in ended.err
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["h.jsonl", "r.jsonl"]
