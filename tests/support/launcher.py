"""Components run as Kubeflow's launcher runs them, without containers: their command lines, filled in.

What is in braces is replaced by values and paths; `--executor-input` gets the JSON that it stands for.
"""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from spanloom.cli import main


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
        inputs = [each for each, declared in spec.inputs.items() if each not in parameters]
        artifacts = {key: self.folder / (wired or {}).get(key, key) for key in inputs}
        outputs = {key: self.folder / f"{parameters.get('form', '')}{key}" for key in spec.outputs}
        output_file = self.folder / f"{name}.executor_output.json"
        executor_input = {
            "inputs": {
                "parameterValues": parameters,
                "artifacts": {key: {"artifacts": [_artifact(key, path)]} for key, path in artifacts.items()},
            },
            "outputs": {
                "artifacts": {key: {"artifacts": [_artifact(key, path)]} for key, path in outputs.items()},
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
        artifacts_out = json.loads(output_file.read_bytes())["artifacts"]
        self.said[name] = {key: declared["artifacts"][0]["metadata"] for key, declared in artifacts_out.items()}
        return 0


def _artifact(name: str, path: Path) -> dict[str, Any]:
    return {"name": name, "uri": str(path), "metadata": {}}
