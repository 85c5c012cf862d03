"""Stages alone, measured and summed up.

In: a small and a big source. Out: trials (each a kind of stage in a process of its own, see stages.py and writing.py)
and medians of them; where both sizes were measured, rates are marginal between them.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.processes import run
from tools.bench.speed import build_command, environment, marginal

WORKER_KINDS = ("worker", "startup", "steps", "writing", "conversion", "validation")
Trial = dict[str, Any]


def measure(
    sources: list[Path], work: Path, tokenizer: Path, repeats: range, say: Callable[[str], None]
) -> list[Trial]:
    folder = work / "stages"
    trials = []
    for repeat in repeats:
        for kind in WORKER_KINDS:
            if kind == "writing":
                command = [sys.executable, "-m", "tools.bench.writing", str(folder)]
            else:
                command = [sys.executable, "-m", "tools.bench.stages", kind, *map(str, sources), str(folder)]
                command += ["--tokenizer", str(tokenizer)]
            finished = run(command, environment())
            trials.append({"kind": kind, "repeat": repeat, "lines": json.loads(finished.stdout)})
            say(f"run {repeat + 1}, stages: {kind} in {finished.seconds:.1f} s")
    shutil.rmtree(folder)
    return trials


def measure_small(work: Path, tokenizer: Path, repeats: range, say: Callable[[str], None]) -> list[Trial]:
    """`spanloom build` over the demo's rows, with as many workers as there are cores: what a newcomer waits for."""
    raw, source, out = work / "demo_raw", work / "demo", work / "demo_out"
    spanloom = [sys.executable, "-m", "spanloom"]
    for folder in (raw, source):
        shutil.rmtree(folder, ignore_errors=True)
    run([*spanloom, "sample", "--out", str(raw)], environment())
    run([*spanloom, "convert-synth", "--raw", str(raw), "--out", str(source)], environment())
    trials = []
    for repeat in repeats:
        shutil.rmtree(out, ignore_errors=True)
        command = [*spanloom, "build", "--source", str(source), "--out", str(out), "--tokenizer", str(tokenizer)]
        finished = run([*command, "--valid-fraction", "0.1", "--allow-unknown-sha", "--json"], environment())
        rows = json.loads(finished.stdout)["totals"]["rows_read"]
        trials.append({"repeat": repeat, "seconds": finished.seconds, "rows": rows, "stages": finished.stages})
        say(f"run {repeat + 1}, whole build of {rows} rows: {finished.seconds:.2f} s")
    for folder in (raw, source, out):
        shutil.rmtree(folder)
    return trials


def measure_real(
    sample: Path, work: Path, tokenizer: Path, repeats: range, say: Callable[[str], None]
) -> dict[str, Any]:
    """Real rows: one pass over them, and whether `spanloom build` makes the files that they must become."""
    source, out = sample / "synth_harmony", work / "real_out"
    shutil.rmtree(out, ignore_errors=True)
    run(build_command(source, out, tokenizer, 2, "--valid-fraction", "0.1"), environment())
    expected = {path.relative_to(sample / "expected"): path for path in (sample / "expected").rglob("shard_*")}
    equal = sum((out / name).read_bytes() == path.read_bytes() for name, path in expected.items())
    shutil.rmtree(out)
    command = [sys.executable, "-m", "tools.bench.stages", "one-pass", str(source), str(source), str(work)]
    passes = [
        json.loads(run([*command, "--tokenizer", str(tokenizer)], environment()).stdout)[0] | {"repeat": repeat}
        for repeat in repeats
    ]
    say(f"real rows: {equal} of {len(expected)} files equal, one pass {passes[0]['seconds']:.3f} s")
    return {"files": len(expected), "equal_files": equal, "trials": passes}


def summary(trials: list[Trial]) -> dict[str, Any]:
    """Medians of the repeats: stages of a worker, steps (marginal), validation, start-up, writing.

    What is held against `tofile` is held against it within each of them.
    """
    lines = {kind: [trial["lines"] for trial in trials if trial["kind"] == kind] for kind in WORKER_KINDS}
    worker = [
        {
            **{key: value for key, value in same[0].items() if key != "seconds"},
            "seconds": median(line["seconds"] for line in same),
            "rate": median(line["tokens"] / line["seconds"] for line in same),
        }
        for same in zip(*lines["worker"], strict=True)
    ]
    steps = {
        stage: _marginal(lines["steps"], stage, amount)
        for stage, amount in (("render-shard", "tokens"), ("assemble-split", "rows"))
    }
    steps["convert-shard"] = _marginal(lines["conversion"], "convert-shard", "rows")
    for stage in ("validate-alignment", "check documents"):
        steps[stage] = _marginal(lines["validation"], stage, "tokens")
    writing = [
        {
            **same[0],
            **{name: median(line[name] for line in same) for name in same[0] if isinstance(same[0][name], float)},
        }
        for same in zip(*lines["writing"], strict=True)
    ]
    return {
        "worker": worker,
        "steps": steps,
        "writing": writing,
        "write": _write_rates(lines["writing"]),
        "bytes": [line for line in lines["steps"][0] if line["stage"] == "bytes"],
        "worker_startup": median(run[0]["seconds"] for run in lines["startup"]),
        "worker_startups": [run[0]["seconds"] for run in lines["startup"]],
        "reader_import": median(run[0]["seconds"] for run in lines["validation"]),
    }


def _marginal(runs: list[list[dict[str, Any]]], stage: str, amount: str) -> dict[str, float]:
    """Of a stage that was measured at both sizes, by the median at each: the rate between them, and what it costs at
    none."""
    pairs = [_sizes(run, stage) for run in runs]
    few, many = (line[amount] for line in pairs[0])
    seconds_few, seconds_many = (median(line["seconds"] for line in lines) for lines in zip(*pairs, strict=True))
    rate = marginal(few, seconds_few, many, seconds_many)
    return {
        "rate": rate,
        "rates": [marginal(s[amount], s["seconds"], b[amount], b["seconds"]) for s, b in pairs],
        "fixed": seconds_few - few / rate,
        "whole_rate": many / seconds_many,
    }


def _write_rates(runs: list[list[dict[str, Any]]]) -> dict[str, float]:
    """The step with its hashing subtracted, marginal and at the big size, of tofile; the writer alone of tofile."""
    found: dict[str, list[float]] = {"step_of_raw": [], "step_of_raw_marginal": [], "writer_of_raw": [], "rate": []}
    for lines in runs:
        small, big = _sizes(lines, "step write-indexed")
        net = {line["size"]: line["seconds"] - line["hashing"] for line in (small, big)}
        found["step_of_raw"].append(big["raw"] / net["big"])
        found["step_of_raw_marginal"].append((big["raw"] - small["raw"]) / (net["big"] - net["small"]))
        found["rate"].append(marginal(small["bytes"], small["seconds"], big["bytes"], big["seconds"]))
        by_stage = {line["stage"]: line["seconds"] for line in lines}
        found["writer_of_raw"].append(by_stage["raw tofile and fsync"] / by_stage["writer alone, without hashing"])
    return {name: median(values) for name, values in found.items()}


def _sizes(lines: list[dict[str, Any]], stage: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last line of the stage at each size (the first may be there to warm up)."""
    by_size = {line["size"]: line for line in lines if line["stage"] == stage}
    return by_size["small"], by_size["big"]
