"""`python -m tools.bench.learning`: does it learn, and does each weight do what it says? Three runs, one plot.

In: a dataset. Out: a plot of the loss of each span over the steps, with both weights 1, with w_r = 0 and with w_f = 0,
and a table of where they end. Each run is docs/examples/training/gpt.py in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

GPT = Path(__file__).parents[3] / "docs/examples/training/gpt.py"
RUNS = {"both spans": (1.0, 1.0), "w_r = 0": (0.0, 1.0), "w_f = 0": (1.0, 0.0)}
SPANS = ("analysis", "final")
SMOOTHED = 10
"""Steps that are averaged where the curve is drawn: a step holds a few hundred tokens of each span."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.learning", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="a dataset")
    parser.add_argument("--plot", type=Path, default=Path("learning.svg"), help="where the plot goes (.svg or .png)")
    parser.add_argument("--work", type=Path, help="folder for the runs; one that is there already is taken as it is")
    parser.add_argument("--steps", type=int, default=200)
    given, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="spanloom-learning-") as temporary:
        work = given.work or Path(temporary)
        logs = {name: _run(given.root, work, weights, given.steps, more) for name, weights in RUNS.items()}
    for line in table(logs):
        print(line)
    plot(logs, given.plot)
    print(given.plot)


def _run(root: Path, work: Path, weights: tuple[float, float], steps: int, more: list[str]) -> list[dict[str, Any]]:
    output = work / f"w_{weights[0]:g}_{weights[1]:g}"
    command = [sys.executable, str(GPT), "--root", str(root), "--output", str(output)]
    command += ["--index-cache", str(work / "index"), "--steps", str(steps), "--save-interval", str(steps)]
    command += ["--eval-interval", str(max(1, steps // 4))]
    command += [f"--span-weights=analysis={weights[0]},final={weights[1]}", *more]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]


def table(logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Mean loss of each span over the first and the last steps of train, and on valid at the end."""
    lines = [f"{'':<12} {'span':<9} {'first':>8} {'last':>8} {'valid':>8}"]
    for name, log in logs.items():
        train, valid = _of(log, "train"), _of(log, "valid")
        for span in SPANS:
            values = [record[f"{span}_loss"] for record in train if record[f"{span}_loss"] is not None]
            end = valid[-1][f"{span}_loss"] if valid else float("nan")
            lines.append(
                f"{name:<12} {span:<9} {fmean(values[:SMOOTHED]):8.3f} {fmean(values[-SMOOTHED:]):8.3f} {end:8.3f}"
            )
    return lines


def plot(logs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "spanloom"  # the same runs draw the same file
    figure, panels = plt.subplots(1, len(SPANS), figsize=(9, 3.4), sharey=True, layout="constrained")
    for panel, span in zip(panels, SPANS, strict=True):
        for (name, log), colour in zip(logs.items(), ("tab:blue", "tab:orange", "tab:green"), strict=True):
            steps, losses = _curve(_of(log, "train"), span)
            panel.plot(steps, losses, color=colour, label=name)
            valid = [(record["step"], record[f"{span}_loss"]) for record in _of(log, "valid")]
            panel.plot(*zip(*valid, strict=True), "o", color=colour, markersize=4)
        panel.set(title=f"{span} loss (line: train, dots: valid)", xlabel="step")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("nats a token")
    panels[-1].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curve(train: list[dict[str, Any]], span: str) -> tuple[list[int], list[float]]:
    known = [(record["step"], record[f"{span}_loss"]) for record in train if record[f"{span}_loss"] is not None]
    means = [fmean(loss for _, loss in known[max(0, end - SMOOTHED) : end]) for end in range(1, len(known) + 1)]
    return [step for step, _ in known], means


def _of(log: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in log if record["kind"] == kind]


if __name__ == "__main__":
    main()
