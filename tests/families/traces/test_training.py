"""A token dataset of traces under the example of training: Megatron's dataset and the loss per span take it."""

import json
import os
from pathlib import Path

import pytest

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.sample import run as sample
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from support import examples, warm


def test_reasoning_and_answer_have_a_loss_and_a_weight_each(tmp_path: Path) -> None:
    sample(out=str(tmp_path / "s.jsonl"), traces=60, tokenizer=str(tmp_path / "tokenizer.json"))
    store = open_store(default_url(tmp_path), create=True)
    ingest_file(store, tmp_path / "s.jsonl", source_name="s")
    build_dataset(store, tmp_path, BuildRequest(dataset_name="d", dataset_version="1"))
    options = TokenBuildOptions(
        root=tmp_path,
        key="d-1",
        tokenizer=tmp_path / "tokenizer.json",
        out=tmp_path / "tokens",
        rules=TokenizeRules(valid_fraction=0.2),
        allow_unknown_sha=True,
    )
    assert build_tokens(store, options).report.clean
    store.close()
    done = warm.run(
        "support.script",
        examples.GPT,
        *("--root", tmp_path / "tokens", "--index-cache", tmp_path / "cache", "--output", tmp_path / "run"),
        *("--steps", 3, "--sequence-length", 64, "--global-batch-size", 2, "--span-weights", "reasoning=1,answer=0.5"),
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    assert len(steps) == 3
    for line in steps:
        assert line["reasoning_tokens"] > line["answer_tokens"] > 0
        weighed = line["reasoning_loss"] + 0.5 * line["answer_loss"]
        assert line["loss"] == pytest.approx(weighed, rel=1e-5)
