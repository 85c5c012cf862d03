"""The chess family against the loop that it replaces (`chess_plain`), preparing, and DataLoader workers.

    PYTHONPATH=tests python -m tools.bench.chess_games [--games 200] [--plies 60] [--repeats 5] [--json FILE]

In: sizes. Out: trials, as JSON and as tables; `--json FILE` adds them to a file of results under `chess`.

Routes take turns in one process, on one thread, and each round of them is held against the loop of its own round: by
the time the process was given (CPU), which hardly feels a busy machine, and by the clock. Each pass opens its folder
anew. Before anything is measured, loop and family must give equal samples.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from torch.utils.data import DataLoader

from spanloom.families.chess.build import PrepareOptions, prepare
from spanloom.families.chess.loader import ChessIterableDataset, FinetuneIterableDataset
from spanloom.provenance import git_sha, machine
from tools.bench import bars, tables
from tools.bench.chess_plain import (
    check_equal,
    plain_games,
    plain_thinking,
    random_games,
    random_variations,
    write_parquet,
)

LOOP, FLY, PREPARED = "loop over games", "Parquet files, on the fly", "prepared games"
LOOP_THINKING = "loop over thinking rows"
THINKING, THINKING_PREPARED = "thinking, Parquet files", "thinking, prepared"
HELD = {FLY: (LOOP, 10), PREPARED: (LOOP, 30), THINKING: (LOOP_THINKING, 5), THINKING_PREPARED: (LOOP_THINKING, 5)}
"""Route → what it is held against, and how many times as fast it is to be."""

SKIP = 0.2
BATCHES, WORKERS = (16, 64), (0, 1, 2)

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ChessTrial:
    """One pass of one route: samples, seconds of the process (CPU) and by the clock (wall)."""

    route: str
    repeat: int
    samples: int
    cpu: float
    wall: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--plies", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--json", type=Path, help="add the results to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    errors, console = Console(stderr=True), Console()
    with tempfile.TemporaryDirectory(prefix="spanloom-chess-bench-") as name:
        found = measure(Path(name), given, lambda line: errors.print(line, highlight=False, soft_wrap=True))
    if given.json:
        results = json.loads(given.json.read_bytes()) if given.json.exists() else {}
        given.json.write_text(json.dumps(results | {"chess": found}, indent=1) + "\n")
    held = {"chess": found}
    for table in [*tables.all_tables(held), bars.sheet(held)]:
        console.print(tables.terminal(table), "", sep="\n")
    if missed := [what for what, *_, met in bars.bars(held) if met == "no"]:
        sys.exit(f"below the bar: {', '.join(missed)}")


def measure(work: Path, given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Everything, once or `given.repeats` times."""
    games, thinking = work / "games", work / "thinking"
    for folder in (games, thinking):
        folder.mkdir()
    played, rows = random_games(given.games, given.plies, seed=1), random_variations(given.games, seed=2)
    check_equal(played, rows, given.length)
    load = [os.getloadavg()[0]]
    half = len(played) // 2
    for number, part in enumerate((played[:half], played[half:])):
        write_parquet([row for game in part for row in game], games / f"part_{number:03d}.parquet")
    write_parquet(rows, thinking / "part_000.parquet")
    trials = measure_routes(games, thinking, prepared(work / "root", games, thinking), given.length, given.repeats, say)
    plies = sum(map(len, played))
    say("preparing …")
    many = copies(work / "many", games, 20)
    preparing = [measure_preparing(work, copies(work / f"files_{2 * n}", games, n), n * plies) for n in (5, 20)]
    one = work / "one_file"
    one.mkdir()
    write_parquet(
        [{**row, "game_id": f"{copy}_{row['game_id']}"} for copy in range(20) for game in played for row in game],
        one / "part_000.parquet",
    )
    preparing.append(measure_preparing(work, one, 20 * plies))
    say("DataLoader …")
    loaders = {FLY: many, PREPARED: prepared(work / "many_root", many, None)}
    loaders_measured = measure_loaders(loaders, given.length, min(given.repeats, 3))
    return {
        "git_sha": git_sha(),
        "machine": machine(),
        "load": [*load, os.getloadavg()[0]],
        "games": len(played),
        "plies": plies,
        "length": given.length,
        "trials": [asdict(trial) for trial in trials],
        "summary": summary(trials),
        "prepare": preparing,
        "dataloader": loaders_measured,
    }


