"""The components' command lines, filled in as Kubeflow's launcher does it: each finds what the one before made.

What stands in braces is replaced by values and paths; `--executor-input` gets the JSON that it stands for.
"""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from spanloom.cli import main
from spanloom.families.traces.sample import run as sample
from spanloom.provenance import GIT_SHA_VARIABLE


class Kubeflow:
    """Artifacts in a folder, by name; a task is a component with parameters."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.said: dict[str, Any] = {}

    def run(self, name: str, family: str = "traces", *, wired: dict[str, str] | None = None, **parameters: Any) -> int:
        """`wired`: input of the component → name of the artifact, where they differ."""
        module = importlib.import_module(f"components.{family}.{name}.component")
        spec = getattr(module, name).component_spec
        container = spec.implementation.container
        inputs = [each for each, said in spec.inputs.items() if each not in parameters]
        artifacts = {one: self.folder / (wired or {}).get(one, one) for one in inputs}
        outputs = {one: self.folder / f"{parameters.get('form', '')}{one}" for one in spec.outputs}
        output_file = self.folder / f"{name}.executor_output.json"
        executor_input = {
            "inputs": {
                "parameterValues": parameters,
                "artifacts": {one: {"artifacts": [_artifact(one, path)]} for one, path in artifacts.items()},
            },
            "outputs": {
                "artifacts": {one: {"artifacts": [_artifact(one, path)]} for one, path in outputs.items()},
                "outputFile": str(output_file),
            },
        }

        def filled(word: str) -> str:
            if word == "{{$}}":
                return json.dumps(executor_input)
            word = re.sub(r"\{\{\$\.inputs\.parameters\['(\w+)'\]\}\}", lambda at: str(parameters[at[1]]), word)
            word = re.sub(r"\{\{\$\.inputs\.artifacts\['(\w+)'\]\.path\}\}", lambda at: str(artifacts[at[1]]), word)
            return re.sub(r"\{\{\$\.outputs\.artifacts\['(\w+)'\]\.path\}\}", lambda at: str(outputs[at[1]]), word)

        words = [filled(str(word)) for word in (*container.command, *container.args)]
        self.monkeypatch.setattr("sys.argv", words)
        try:
            main()
        except SystemExit as end:
            if end.code:
                return int(end.code)
        told = json.loads(output_file.read_bytes())["artifacts"]
        self.said[name] = {one: said["artifacts"][0]["metadata"] for one, said in told.items()}
        return 0


def _artifact(name: str, path: Path) -> dict[str, Any]:
    return {"name": name, "uri": str(path), "metadata": {}}


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
