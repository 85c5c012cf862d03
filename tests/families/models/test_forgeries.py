"""Datasets for a model that are false and fit together.

Each forgery changes one thing, and all that follows from it but for what only the template, the tokens or the source
can tell.
"""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spanloom
from spanloom.provenance import sha256_json
from support.chat_models import write_model
from support.forging import Forgeries
from support.model_datasets import stored, write_conversations
from support.shared_forgeries import link_elsewhere
from tools.corruption.dataset import Dataset, Document, listed

WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven", "eight", "write"]


def _files_of_the_model(dataset: Dataset) -> None:
    """Their hashes in the config are those of the files."""
    config = dataset.manifest["content"]["config"]
    config["model_files"] = {name: listed(dataset.root / "model", name)["sha256"] for name in config["model_files"]}


forgery = Forgeries(also=_files_of_the_model)


def conversations() -> list[list[dict[str, Any]]]:
    """360 short ones, of several turns, many of them equally long."""
    drawn = random.Random(1)
    rows = []
    for number in range(360):
        messages = []
        if number % 5 == 4:
            messages.append({"role": "system", "content": f"Answer in {drawn.choice(WORDS)}."})
        for _ in range(2 if number == 0 else drawn.choice([1, 2, 2, 3])):
            messages.append({"role": "user", "content": f"What about the {drawn.choice(WORDS)} {number:03d}?"})
            said = f"It is {drawn.choice(WORDS)} and {drawn.choice(WORDS)}."
            messages.append({"role": "assistant", "content": said})
        rows.append(stored({"id": f"c{number}", "messages": messages}))
    return [rows[:180], rows[180:]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An honest dataset and its source."""
    folder = tmp_path_factory.mktemp("forged")
    source = write_conversations(folder / "source", conversations())
    result = spanloom.build(
        source, folder / "root", model=write_model(folder / "model"), valid_fraction=0.1, reader="independent"
    )
    assert result.report.clean, result.report.findings
    return result.root, source


def several(dataset: Dataset) -> Document:
    """A document of two runs or more."""
    return next(document for document in dataset.documents["train", 0] if document.about["runs"] > 1)


def answers(document: Document) -> Any:
    return np.flatnonzero(document.span == 2)


forgery.values(
    lambda dataset: dataset.manifest["content"],
    {
        "the_form_is_another": ("alone", "config.form.arguments", "text"),
        "declared_runs_are_counted_that_are_not_there": ("alone", "shards.0.cutting.declared", 3),
        "messages_are_left_out_that_are_not": ("source", "shards.0.cutting.left_out_messages", 3),
    },
)


@forgery("alone")
def _a_user_token_is_trained(dataset: Dataset) -> None:
    document = several(dataset)
    at = int(np.flatnonzero(document.span == 0)[10])
    document.span[at], document.lossmask[at] = 2, 1


@forgery("alone")
def _all_user_tokens_are_trained(dataset: Dataset) -> None:
    for documents in dataset.documents.values():
        for document in documents:
            document.span[:-2], document.lossmask[:-2] = 2, 1


@forgery("alone")
def _a_stop_is_not_trained(dataset: Dataset) -> None:
    document = several(dataset)
    at = answers(document)[-1]
    document.span[at] = document.lossmask[at] = 0


@forgery("alone")
def _the_first_answer_is_not_trained(dataset: Dataset) -> None:
    document = several(dataset)
    at = answers(document)
    first = at[: int(np.flatnonzero(np.diff(at) > 1)[0]) + 1]
    document.span[first] = document.lossmask[first] = 0


@forgery("alone")
def _the_mask_is_one_place_late(dataset: Dataset) -> None:
    document = several(dataset)
    document.span[1:-1], document.lossmask[1:-1] = document.span[:-2].copy(), document.lossmask[:-2].copy()


@forgery("alone")
def _a_control_token_is_in_a_text(dataset: Dataset) -> None:
    several(dataset).tokens[12] = min(dataset.manifest["content"]["config"]["stops"].values())


@forgery("alone")
def _documents_are_copies_of_one(dataset: Dataset) -> None:
    first, *others = dataset.documents["train", 0]
    for other in others:
        other.tokens, other.lossmask, other.span = first.tokens.copy(), first.lossmask.copy(), first.span.copy()


@forgery("alone")
def _the_end_of_a_turn_is_another(dataset: Dataset) -> None:
    document = several(dataset)
    document.about["turn_end"] = [None] * document.about["runs"]


@forgery("alone")
def _a_run_is_encoded_apart_that_is_not(dataset: Dataset) -> None:
    document = several(dataset)
    document.about["boundary"] = ["served"] * document.about["runs"]


@forgery("alone")
def _a_stop_has_another_id(dataset: Dataset) -> None:
    stops = dataset.manifest["content"]["config"]["stops"]
    stops[next(iter(stops))] = 77


@forgery("alone")
def _a_file_is_no_json(dataset: Dataset) -> None:
    (dataset.root / "model/generation_config.json").write_text("[[[")


@forgery("alone")
def _a_file_is_a_link(dataset: Dataset) -> None:
    link_elsewhere(dataset, "model/generation_config.json")


@forgery("alone")
def _the_model_has_a_foreign_file(dataset: Dataset) -> None:
    (dataset.root / "model/added_tokens.json").write_text('{"X": 3}')


@forgery("alone")
def _the_probe_is_of_another_model(dataset: Dataset) -> None:
    path = dataset.root / "probe.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "model": "<script>alert(1)</script>"}))


@forgery("alone")
def _more_is_audited_than_there_is(dataset: Dataset) -> None:
    renderer = {"name": "tokenizers", "version": "9", "fallback_rows": 3, "audited_rows": 10**9}
    dataset.manifest["content"]["renderer"] = renderer


@forgery("alone")
def _a_document_is_left_out(dataset: Dataset) -> None:
    dataset.documents["train", 0].pop(5)
    cutting = dataset.manifest["content"]["shards"][0]["cutting"]
    cutting["documents"] -= 1
    cutting["untrained"] += 1


@forgery("source")
def _a_trained_token_is_another(dataset: Dataset) -> None:
    document = several(dataset)
    document.tokens[answers(document)[1] + 1] = 70


@forgery("source")
def _two_documents_are_exchanged(dataset: Dataset) -> None:
    first, *others = dataset.documents["train", 0]
    other = next(
        each
        for each in others
        if each.tokens.size == first.tokens.size
        and np.array_equal(each.span, first.span)
        and not np.array_equal(each.tokens, first.tokens)
    )
    first.tokens, other.tokens = other.tokens, first.tokens


@forgery("source")
def _more_is_trained_behind_the_answer(dataset: Dataset) -> None:
    document = several(dataset)
    _repeated(document, answers(document)[-1])


@forgery("source")
def _more_is_trained_before_the_answer(dataset: Dataset) -> None:
    document = several(dataset)
    _repeated(document, answers(document)[0])


def _repeated(document: Document, label: int) -> None:
    """Trains a word more at the place of a trained token: behind the text that is the stop."""
    word = document.tokens[answers(document)[1] + 1]
    document.tokens = np.insert(document.tokens, label + 1, word)
    document.span = np.insert(document.span, label, 2)
    document.lossmask = np.insert(document.lossmask, label, 1)


@forgery("source")
def _an_answer_is_cut(dataset: Dataset) -> None:
    document = several(dataset)
    size = document.tokens.size
    kept = np.r_[0 : size - 13, size - 4 : size]
    document.tokens, document.span, document.lossmask = (
        array[kept] for array in (document.tokens, document.span, document.lossmask)
    )


@forgery("source")
def _runs_are_of_other_messages(dataset: Dataset) -> None:
    document = several(dataset)
    document.about["run"] = [1, *(place + 2 for place in document.about["run"][1:])]


@forgery("source")
def _variables_are_nobodys(dataset: Dataset) -> None:
    document = several(dataset)
    document.about["variables"] = ['{"enable_thinking": false}'] * document.about["runs"]


@forgery("source")
def _a_text_is_trimmed_that_is_not(dataset: Dataset) -> None:
    document = several(dataset)
    document.about["trimmed"] = [True] * document.about["runs"]


@forgery("all")
def _the_template_is_another(dataset: Dataset) -> None:
    path = dataset.root / "model/chat_template.jinja"
    path.write_text("{% if messages|length > 3 %}x{% endif %}" + path.read_text())
    dataset.manifest["content"]["config"]["template_sha256"] = sha256_json(path.read_text())


@forgery("all")
def _the_tokenizer_is_another(dataset: Dataset) -> None:
    path = dataset.root / "model/tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "normalizer": {"type": "Lowercase"}}))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    dataset.manifest["content"]["tokenizer"]["sha256"] = digest


def test_an_honest_dataset_written_again_is_clean(made: tuple[Path, Path], tmp_path: Path) -> None:
    forgery.assert_honest(*made, tmp_path / "root", lambda _: None)


@pytest.mark.parametrize("name", list(forgery.by_name))
def test_a_forgery_is_found(name: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    root, source = made
    assert not forgery.report(name, root, tmp_path / "root", source).clean, f"{name} is not found"
