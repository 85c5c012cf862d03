"""The losses of docs/examples/losses: two steps on a dataset, and each value against plain numpy."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from conftest import REPOSITORY
from families.toolcalls.conftest import values
from spanloom.dataset.manifest import read
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.loader import PairedLoader
from spanloom.families.toolcalls.recipe import TokenizeRules
from support.toolcall_samples import harmful, retain, write_samples

EXAMPLES = REPOSITORY / "docs/examples/losses"
OF_STATES = ("reroute", "retain_l2", "triplet")
NAMES = (*OF_STATES, "unlikelihood")
States = Any


def test_unlikelihood_learns_what_is_kept(examples: dict[str, ModuleType], roots: Path) -> None:
    history = examples["tiny_model"].train(roots, examples["unlikelihood"].step, steps=12, benign_per_harmful=2)
    assert min(line["harmful"] for line in history) > 0
    assert history[-1]["retain"] < history[0]["retain"]


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The examples as `python EXAMPLE.py` sees each other: modules of one folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    names = (*NAMES, "tiny_model")
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def roots(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("losses")
    (folder / "aware.jinja").write_text(values(fixtures / "templates.json")["templates"]["aware"])
    samples = [*(harmful(number, tools=[]) for number in range(2)), *(retain(number) for number in range(3))]
    options = BuildOptions(
        data=write_samples(folder / "train.jsonl", samples),
        template=folder / "aware.jinja",
        tokenizer=fixtures / "tokenizer_llamalike.json",
        out=folder / "roots",
        rules=TokenizeRules(valid_fraction=0.0),
        allow_unknown_sha=True,
    )
    assert [made.report.clean for made in build(options)] == [True, True]
    return folder / "roots"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(examples: dict[str, ModuleType], roots: Path, name: str) -> None:
    first, second = examples["tiny_model"].train(roots, examples[name].step, steps=2, benign_per_harmful=2)
    assert np.isfinite([*first.values(), *second.values()]).all()
    assert first != second
    # Before the first step the model is its own frozen copy.
    at_rest = {"reroute": {"reroute": 1.0}, "retain_l2": {"retain": 0.0}, "triplet": {"kl": 0.0}}.get(name, {})
    assert {key: first[key] for key in at_rest} == pytest.approx(at_rest, abs=1e-5)


def norm(vector: States) -> float:
    return float(sum(float(value) ** 2 for value in vector) ** 0.5)


def cosine(left: States, right: States) -> float:
    return float(sum(float(a) * float(b) for a, b in zip(left, right, strict=True))) / (norm(left) * norm(right))


def distance(left: States, right: States) -> float:
    return norm(left - right) + 10 * (1 - max(0.0, cosine(left, right)))


def test_unlikelihood_is_that_of_the_formula(examples: dict[str, ModuleType], roots: Path) -> None:
    """Each label by itself, in plain loops: -log(1 - p) of the harmful ones, -log p of the others by weight."""
    torch.manual_seed(1)
    model = examples["tiny_model"].TinyModel(read(roots / "retain").content.tokenizer.vocab_size)
    batch = next(iter(PairedLoader(roots, allow_harmful=True, benign_per_harmful=2, weighted="loss")))
    with torch.no_grad():
        losses = examples["unlikelihood"].step(model, model, batch, 0.5)
        logits = {split: model(batch[split]["tokens"])[0].double().numpy() for split in batch}
    chances: dict[str, list[tuple[float, float]]] = {}
    for split, scores in logits.items():
        chances[split] = []
        for row, at in np.argwhere(batch[split]["loss_mask"].numpy() > 0).tolist():
            powers = np.exp(scores[row, at] - scores[row, at].max())
            weight = float(batch[split]["weight"][row]) if split == "retain" else 1.0
            chances[split].append((float(powers[int(batch[split]["labels"][row, at])] / powers.sum()), weight))
    away = [-np.log(1 - chance) for chance, _ in chances["harmful"]]
    stay = sum(-np.log(chance) * weight for chance, weight in chances["retain"])
    expected = {"harmful": np.mean(away), "retain": stay / sum(weight for _, weight in chances["retain"])}
    expected["total"] = expected["harmful"] + expected["retain"]
    assert {key: losses[key].item() for key in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", OF_STATES)
def test_a_value_is_that_of_the_formula(examples: dict[str, ModuleType], roots: Path, name: str) -> None:
    """States of a real batch, by two models; every answer token by itself, in plain loops."""
    torch.manual_seed(1)
    tiny = examples["tiny_model"]
    vocabulary = read(roots / "retain").content.tokenizer.vocab_size
    model, frozen = tiny.TinyModel(vocabulary), tiny.TinyModel(vocabulary)
    batch = next(iter(PairedLoader(roots, allow_harmful=True, benign_per_harmful=2, weighted="loss")))
    with torch.no_grad():
        losses = examples[name].step(model, frozen, batch, 0.5)
        states = {
            split: [each(batch[split]["tokens"])[1].double().numpy() for each in (model, frozen)] for split in batch
        }
    pairs: dict[str, list[list[tuple[States, States]]]] = {}
    for split, (new, old) in states.items():
        # The mask is of labels: where it is 1, the token that follows is of the answer.
        places = [(row, at + 1) for row, at in np.argwhere(batch[split]["loss_mask"].numpy() > 0).tolist()]
        pairs[split] = [[(new[layer][place], old[layer][place]) for place in places] for layer in range(len(new))]
    kept = [pair for layer in pairs["retain"] for pair in layer]
    away = [pair for layer in pairs["harmful"] for pair in layer]
    if name == "triplet":
        middles = [np.mean([new for new, _ in layer], axis=0) for layer in pairs["harmful"]]
        keep = [
            max(0.0, distance(new, old) - distance(new, middle) + 1.2)
            for layer, middle in zip(pairs["retain"], middles, strict=True)
            for new, old in layer
        ]
        apart = [
            max(0.0, distance(new, middle) - distance(new, old) + 1.6)
            for layer, middle in zip(pairs["harmful"], middles, strict=True)
            for new, old in layer
        ]
        expected = {"keep": np.mean(keep), "harmful": np.mean(apart)}
    else:
        expected = {"retain": np.mean([norm(new - old) for new, old in kept])}
    if name == "reroute":
        expected["reroute"] = np.mean([max(0.0, cosine(new, old)) for new, old in away])
        expected["total"] = 10 * (0.75 * expected["reroute"] + 0.25 * expected["retain"])
    assert {key: losses[key].item() for key in expected} == pytest.approx(expected, rel=1e-4)
    assert all(value > 0 for value in expected.values())
