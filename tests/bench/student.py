"""`python -m bench.student DATASET SIGNALS`: is a student of a real teacher closer to it than by the labels alone?

In: a dataset with a `valid` split, and signals of both splits. Out: for each seed the mean KL(teacher ‖ student) at the
labels of `valid`, of k + 1 classes (the top k and the rest), for a student of two layers that `distil.py` trains with
the signals, and for one that it trains with the labels. Each takes the same batches for as many steps.
"""

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import torch

from conftest import REPOSITORY
from spanloom.training import DocumentDataset, distillation_loss
from spanloom.training.pytorch import collate


def example() -> Any:
    spec = importlib.util.spec_from_file_location("distil", REPOSITORY / "docs/examples/training/distil.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def divergence(model: Any, data: DocumentDataset) -> float:
    total = labels = 0.0
    with torch.no_grad():
        for first in range(0, len(data), 8):
            batch = collate([data[at] for at in range(first, min(first + 8, len(data)))])
            logits = model(input_ids=batch["tokens"], attention_mask=batch["attention_mask"]).logits
            mask = batch["loss_mask"] * batch["teacher_mask"]
            losses = distillation_loss(logits, *(batch[f"teacher_{name}"] for name in ("ids", "logprobs", "rest")))
            total += float((losses * mask).sum())
            labels += float(mask.sum())
    return total / labels


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.student", description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("signals", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    distil = example()
    valid = DocumentDataset(given.dataset, "valid", teacher=given.signals)
    for seed in range(given.seeds):
        of = {
            way: divergence(
                distil.learn(given.dataset, given.signals, given.steps, seed=seed, cross_entropy=share)[0], valid
            )
            for way, share in (("signals", 0.0), ("labels", 1.0))
        }
        print(
            f"seed {seed}, {given.steps} steps: {', '.join(f'{way} {value:.3f}' for way, value in of.items())}",
            flush=True,
        )


if __name__ == "__main__":
    main()
