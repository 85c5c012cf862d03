"""What a person waits for before a command works: imports, processes, tables, at a size where nothing else counts.

In: the demo's rows. Out: trials, each a command in a fresh process: seconds by the clock, seconds of CPU of it and its
children, seconds to its first line on stderr. With a baseline, the `src` of another checkout, each command runs there
too, one right after the other, and ratios are taken within each pair.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.processes import compile_sources

Trial = dict[str, Any]
THIS, BASELINE = "this checkout", "baseline"


def measure(
    work: Path, tokenizer: Path, baseline: Path | None, repeats: range, say: Callable[[str], None]
) -> list[Trial]:
    folder = work / "start"
    shutil.rmtree(folder, ignore_errors=True)
    raw, source, root = folder / "raw", folder / "source", folder / "dataset"
    here = Path(__file__).parents[3] / "src"
    checkouts = ([(BASELINE, baseline.resolve() / "src")] if baseline else []) + [(THIS, here)]
    build = ["build", "--source", source, "--tokenizer", tokenizer, "--valid-fraction", "0.1", "--allow-unknown-sha"]
    for _, sources in checkouts:
        compile_sources(sources)
    for words in (["sample", "--out", raw], ["convert-synth", "--raw", raw, "--out", source], [*build, "--out", root]):
        run(words, here)
    commands = {
        "--help": ["--help"],
        "--version": ["--version"],
        "build --help": ["build", "--help"],
        "inspect": ["inspect", root, "--tokenizer", tokenizer],
        "stats": ["stats", root],
        "manifest show": ["manifest", "show", root],
        "validate": ["validate", root],
        "build": [*build, "--out", folder / "out"],
    }
    trials = []
    for repeat in repeats:
        for name, words in commands.items():
            for checkout, sources in checkouts:
                shutil.rmtree(folder / "out", ignore_errors=True)
                trials.append({"repeat": repeat, "command": name, "checkout": checkout, **run(words, sources)})
                say(f"run {repeat + 1}, {checkout}, {name}: {trials[-1]['seconds']:.2f} s")
    shutil.rmtree(folder)
    return trials


def run(words: list[Any], sources: Path) -> dict[str, float | None]:
    """`spanloom WORDS` with the package in `sources`. Raises RuntimeError with its stderr where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    before, began = _children_cpu(), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "spanloom", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    first_line = time.monotonic() - began if line else None
    rest = process.stderr.read()
    process.wait()
    seconds = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"spanloom {words} exited with {process.returncode}:\n{(line + rest).decode()}")
    return {"seconds": seconds, "cpu": _children_cpu() - before, "first_line": first_line}


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(trials: list[Trial]) -> list[dict[str, Any]]:
    """Of each command the medians of this checkout, and where there is a baseline the medians of the ratios to it."""
    lines = []
    for command in dict.fromkeys(trial["command"] for trial in trials):
        of_command = [trial for trial in trials if trial["command"] == command]
        ours = {trial["repeat"]: trial for trial in of_command if trial["checkout"] == THIS}
        theirs = {trial["repeat"]: trial for trial in of_command if trial["checkout"] == BASELINE}
        pairs = [(theirs[repeat], ours[repeat]) for repeat in ours if repeat in theirs]
        first = [trial["first_line"] for trial in ours.values() if trial["first_line"] is not None]
        lines.append(
            {
                "command": command,
                "seconds": [trial["seconds"] for trial in ours.values()],
                "cpu": median(trial["cpu"] for trial in ours.values()),
                "first_line": median(first) if first else None,
                "ratios": [mine["seconds"] / other["seconds"] for other, mine in pairs],
                "cpu_ratio": median(mine["cpu"] / other["cpu"] for other, mine in pairs) if pairs else None,
            }
        )
    return lines
