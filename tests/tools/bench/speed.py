"""Tokens a second: the plain route and `spanloom build` over the same conversations, at two sizes.

In: a small and a big source. Out: trials, and a summary by medians. A route's rate is *marginal*,

    (tokens_big - tokens_small) / (seconds_big - seconds_small)

so that what a run costs before its first token (imports, loading the tokenizer, starting processes) stands apart, as
`startup`: the seconds that the straight line through both sizes gives for no tokens.
"""

import filecmp
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.processes import Run, run

PLAIN = "plain"
ROUTES = {PLAIN: 0, "build --workers 1": 1, "build --workers 2": 2}
"""Name → worker processes; the plain route has none."""
CORE = ("render", "split", "write")
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of one route over one source. `stages`: seconds; memory in bytes."""

    route: str
    repeat: int
    rows: int
    tokens: int
    seconds: float
    stages: dict[str, float]
    parent_peak: int
    worker_peak: int
    validator_peak: int
    torch_in_worker: bool | None

    @property
    def core_seconds(self) -> float:
        """Render, split and write; the plain route does nothing else."""
        return sum(self.stages[stage] for stage in CORE) if self.stages else self.seconds


def build_command(source: Path, out: Path, tokenizer: Path, workers: int, *more: str) -> list[str]:
    """`spanloom build` without rows rendered again: that is a sample of fixed size, not work that grows."""
    options = [*("--source", source), *("--out", out), *("--tokenizer", tokenizer), *("--workers", workers)]
    fixed = ("--deep", "0", "--json", "--allow-unknown-sha")
    return [sys.executable, "-m", "spanloom", "build", *map(str, options), *fixed, *more]


def run_build(command: list[str], out: Path) -> tuple[Run, dict[str, Any]]:
    """Runs `command`, removes what it built at `out`. Returns the run and the dataset's totals."""
    finished = run(command, environment())
    result = json.loads(finished.stdout)
    # Validation ends after the manifest is written: its seconds are known only from outside.
    finished.stages.update(result["timings"])
    shutil.rmtree(out)
    return finished, result["totals"]


