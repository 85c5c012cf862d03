"""Hugging Face's trainer and TRL's train L: a step and an evaluation against the definition."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spanloom.errors import DatasetError
from spanloom.training.hugging_face import span_trainer
from spanloom.training.loss import SpanWeights
from support import warm
from support.ranks import run_ranks
from support.token_datasets import random_document, write_dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of one span and of both, so that micro-batches lack one."""
    random = np.random.default_rng(3)

    def shard(documents: int) -> Any:
        spans = [(0, 1), (0, 1), (0, 2), (0, 1, 2)]
        return [
            random_document(random, int(length), spans[number % 4])
            for number, length in enumerate(random.integers(10, 60, documents))
        ]

    return write_dataset(tmp_path_factory.mktemp("hf") / "root", {"train": [shard(12)], "valid": [shard(8)]})


@pytest.mark.parametrize(("trainer", "processes"), [("Trainer", 1), ("Trainer", 2), ("SFTTrainer", 1)])
def test_a_step_and_an_evaluation_are_those_of_the_definition(
    root: Path, tmp_path: Path, trainer: str, processes: int
) -> None:
    rank = ("support.hugging_face_rank", root, tmp_path / "out.json", trainer)
    done = run_ranks(*rank, ranks=processes) if processes > 1 else [warm.run(*rank, env=os.environ)]
    assert not any(rank.returncode for rank in done), "\n".join(rank.stderr[-4000:] for rank in done)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["furthest"] < 1e-4, "of the step's length; parameters are float32"
    for kind in ("train", "valid"):
        logged, right = found[kind]
        assert {name: logged[name] for name in right} == pytest.approx(right, rel=2e-4)
        assert {name: logged[name] for name in right if name.endswith("tokens")} == {
            name: count for name, count in right.items() if name.endswith("tokens")
        }


def test_a_trained_span_without_a_weight_is_refused() -> None:
    """Calls of a conversation with weights for reasoning and answer alone: nobody would train them."""

    class Trainer:
        def get_batch_samples(self, iterator: Any, count: int, _: Any) -> tuple[Any, None]:
            return [next(iterator) for _ in range(count)], None

    labels, span = torch.tensor([[-100, 5, 6, 7]]), torch.tensor([[0, 1, 2, 3]])
    trainer = span_trainer(Trainer, SpanWeights({"analysis": 1.0, "final": 1.0}))()
    for untrained in (torch.tensor([[-100, 5, 6, -100]]), labels):
        batches = iter([{"labels": untrained, "span_id": span}])
        if untrained is labels:
            with pytest.raises(
                DatasetError, match="a trained token is of span 3, and weights are given for 2: analysis"
            ):
                trainer.get_batch_samples(batches, 1, "cpu")
        else:
            assert int(trainer.get_batch_samples(batches, 1, "cpu")[1]) == 2
