"""Planted rows with garbled answers are the first of `teacher rank`; means are those of a plain forward pass."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import spanloom
from spanloom.api.scoring import ranked, scored
from spanloom.report.progress import Progress
from spanloom.teacher.sources.options import ScoringOptions
from support import warm
from support.chat_models import write_model
from support.model_datasets import record, stored, without_reasoning, write_conversations
from support.teachers import documents, expected, write_scored_dataset

BROKEN = 4
QUIET = Progress.given(False)


def garbled(seed: int) -> dict[str, str]:
    """A conversation whose answers are written backwards, twice."""
    whole = without_reasoning(record(seed, tools=False))
    messages = [
        {**each, "content": each["content"][::-1] * 2} if each["role"] == "assistant" else each
        for each in whole["messages"]
    ]
    return stored({**whole, "messages": messages, "id": f"broken-{seed}"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A dataset with broken rows among others, its signals, the teacher, which learned other rows."""
    folder = tmp_path_factory.mktemp("rank")
    _, model = write_scored_dataset(folder / "learned")
    rows = [stored(without_reasoning(record(seed))) for seed in range(40)]
    for number in range(BROKEN):
        rows.insert(7 * number + 3, garbled(1000 + number))
    source = write_conversations(folder / "source", [rows])
    bare = write_model(folder / "model")  # the same template and tokenizer, as the learned dataset was built with
    spanloom.build(source, folder / "root", model=bare, max_rejects="100%", allow_unknown_sha=True)
    scored(str(folder / "root"), str(folder / "signals"), ScoringOptions(model=model, top_k=3), QUIET)
    return folder / "root", folder / "signals", model


def test_broken_rows_are_the_first(made: tuple[Path, Path, Path]) -> None:
    root, signals, _ = made
    first = ranked(str(signals), str(root), BROKEN, 1, QUIET)
    ids = [spanloom.open_dataset(root, each.split)[each.sequence].id for each in first]
    assert all(identity.startswith("broken-") for identity in ids), ids
    assert len({*ids}) == BROKEN


def test_means_are_those_of_a_forward_pass(made: tuple[Path, Path, Path]) -> None:
    root, signals, model = made
    everything = ranked(str(signals), str(root), 1000, 1, QUIET)
    assert [each.mean for each in everything] == sorted(each.mean for each in everything)
    of_train = {each.sequence: each for each in everything if each.split == "train"}
    stored_documents = documents(root)
    assert of_train.keys() == {number for number, (_, mask) in enumerate(stored_documents) if mask.any()}
    for number, each in list(of_train.items())[:6]:
        logprobs, labels = expected(model, *stored_documents[number])
        own = logprobs[np.arange(labels.size), labels].clip(-32)
        assert each.labels == labels.size
        assert each.mean == pytest.approx(own.mean(), abs=6e-4)
        assert each.lowest == pytest.approx(own.min(), abs=6e-4)
        assert own[each.at] == pytest.approx(own.min(), abs=1.2e-3)
    longest = max(each.labels for each in everything)
    assert {each.labels for each in ranked(str(signals), str(root), 1000, longest, QUIET)} == {longest}


def test_the_command(made: tuple[Path, Path, Path]) -> None:
    root, signals, _ = made
    words = ("teacher", "rank", str(signals), "--dataset", str(root), "--count", "3")
    listed = json.loads(warm.run("spanloom", *words, "--json", env=os.environ).stdout)
    assert [each["mean"] for each in listed] == [each.mean for each in ranked(str(signals), str(root), 3, 1, QUIET)]
    assert len(warm.run("spanloom", *words, env=os.environ).stdout.splitlines()) == 3