def environment() -> dict[str, str]:
    """This process's, with lines as wide as they come and `bench` to be found."""
    return {**os.environ, "COLUMNS": "500", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def check_equal(source: Path, work: Path, tokenizer: Path) -> int:
    """Both routes over `source`, untimed. Returns how many files are the same byte for byte, on both sides all of them.

    Raises RuntimeError when a file differs or only one route has it: the comparison would not be honest.
    """
    plain, built = work / "equal_plain", work / "equal_built"
    for folder in (plain, built):
        shutil.rmtree(folder, ignore_errors=True)
    run(_plain_command(source, plain, tokenizer, "--valid-fraction", "0.1"), environment())
    run(build_command(source, built, tokenizer, 2, "--valid-fraction", "0.1"), environment())
    names = [
        {path.relative_to(root) for suffix in ("bin", "idx") for path in root.glob(f"*/*.{suffix}")}
        for root in (plain, built)
    ]
    different = sorted(names[0] ^ names[1])
    different += [name for name in sorted(names[0] & names[1]) if not filecmp.cmp(plain / name, built / name, False)]
    if different or not names[0]:
        raise RuntimeError(f"the plain route and spanloom build differ in {', '.join(map(str, different)) or 'all'}")
    for folder in (plain, built):
        shutil.rmtree(folder)
    return len(names[0])


def measure(
    plain: list[tuple[Path, int]],
    built: list[tuple[Path, int]],
    work: Path,
    tokenizer: Path,
    repeats: range,
    say: Callable[[str], None],
) -> list[Trial]:
    """Every route over its two sources (folder, rows), once a repeat, in turns: noise then falls on all alike.

    The builds have larger ones: what they take for a small one is lost in the noise of their start.
    """
    trials = []
    for repeat in repeats:
        for route, workers in ROUTES.items():
            for source, rows in plain if route == PLAIN else built:
                trial = _trial(route, workers, repeat, source, rows, work / "out", tokenizer)
                say(f"run {repeat + 1}, {route}, {rows:,} rows: {trial.tokens:,} tokens in {trial.seconds:.1f} s")
                trials.append(trial)
    return trials


def _trial(route: str, workers: int, repeat: int, source: Path, rows: int, out: Path, tokenizer: Path) -> Trial:
    shutil.rmtree(out, ignore_errors=True)
    if route == PLAIN:
        finished = run(_plain_command(source, out, tokenizer), environment())
        tokens = json.loads(finished.stdout)["tokens"]
        shutil.rmtree(out)
    else:
        finished, totals = run_build(build_command(source, out, tokenizer, workers), out)
        tokens = sum(split["tokens"] for split in totals["splits"].values())
    return trial_of(route, repeat, rows, tokens, finished)


def trial_of(route: str, repeat: int, rows: int, tokens: int, finished: Run) -> Trial:
    return Trial(
        route=route,
        repeat=repeat,
        rows=rows,
        tokens=tokens,
        seconds=finished.seconds,
        stages=finished.stages,
        parent_peak=finished.parent.peak,
        worker_peak=finished.worker.peak,
        validator_peak=finished.validator.peak,
        torch_in_worker=finished.torch_in_worker,
    )


def _plain_command(source: Path, out: Path, tokenizer: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tools.bench.plain", str(source), str(out), "--tokenizer", str(tokenizer), *more]


def summary(trials: list[Trial]) -> list[dict[str, Any]]:
    """A line a route, by the median of its runs at each size, and its ratio to the plain route, measured likewise."""
    plain = _rates(trials, PLAIN) if any(trial.route == PLAIN for trial in trials) else None
    lines = []
    for route in dict.fromkeys(trial.route for trial in trials):
        own = [trial for trial in trials if trial.route == route]
        line: dict[str, Any] = {"route": route, **_rates(trials, route)}
        if plain:
            line |= {f"{name}_ratio": line[name] / plain[name] for name in ("whole", "core")}
        line["rows"] = sorted({trial.rows for trial in own})
        line["runs"] = len({trial.repeat for trial in own})
        for name in ("parent_peak", "worker_peak", "validator_peak"):
            line[name] = max(getattr(trial, name) for trial in own)
        seen = [trial.torch_in_worker for trial in own if trial.torch_in_worker is not None]
        line["torch_in_worker"] = any(seen) if seen else None
        lines.append(line)
    return lines


def _rates(trials: list[Trial], route: str) -> dict[str, float]:
    own = [trial for trial in trials if trial.route == route]
    few, many = (edge(trial.tokens for trial in own) for edge in (min, max))

    def middle(tokens: int, seconds: Callable[[Trial], float]) -> float:
        return median(seconds(trial) for trial in own if trial.tokens == tokens)

    def between(seconds: Callable[[Trial], float]) -> float:
        return marginal(few, middle(few, seconds), many, middle(many, seconds))

    whole = between(attrgetter("seconds"))
    rates = {
        "whole": whole,
        "core": between(attrgetter("core_seconds")),
        "startup": middle(few, attrgetter("seconds")) - few / whole,
    }
    for stage in (*CORE, "validate"):
        if all(stage in trial.stages for trial in own):
            taken = [middle(tokens, lambda trial, stage=stage: trial.stages[stage]) for tokens in (few, many)]
            rates[f"{stage}_seconds_per_million"] = (taken[1] - taken[0]) / (many - few) * 1e6
    return rates


def marginal(few: float, seconds_few: float, many: float, seconds_many: float) -> float:
    """What comes a second between two sizes; NaN when noise was larger than the work.

    100 in 3 s, 400 in 5 s   →   300 in 2 s: 150 a second
    """
    return (many - few) / (seconds_many - seconds_few) if seconds_many > seconds_few else float("nan")
