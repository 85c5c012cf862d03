"""docs/audit.md: its recipes run as they stand, and find what the page shows."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from spanloom.auditing.auditor import ModelOptions
from spanloom.auditing.run import AuditOptions, audit
from support import warm
from support.model_material import Pair, write_pair

PAGE = (Path(__file__).parents[2] / "docs/audit.md").read_text("utf-8")


def heredoc(name: str) -> str:
    """A file that the page writes with `cat`."""
    found = re.search(rf"   cat > {re.escape(name)} <<'END'\n(.*?)\n   END", PAGE, re.DOTALL)
    assert found
    return "".join(line.removeprefix("   ") + "\n" for line in found[1].split("\n"))


@pytest.fixture(scope="module")
def qwen3(model_material: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelOptions]:
    """A folder with `data/models/qwen3`, as the page fetches it, and the options of its model."""
    pair = next(pair for pair in model_material if pair.template == "otc_qwen-3")
    folder = tmp_path_factory.mktemp("page")
    (folder / "data/models").mkdir(parents=True)
    model = write_pair(pair, folder / "data/models/qwen3")
    (model / "config.json").write_text('{"model_type": "qwen3"}')  # transformers asks for it
    return folder, ModelOptions(folder=model, stops=pair.stops)


def test_the_recipe_of_trl_has_the_findings_of_the_page(qwen3: tuple[Path, ModelOptions]) -> None:
    folder, model = qwen3
    for name in ("chat.jsonl", "prepare.py"):
        (folder / name).write_text(heredoc(name))
    warm.run("support.script", "prepare.py", cwd=folder, env=os.environ).check_returncode()
    result = audit(AuditOptions(data=folder / "prepared", model=model))
    shown = {name: int(count) for name, count in re.findall(r"^   finding (\w+) +(\d+) ", PAGE, re.MULTILINE)}
    assert result.findings == shown
    share = f"{result.documents} documents, {result.tokens} tokens, {result.trained / result.tokens:.1%} trained"
    assert f"prepared: {result.container}, 4 rows, {share}" in PAGE


class Padded(Dataset[dict[str, Any]]):
    """Items with the fields of verl's datasets: padded to one length, tensors of numpy here."""

    def __init__(self, documents: list[tuple[list[int], list[int]]], length: int) -> None:
        self.documents, self.length = documents, length

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens, mask = self.documents[index]
        rest = [0] * (self.length - len(tokens))
        return {
            "input_ids": np.array([*tokens, *rest]),
            "attention_mask": np.array([1] * len(tokens) + rest),
            "position_ids": np.array([*range(len(tokens)), *rest]),
            "loss_mask": np.array([*mask, *rest]),
        }


def test_the_dump_of_a_trainers_dataset_is_audited(qwen3: tuple[Path, ModelOptions], tmp_path: Path) -> None:
    _, model = qwen3
    from spanloom.auditing.auditor import make_auditor

    auditor = make_auditor(model)
    right = [(document.tokens.tolist(), document.mask.tolist()) for _, document in auditor.documents[:6]]
    wrong = [(tokens, [1] * len(tokens)) for tokens, _ in right[:2]]
    found = re.search(r"```python\n(# dump\.py.*?)```", PAGE, re.DOTALL)
    assert found
    made: dict[str, Any] = {}
    exec(found[1], made)  # the page's own code
    dataset = Padded([*right, *wrong], max(len(tokens) for tokens, _ in right) + 7)
    made["dump"](dataset, tmp_path / "dump.parquet")
    result = audit(AuditOptions(data=tmp_path / "dump.parquet", model=model, rows=tmp_path / "rows"), auditor=auditor)
    assert (result.documents, result.found) == (8, {"all_trained": 2, "duplicate": 2})
    listed = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert sorted((line["class"], line["row"]) for line in listed) == [
        ("all_trained", 6),
        ("all_trained", 7),
        ("duplicate", 6),
        ("duplicate", 7),
    ]
    assert {line["file"] for line in listed} == {"dump.parquet"}
