"""What the build must reach, compared with what was measured.

In: the results as they go to JSON. Out: a sheet with a line for each bar: wanted, measured, met or not.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

from tools.bench import packing
from tools.bench.encoders import OURS
from tools.bench.memory import BOUND, WORKER_BOUND
from tools.bench.speed import MIB, PLAIN, Trial, summary
from tools.bench.tables import Sheet, plain_rate

Results = dict[str, Any]
Bar = tuple[str, str, str, str]
"""What, wanted, measured, met: `yes`, `no`, or `open` where some runs reach it and others do not."""


def sheet(results: Results) -> Sheet:
    return Sheet(
        key="bars",
        title="Bars",
        columns=("bar", "wanted", "measured", "met"),
        rows=[
            (what, wanted, found, met if met == "yes" else f"**{met}**") for what, wanted, found, met in bars(results)
        ],
    )


def missed(results: Results) -> Sheet:
    """The bars that are open or missed, for the page: the tables beside it have most of the others."""
    rows = sheet(results).rows
    rest = [row for row in rows if row[-1] != "yes"]
    title = f"{len(rows) - len(rest)} of {len(rows)} bars are met; the others"
    return Sheet(key="missed", title=title, columns=("bar", "wanted", "measured", "met"), rows=rest)


def bars(results: Results) -> Iterator[Bar]:
    """The bars for which there are results."""
    if "speed" in results:
        yield from _speed([Trial(**trial) for trial in results["speed"]["trials"]])
        yield _files("plain route and build give equal files", results["speed"]["equal_files"], 48)
    if "small" in results:
        yield _at_most("whole small build", [t["seconds"] for t in results["small"]["trials"]], 6, "s")
    if "start" in results:
        yield from _start(results["start"]["summary"])
    if "stages" in results:
        yield from _stages(results["stages"]["summary"], plain_rate(results))
    if "memory" in results:
        yield from _memory(results["memory"]["growth"])
    if "packing" in results:
        yield from _packing(results["packing"])
    if "chess" in results:
        yield from _chess(results["chess"]["summary"])
    if "real" in results:
        yield _files("real rows give the files they must become", results["real"]["equal_files"], 48)
    if "points" in results:
        differ, stride = results["points"]["different"][OURS], results["points"]["stride"]
        of = "all" if stride == 1 else f"one in {stride}"
        yield (f"code points ({of}) on which the encoder differs", "0", f"{differ:,}", _verdict([differ == 0]))


def _start(summary: list[dict[str, Any]]) -> Iterator[Bar]:
    lines = {line["command"]: line for line in summary}
    for commands, most in ((("--help", "--version"), 0.3), (("inspect", "stats", "manifest show"), 1.0)):
        for command in commands:
            yield _at_most(f"spanloom {command}", lines[command]["seconds"], most, "s")
    yield _at_most("first line of a build", [lines["build"]["first_line"]], 0.5, "s")
    if lines["build"]["ratios"]:
        yield _at_most("small build, of the baseline", lines["build"]["ratios"], 0.65, "×")


def _speed(trials: list[Trial]) -> Iterator[Bar]:
    """Ratios within each repeat, so that a bar which only some of them reach shows."""
    repeats = [
        {line["route"]: line for line in summary([trial for trial in trials if trial.repeat == repeat])}
        for repeat in sorted({trial.repeat for trial in trials})
    ]
    one, two = "build --workers 1", "build --workers 2"
    for name, what in (("whole", "whole build"), ("core", "render + split + write")):
        held = [run for run in repeats if PLAIN in run]
        yield _at_least(f"{what}, 1 worker, of plain", [run[one][name] / run[PLAIN][name] for run in held], 10)
    for name, what in (("whole", "whole build"), ("core", "render + split + write")):
        yield _at_least(f"2 workers of 1, {what}", [run[two][name] / run[one][name] for run in repeats], 1.8)
    startups = [run[one]["startup"] for run in repeats]
    yield _at_most("start-up of a build, 1 worker", startups, 6, "s")
    peak = max(trial.worker_peak for trial in trials)
    found = f"{peak / MIB:,.0f} MiB"
    yield ("peak of a worker", f"≤ {WORKER_BOUND // MIB} MiB", found, _verdict([peak <= WORKER_BOUND]))
    torch = any(trial.torch_in_worker for trial in trials)
    yield ("a render worker imports torch", "no", "yes" if torch else "no", _verdict([not torch]))


def _stages(summary: dict[str, Any], plain: float | None) -> Iterator[Bar]:
    if plain:
        rates = summary["steps"]["render-shard"]["rates"]
        yield _at_least("render-shard alone, of plain", [rate / plain for rate in rates], 15)
    yield _at_least("write-indexed without hashing, of tofile", [summary["write"]["step_of_raw"]], 0.7)
    yield _at_least("the same between the sizes", [summary["write"]["step_of_raw_marginal"]], 0.7)
    yield _at_least("its writer alone, of tofile", [summary["write"]["writer_of_raw"]], 0.7)
    yield _at_most("worker: spawn to first rendered row", summary["worker_startups"], 2, "s")


def _memory(growth: list[dict[str, Any]]) -> Iterator[Bar]:
    by_place = {(line["process"], line["stage"]): line for line in growth}
    for process, stage, what in (
        ("worker", "render", "a worker grows by, a row rendered"),
        ("worker", "write", "a worker grows by, a sequence written"),
        ("parent", "whole", "the parent grows by, a row"),
    ):
        if (process, stage) in by_place:
            yield _at_most(what, [by_place[process, stage]["bytes_per_row"]], BOUND, "bytes")


def _packing(found: dict[str, Any]) -> Iterator[Bar]:
    of = {line["route"]: line["of"] for line in found["summary"]}
    yield _at_least("packing, of a plain loop over tokens", of[packing.FEEDS][packing.LOOP], 10)
    yield _at_least("packing, of copying the tokens (stretch)", of[packing.FEEDS][packing.COPY], 1 / 3)
    yield _at_least("tokenising, of the bare tokenizer", of[packing.JSON_OWN][packing.JSON_BARE], 0.9)
    yield _at_least("tokenising with o200k, of its encoder", of[packing.O200K_OWN][packing.O200K_BARE], 0.9)
    small, big = found["memory"]
    grown = big["peak"] / small["peak"]
    yield ("packing, peak memory for ten times the stream", "≤ 1.05×", f"{grown:.2f}×", _verdict([grown <= 1.05]))


def _chess(summary: list[dict[str, Any]]) -> Iterator[Bar]:
    """Of the ratios by CPU time and by the clock the lower ones."""
    for line in summary:
        if line["wanted"] is not None:
            runs = min(line["cpu_ratios"], line["wall_ratios"], key=median)
            yield _at_least(f"chess: {line['route']}, of its loop", runs, line["wanted"])


def _at_least(what: str, runs: list[float], wanted: float) -> Bar:
    spread = f" ({min(runs):.2f}–{max(runs):.2f})" if len(runs) > 1 else ""
    return (what, f"≥ {wanted:.3g}×", f"{median(runs):.2f}×{spread}", _verdict([run >= wanted for run in runs]))


def _at_most(what: str, runs: list[float], wanted: float, unit: str) -> Bar:
    digits = 0 if unit == "bytes" else 2
    spread = f" ({min(runs):.{digits}f}–{max(runs):.{digits}f})" if len(runs) > 1 else ""
    return (
        what,
        f"≤ {wanted:g} {unit}",
        f"{median(runs):.{digits}f} {unit}{spread}",
        _verdict([run <= wanted for run in runs]),
    )


def _files(what: str, equal: int, of: int) -> Bar:
    return (what, f"{of} of {of}", f"{equal} of {of}", _verdict([equal == of]))


def _verdict(met: list[bool]) -> str:
    return "yes" if all(met) else "open" if any(met) else "no"
