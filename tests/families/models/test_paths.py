"""Documents by path are those of the full proof, token for token. What a path does not give goes to the full proof."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, PreTokenizer

from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.documents.rules import ModelRules, load_ingredients
from spanloom.families.models.model import Model
from spanloom.families.models.paths.clean import clean_tokens, overlapping_texts
from spanloom.families.models.paths.prover import PathProver
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.documents import Document
from spanloom.tokenizers.encoding import JsonTokenizer
from support.chat_models import write_model
from support.drawn_chats import drawn_record
from support.model_material import Pair, models_of, records
from support.nightly import drawn, nightly
from tokenizers import AddedToken, Tokenizer

BY_DAY = ("otc_qwen-3", "otc_qwen-2.5", "trl_qwen3_training", "trl_gptoss", "otc_glm-4.7-flash")
TEMPLATES: dict[str, str] = json.loads((Path(__file__).parents[2] / "cases/templates/documents.json").read_text())
DRAWN = 700
"""Of each pair by night: 30 pairs make 21,000 conversations."""


def proving_of(model: Model) -> Proving:
    sets = variable_sets(model.template, "auto", {})
    return Proving(form=find_form(model.template, sets), variables=sets)


def conversation(seed: int) -> Conversation:
    """A drawn conversation; every second one without reasoning, which most templates do not know."""
    record = drawn_record(seed)
    if seed % 2:
        record["messages"] = [
            {key: value for key, value in each.items() if key != "reasoning_content"} for each in record["messages"]
        ]
    return read_conversation(record, name=str(seed))


def as_values(document: Document) -> Any:
    """All that a document and its runs say. The document alone has the text."""
    texts = (document.text, *(document.text[: run.stop] for run in document.runs))
    assert not any(run.whole for run in document.runs)
    return [
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(each).items()}
        | {"text": text, "whole": None}
        for each, text in zip((document, *document.runs), texts, strict=True)
    ]


def assert_equal(by_path: Proven, proven: Any, where: object) -> None:
    assert isinstance(proven, Proven), where
    left, right = (list(map(as_values, each.documents)) for each in (by_path, proven))
    for document in (*left, *right):
        document[0].pop("runs")  # objects; they follow as values
    assert left == right, where


@pytest.mark.parametrize("seed", [0, nightly(1)])
def test_documents_by_path_are_those_of_the_full_proof(seed: int, model_material: list[Pair], tmp_path: Path) -> None:
    by_path: dict[str, float] = {}
    chosen = [pair for pair in model_material if seed or pair.template in BY_DAY]
    for pair, model in models_of(chosen, tmp_path):
        proving = proving_of(model)
        prover = PathProver(model, proving)
        given = [conversation(number) for number in range(drawn(DRAWN, 40))]
        given += [read_conversation(each, name=str(number)) for number, each in enumerate(records())]
        by_path[pair.template] = 0.0
        for each in given:
            found = prover.documents(each)
            if found is None:
                assert not prover.reason.startswith("unexpected"), (pair.template, each.id, prover.reason)
                continue
            by_path[pair.template] += 1 / len(given)
            assert_equal(found.proven, prove_conversation(model, each, proving), (pair.template, each.id))
            assert all(found.is_rendered(model, choice) for choice in range(2 * len(found.runs))), (
                pair.template,
                each.id,
            )
    assert by_path["otc_qwen-3"] >= 0.8
    assert by_path["trl_qwen3_training"] >= 0.8, "{% generation %}"
    assert by_path["otc_qwen-2.5"] >= 0.7, "reasoning in the content: some prompts end within a token"


@pytest.mark.parametrize("name", TEMPLATES)
def test_documents_of_templates_that_look_at_texts_are_those_of_the_full_proof(name: str, tmp_path: Path) -> None:
    """Each template differs from one that does everything right in one place. Where other texts would change the frame,
    the full proof refuses the run, and a path must not make it."""
    folder = write_model(tmp_path / "model", TEMPLATES[name], stops=("<|end|>", "<|eof|>"))
    loaded = load_ingredients(folder, ModelRules())
    model, proving = loaded.model, loaded.proving
    prover = PathProver(model, proving)
    for number in range(drawn(600, 24)):
        given = conversation(number)
        found = prover.documents(given)
        if found is None:
            assert not prover.reason.startswith("unexpected"), (given.id, prover.reason)
        else:
            assert_equal(found.proven, prove_conversation(model, given, proving), given.id)


def test_a_tokenizer_of_the_sentencepiece_kind_is_not_cut(tmp_path: Path) -> None:
    tokenizer = _saved(tmp_path, Metaspace(), AddedToken("</s>", special=True))
    assert clean_tokens(tokenizer) == frozenset()


def test_tokens_that_overlap_or_take_white_space_are_not_cut_at(tmp_path: Path) -> None:
    tokenizer = _saved(
        tmp_path,
        ByteLevel(),
        AddedToken("<|a|>", normalized=False),
        AddedToken("<|b|>", normalized=False, rstrip=True),
        AddedToken("<c>", normalized=False),
        AddedToken("c><d>", normalized=False),
    )
    assert clean_tokens(tokenizer) == {"<|a|>"}


def test_texts_overlap_if_one_fits_over_another_at_any_place() -> None:
    chance = Random(7)

    def fits(one: str, other: str, shift: int) -> bool:
        """Whether `other` may begin `shift` characters behind the begin of `one`, and share characters with it."""
        first, end = max(0, shift), min(len(one), shift + len(other))
        return first < end and one[first:end] == other[first - shift : end - shift]

    for _ in range(300):
        texts = {"".join(chance.choices("ab<|", k=chance.randint(1, 6))) for _ in range(chance.randint(1, 5))}
        wanted = {
            one
            for one in texts
            for other in texts
            if any(fits(one, other, shift) for shift in range(-6, 7) if shift or one != other)
        }
        assert overlapping_texts(texts) == wanted


def _saved(folder: Path, splitter: PreTokenizer, *added: AddedToken) -> JsonTokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = splitter
    tokenizer.add_tokens(list(added))
    tokenizer.save(str(folder / "tokenizer.json"))
    return JsonTokenizer(folder / "tokenizer.json", extra="chat")
