"""The components' command lines, filled in as Kubeflow's launcher does it: each finds what the one before made."""

from pathlib import Path

import pytest

from spanloom.families.traces.sample import run as sample
from spanloom.provenance import GIT_SHA_VARIABLE
from support.launcher import Kubeflow


def test_each_task_finds_what_the_one_before_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GIT_SHA_VARIABLE, "0" * 40)
    folder, root = tmp_path / "run", tmp_path / "root"
    folder.mkdir()
    sample(out=str(tmp_path / "s.jsonl"), traces=60, tokenizer=str(tmp_path / "tokenizer.json"))
    kubeflow = Kubeflow(folder, monkeypatch)
    given = {"source_name": "s", "ids": "content", "strict": "0", "created_at": "", "map": "", "max_step_characters": 0}
    assert kubeflow.run("ingest_traces", traces_uri=str(tmp_path / "s.jsonl"), **given) == 0
    assert kubeflow.said["ingest_traces"]["metrics"]["ingested_count"] == 60
    chosen = {"filters": '{"kind": "sum"}', "limit": 100, "strategy": "latest", "seed": "", "reproducible": "1"}
    assert kubeflow.run("build_traces", dataset_name="d", dataset_version="1", **chosen) == 0
    assert kubeflow.said["build_traces"]["manifest"]["trace_count"] == 20
    forms = ("trace", "tunix_sft", "training_example")
    for form in forms:
        options = {"form": form, "control_tokens": "verbatim", "protect_metadata": "1"}
        assert kubeflow.run("export_traces", **options) == 0
        assert kubeflow.said["export_traces"]["export"]["exported"] == 20
    wired = {form: f"{form}export" for form in forms}
    assert kubeflow.run("validate_traces", wired=wired) == 0
    assert kubeflow.said["validate_traces"]["report"]["clean"]
    tokens = {"form": "tunix_sft", "eod": "", "control_tokens": "reject", "valid_fraction": 0.2}
    place = {"tokenizer_uri": str(tmp_path / "tokenizer.json"), "dataset_root": str(root)}
    assert kubeflow.run("tokenize_traces", **place, **tokens) == 0
    assert kubeflow.said["tokenize_traces"]["tokenizer"]["eod"] >= 0
    wired = {"dataset": "tunix_sftdataset", "tokenizer": "tunix_sfttokenizer"}
    assert (
        kubeflow.run("validate_alignment", "dataset", wired=wired, dataset_root=str(root), source_uri="", deep=0) == 0
    )
    assert (root / "manifest.json").is_file()
    (folder / "traceexport").write_text("{}\n")
    assert kubeflow.run("validate_traces", wired={form: f"{form}export" for form in forms}) == 4