def measure_routes(games: Path, thinking: Path, root: Path, length: int, repeats: int, say: Say) -> list[ChessTrial]:
    """Every route once a round."""
    routes: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        LOOP: lambda: plain_games(games, length, SKIP, 1),
        FLY: lambda: iter(ChessIterableDataset(games, length, SKIP)),
        PREPARED: lambda: iter(ChessIterableDataset(root, length, SKIP)),
        LOOP_THINKING: lambda: plain_thinking(thinking, length, 1),
        THINKING: lambda: iter(FinetuneIterableDataset(None, thinking, length)),
        THINKING_PREPARED: lambda: iter(FinetuneIterableDataset(None, root, length)),
    }
    trials = []
    for repeat in range(-1, repeats):  # the first round is not counted: it imports, and fills caches
        for route, samples in routes.items():
            wall, cpu = time.perf_counter(), time.process_time()
            count = sum(1 for _ in samples())
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if repeat >= 0:
                trials.append(ChessTrial(route=route, repeat=repeat, samples=count, cpu=cpu, wall=wall))
                say(f"{route}: {count / cpu:,.0f} samples a second of CPU, {count / wall:,.0f} by the clock")
    return trials


def summary(trials: list[ChessTrial]) -> list[dict[str, Any]]:
    """Each route's samples a second, medians, and its ratios to what it is held against, round by round."""
    by_round = {(trial.route, trial.repeat): trial for trial in trials}
    lines = []
    for route in dict.fromkeys(trial.route for trial in trials):
        mine = [trial for trial in trials if trial.route == route]
        loop, wanted = HELD.get(route, (None, None))
        line: dict[str, Any] = {"route": route, "held_against": loop, "wanted": wanted}
        for clock in ("cpu", "wall"):
            line[f"{clock}_rate"] = median(_rate(trial, clock) for trial in mine)
            line[f"{clock}_ratios"] = [
                _rate(trial, clock) / _rate(by_round[loop, trial.repeat], clock) for trial in mine if loop
            ]
        lines.append(line)
    return lines


def _rate(trial: ChessTrial, clock: str) -> float:
    return trial.samples / float(getattr(trial, clock))


def prepared(root: Path, games: Path, thinking: Path | None) -> Path:
    """The root of these games, prepared."""
    result = prepare(
        PrepareOptions(root=root, games=games, thinking=thinking, valid_fraction=0.0, deep=1, allow_unknown_sha=True)
    )
    assert result.report.clean
    return root


def copies(folder: Path, games: Path, count: int) -> Path:
    """The same files so many times: games of the same id in two files are two games."""
    folder.mkdir()
    for copy in range(count):
        for path in games.glob("*.parquet"):
            shutil.copy(path, folder / f"{copy:03d}_{path.name}")
    return folder


def measure_preparing(work: Path, games: Path, plies: int) -> dict[str, Any]:
    """What preparing takes in a process of its own, validation and all; its start is left out."""
    # VmHWM, since ru_maxrss of a new process begins with what the process that started it held.
    code = (
        "import re, sys, time; from pathlib import Path;"
        "from spanloom.families.chess.build import PrepareOptions, prepare;"
        "options = PrepareOptions(root=Path(sys.argv[2]), games=Path(sys.argv[1]), allow_unknown_sha=True);"
        "wall, cpu = time.perf_counter(), time.process_time(); assert prepare(options).report.clean;"
        "print(time.perf_counter() - wall, time.process_time() - cpu,"
        " re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(games), str(work / f"alone_{games.name}")],
        check=True,
        capture_output=True,
        text=True,
    )
    wall, cpu, peak = done.stdout.split()
    files = len(list(games.glob("*.parquet")))
    return {"files": files, "plies": plies, "wall": float(wall), "cpu": float(cpu), "peak": int(peak) * 1024}


def measure_loaders(places: dict[str, Path], length: int, repeats: int) -> list[dict[str, Any]]:
    """Samples a second by the clock after the first batch: starting the workers is left out."""
    trials = []
    for repeat in range(repeats):
        for kind, place in places.items():
            for batch_size in BATCHES:
                for workers in WORKERS:
                    dataset = ChessIterableDataset(place, length, SKIP)
                    batches = iter(DataLoader(dataset, batch_size=batch_size, num_workers=workers))
                    next(batches)
                    begin = time.perf_counter()
                    count = sum(len(batch["input_ids"]) for batch in batches)
                    rate = count / (time.perf_counter() - begin)
                    what = {"route": kind, "batch_size": batch_size, "workers": workers, "repeat": repeat}
                    trials.append({**what, "rate": rate, "cpus": os.cpu_count()})
    return trials


if __name__ == "__main__":
    main()
