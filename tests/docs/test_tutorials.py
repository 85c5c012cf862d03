"""The notebooks of docs/tutorials run from top to bottom, in a folder of their own, without a download."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY
from support import warm
from support.nightly import nightly

FOLDER = REPOSITORY / "docs/tutorials"


def test_notebooks_are_committed_without_outputs() -> None:
    notebooks = sorted(FOLDER.glob("*.ipynb"))
    assert len(notebooks) == 3
    for notebook in notebooks:
        for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
            assert cell.get("outputs", []) == [], notebook
            assert cell.get("execution_count") is None, notebook


def test_each_tutorial_writes_to_a_folder_of_its_own() -> None:
    for notebook in FOLDER.glob("*.ipynb"):
        folders = set(re.findall(r"\btutorial/[\w-]+", notebook.read_text("utf-8")))
        assert folders == {f"tutorial/{notebook.stem}"}


@pytest.mark.parametrize("name", ["chat-file", nightly("model-trl"), nightly("span-loss")])
def test_a_tutorial_runs(name: str, tmp_path: Path, asset: Path) -> None:
    """Its code cells in one process, in their order, as a notebook's kernel runs them."""
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "tutorial.py").write_text("\n\n".join(code), "utf-8")
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "O200K_HARMONY_VOCAB_PATH": str(asset)}
    done = warm.run("support.script", tmp_path / "tutorial.py", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
