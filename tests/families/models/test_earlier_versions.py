"""Datasets of earlier versions, with faults that builds no longer make: validation says so, and calls them clean."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import spanloom
from spanloom.report.summary import findings_text
from support.chat_models import CHATML, small_tokenizer, write_model
from support.forging import forged
from support.model_datasets import stored, write_conversations
from tools.corruption.dataset import Dataset, Document, write_manifest

FORGETS = CHATML.replace(
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}",
    "{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
).replace(
    "{{ m.content or '' }}",
    "{% if m.role == 'assistant' and loop.last and not m.reasoning_content %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content or '' }}",
)
"""A template whose prompt holds an empty thought where thinking is off."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    rows = []
    for number in range(40):
        thought = {"reasoning_content": f"Where is {number}?"} if number % 2 else {}
        answer = {"role": "assistant", "content": f"The answer is there, {number}.", **thought}
        messages = [{"role": "user", "content": f"Where is the answer {number}?"}, answer]
        rows.append(stored({"id": f"c{number}", "messages": messages}))
    source = write_conversations(folder / "source", [rows])
    model = write_model(folder / "model", FORGETS, tokenizer=small_tokenizer())
    return spanloom.build(source, folder / "root", model=model, valid_fraction=0, deep=0, reader="independent").root


def _with_empty_thought(dataset: Dataset) -> Document:
    return next(each for each in dataset.documents["train", 0] if not (each.span == 1).any())


def _the_empty_thought_is_trained(dataset: Dataset) -> None:
    document = _with_empty_thought(dataset)
    first = int(np.flatnonzero(document.span)[0])
    document.span[first - 3 : first], document.lossmask[first - 3 : first] = 1, 1


def _a_text_holds_a_control_token(dataset: Dataset) -> None:
    document = dataset.documents["train", 0][0]
    document.tokens[6] = dataset.manifest["content"]["config"]["stops"]["<|end|>"]


def _an_answer_is_reasoning_alone(dataset: Dataset) -> None:
    document = next(each for each in dataset.documents["train", 0] if (each.span == 1).any())
    trained = np.flatnonzero(document.span)[:-1]
    document.span[trained] = 1


FAULTS: dict[str, Callable[[Dataset], None]] = {
    "the empty thought of the prompt is trained": _the_empty_thought_is_trained,
    "a text holds a control token": _a_text_holds_a_control_token,
    "an answer is reasoning alone": _an_answer_is_reasoning_alone,
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_earlier_versions_made_is_a_notice(what: str, made: Path, tmp_path: Path) -> None:
    root = shutil.copytree(made, tmp_path / "root")
    forged(root, FAULTS[what])
    now = spanloom.validate(root)
    assert not now.clean
    assert not now.notices
    manifest = json.loads((root / "manifest.json").read_bytes())
    del manifest["environment"]["shards"]
    write_manifest(root, manifest)
    before = spanloom.validate(root)
    assert before.notices == [f"{what}: 1 documents; build it again to fix them"]
    assert before.clean, before.findings
    assert f"notice, of an earlier version: {what}: 1 documents" in str(findings_text(before))
