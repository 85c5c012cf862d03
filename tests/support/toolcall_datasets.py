"""A small dataset of samples of tool calls: both of its roots, of one template and tokenizer."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spanloom.building.make import BuildResult
from spanloom.dataset.root.layout import array_prefix, rows_file
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.recipe import TokenizeRules
from spanloom.megatron.official import open_indexed
from support.toolcall_samples import changed, harmful, retain, write_samples

FRACTION = 0.3


def samples() -> list[dict[str, Any]]:
    made = [harmful(number) for number in range(12)]
    kept = [retain(number) for number in range(20)]
    kept[3] = changed(kept[3], "training.sample_weight", 2.5)
    kept[4] = changed(kept[4], "training.repeat", 3)
    kept[5] = changed(kept[5], "training.priority_class", "adversarial_safe")
    unrenderable = retain(
        50, messages=[*retain(50)["messages"], {"role": "assistant", "content": None, "tool_calls": [{}]}]
    )
    return [sample for pair in zip(made, kept, strict=False) for sample in pair] + kept[12:] + [unrenderable]


def make(data: Path, template: Path, tokenizer: Path, out: Path, **rules: Any) -> dict[str, BuildResult]:
    given = TokenizeRules(**{"valid_fraction": FRACTION, **rules})
    options = BuildOptions(
        data=data, template=template, tokenizer=tokenizer, out=out, rules=given, allow_unknown_sha=True
    )
    return {one.root.name: one for one in build(options)}


def documents(root: Path, split: str) -> list[tuple[list[int], list[int]]]:
    """Tokens and mask of each document as on disk, read through Megatron's own reader."""
    tokens, mask = (open_indexed(array_prefix(root, split, 0, name)) for name in ("tokens", "lossmask"))
    return [(tokens[number].tolist(), mask[number].tolist()) for number in range(len(tokens))]


def rows(root: Path) -> dict[str, dict[str, Any]]:
    return {
        row["sample_id"]: row
        for split in ("train", "valid")
        for row in pq.read_table(rows_file(root, split, 0)).to_pylist()
    }


@pytest.fixture(scope="module")
def tokenizer(fixtures: Path) -> Path:
    return fixtures / "tokenizer_llamalike.json"


@pytest.fixture(scope="module")
def template(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "aware.jinja"
    path.write_text(json.loads((fixtures / "templates.json").read_bytes())["templates"]["aware"])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_samples(tmp_path_factory.mktemp("samples") / "train.jsonl", samples())


@pytest.fixture(scope="module")
def built(data: Path, template: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("roots")
    results = make(data, template, tokenizer, out)
    assert [one.report.clean for one in results.values()] == [True, True]
    return out
