"""The Python of docs/api.md is run as it stands, one block after the other."""

import re
from pathlib import Path

import pytest

from conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/api.md").read_text()


def test_the_examples_run(
    tmp_path: Path, asset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", str(asset))
    monkeypatch.setenv("SPANLOOM_GIT_SHA", "0" * 40)
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    names: dict[str, object] = {}
    printed = []
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
        exec(compile(block, "docs/api.md", "exec"), names)
        out, error = capsys.readouterr()
        assert error == ""
        printed.append(out)
    assert len(printed) == 4
    made, one, checked, trained = printed
    # chat.jsonl has ten conversations; at this fraction ten of their documents are in train.
    assert len(made.splitlines()) == 10
    assert "analysis '<|start|>assistant<|channel|>analysis<|message|>" in one
    assert re.search(r"^19 .*\('context', 'analysis', 'final', 'commentary'\)$", one, flags=re.MULTILINE)
    assert checked.startswith("True megatron []")
    assert len(trained.splitlines()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "docs"]
