"""The Python of docs/api.md is run as it is, as one plain script in a process of its own."""

import os
import re
from pathlib import Path

from conftest import REPOSITORY
from support import warm

PAGE = (REPOSITORY / "docs/api.md").read_text()


def test_the_page_is_a_script_of_thirty_lines_that_runs(tmp_path: Path, asset: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    script = tmp_path / "script.py"
    script.write_text("print('--')\n".join(blocks), "utf-8")
    assert len([line for block in blocks for line in block.splitlines() if line]) <= 30
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    environment = {**os.environ, "O200K_HARMONY_VOCAB_PATH": str(asset), "SPANLOOM_GIT_SHA": "0" * 40}
    done = warm.run("support.script", script, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    made, one, checked, brought, trained = done.stdout.split("--\n")
    # chat.jsonl has ten conversations; at this fraction ten of their documents are in train.
    assert len(made.splitlines()) == 10
    assert "analysis '<|start|>assistant<|channel|>analysis<|message|>" in one
    assert re.search(r"^19 .* 2 True \('context', 'analysis', 'final', 'commentary'\)$", one, flags=re.MULTILINE)
    assert checked.startswith("True megatron []")
    assert int(brought) > 0
    assert len(trained.splitlines()) == 3
    assert sorted(path.name for path in (tmp_path / "data/api").iterdir()) == [
        "dataset",
        "document.html",
        "plan",
        "source",
        "trl",
    ]
