"""`python -m tools.bench.student DATASET SIGNALS`: is a student closer to a real teacher than by the labels alone?

In: a dataset with a `valid` split, and signals of both splits. Out: for each seed the mean KL(teacher ‖ student) at the
labels of `valid`, of k + 1 classes (the top k and the rest), for a student of two layers that `distil.py` trains with
the signals, and for one that it trains with the labels, every few steps. Both take the same batches. With `--plot` also
a plot of them.
"""

import argparse
import importlib.util
import itertools
from pathlib import Path
from typing import Any

import torch

from conftest import REPOSITORY
from spanloom.training import DocumentDataset, distillation_loss
from spanloom.training.pytorch import collate

WAYS = {"signals": 0.0, "labels": 1.0}
"""What a student learns from, and the share of the cross entropy in its loss."""

Curves = dict[tuple[int, str], list[tuple[int, float]]]
"""Of a seed and a way: steps and the divergence after them."""


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
    parser = argparse.ArgumentParser(prog="python -m tools.bench.student", description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("signals", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=40, help="steps between two figures of a student")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path, help="where the plot goes (.svg or .png)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    distil = example()
    valid = DocumentDataset(given.dataset, "valid", teacher=given.signals)
    curves: Curves = {}
    for seed, (way, share) in itertools.product(range(given.seeds), WAYS.items()):
        curve = curves[seed, way] = []
        students = distil.student(given.dataset, given.signals, seed=seed, cross_entropy=share)
        for step, (model, _) in enumerate(itertools.islice(students, given.steps + 1)):
            if step and step % given.every == 0:
                curve.append((step, divergence(model, valid)))
        print(f"seed {seed}, {way}: {', '.join(f'{step}: {value:.3f}' for step, value in curve)}", flush=True)
    if given.plot:
        plot(curves, given.plot)


def plot(curves: Curves, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "spanloom"  # the same runs draw the same file
    figure, panel = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for (seed, way), curve in curves.items():
        colour = "tab:blue" if way == "signals" else "tab:orange"
        panel.plot(*zip(*curve, strict=True), "o-", color=colour, markersize=3, label="" if seed else f"by {way}")
    panel.set(title="Distance to the teacher on held-out documents", xlabel="step", ylabel="KL(teacher ‖ student)")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
