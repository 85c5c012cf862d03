"""The full enumeration: `python -m tools.chaos` from the repository's root, with src and tests on PYTHONPATH.

In: nothing. Out: a table of points, trials and survivals by command, as Markdown on stdout; with `--json FILE` all
trials. Exits with 1 when one of them went wrong.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from support.stores.gcs import CloudStorage
from tools.chaos.driver import Driver
from tools.chaos.enumeration import FAULTS, CannotFinishError, Prepared, Trial, drawn, prepare, try_one
from tools.chaos.scenarios import Scenario, scenarios


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All trials of one scenario, and what goes wrong without a fault; `cannot` says why there are no trials."""

    scenario: str
    points: int
    trials: tuple[Trial, ...]
    seconds: float
    undisturbed: tuple[str, ...] = ()
    cannot: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="scenarios whose name holds this; repeatable")
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"some of {','.join(FAULTS)}")
    parser.add_argument("--jobs", type=int, default=1, help="scenarios side by side, each with a server of its own")
    parser.add_argument("--every", type=int, default=1, help="only each n-th point")
    parser.add_argument("--trials", type=int, metavar="N", help="only N trials of each command, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other trials")
    parser.add_argument("--folder", type=Path, help="work here, not in a temporary folder; tmpfs is fastest")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all trials here")
    options = parser.parse_args()
    store = CloudStorage()
    chosen = [
        scenario
        for scenario in scenarios(store)
        if not options.only or any(part in scenario.name for part in options.only)
    ]
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=options.folder) as folder:

        def run(scenario: Scenario) -> Outcome:
            faults = options.faults.split(",")
            return enumerate_all(
                scenario, Path(folder), faults, options.every, trials=options.trials, seed=options.seed
            )

        with ThreadPoolExecutor(options.jobs) as threads:
            outcomes = list(threads.map(run, chosen))
    store.close()
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    print(table(outcomes))
    sys.exit(any(one.cannot or one.undisturbed or any(trial.wrong for trial in one.trials) for one in outcomes))


def enumerate_all(
    scenario: Scenario, folder: Path, faults: Sequence[str], every: int, *, trials: int | None = None, seed: int = 0
) -> Outcome:
    """Every fault at every point of one scenario, or at each n-th; `trials`: so many of them, drawn by `seed`."""
    began = time.monotonic()
    here = Path(tempfile.mkdtemp(dir=folder))
    with Driver(here / "base", log=here / "log.txt") as driver:
        try:
            prepared = prepare(scenario, driver, here)
        except CannotFinishError as fault:
            print(f"{scenario.name}: {fault}", file=sys.stderr, flush=True)
            seconds = time.monotonic() - began
            return Outcome(scenario=scenario.name, points=0, trials=(), seconds=seconds, cannot=str(fault))
        pairs = drawn(prepared, faults, trials, seed, every=every)
        done = tuple(_said(prepared, point, fault) for point, fault in pairs)
    seconds = time.monotonic() - began
    print(f"{scenario.name}: {len(done)} trials in {seconds:.0f} s", file=sys.stderr, flush=True)
    return Outcome(
        scenario=scenario.name,
        points=len(prepared.points),
        trials=done,
        seconds=round(seconds, 1),
        undisturbed=prepared.undisturbed,
    )


def _said(prepared: Prepared, point: str, fault: str) -> Trial:
    trial = try_one(prepared, point, fault)
    if trial.wrong:
        print(trial, file=sys.stderr, flush=True)
    return trial


def table(outcomes: Iterable[Outcome]) -> str:
    """Points, and trials survived of those tried, by command and fault; then what went wrong, by kind."""
    lines = [
        f"| command | points | {' | '.join(FAULTS)} | seconds |",
        f"|---|---:|{'---:|' * len(FAULTS)}---:|",
    ]
    outcomes = list(outcomes)
    for outcome in outcomes:
        cells = []
        for fault in FAULTS:
            tried = [trial for trial in outcome.trials if trial.fault == fault and trial.reached]
            cells.append(f"{sum(not trial.wrong for trial in tried)} of {len(tried)}" if tried else "–")
        points = "cannot finish" if outcome.cannot else f"{outcome.points}"
        lines.append(f"| {outcome.scenario} | {points} | {' | '.join(cells)} | {outcome.seconds:.0f} |")
    kinds = Counter(
        (outcome.scenario, wrong.split(":")[0])
        for outcome in outcomes
        for trial in outcome.trials
        for wrong in trial.wrong
    )
    if kinds:
        lines += ["", "| command | what went wrong | trials |", "|---|---|---:|"]
        lines += [f"| {scenario} | {kind} | {count} |" for (scenario, kind), count in kinds.items()]
    lines += [f"\n{o.scenario}, undisturbed: {'; '.join(o.undisturbed)}" for o in outcomes if o.undisturbed]
    lines += [f"\n{outcome.scenario} cannot finish: {outcome.cannot}" for outcome in outcomes if outcome.cannot]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
