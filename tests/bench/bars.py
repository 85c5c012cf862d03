"""What the build was meant to reach, held against what was measured.

In: the results as they go to JSON. Out: a sheet with a line for each bar: wanted, measured, met or not.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.memory import BOUND, WORKER_BOUND
from bench.speed import MIB
from bench.tables import Sheet, plain_rate

Results = dict[str, Any]
Bar = tuple[str, str, str, bool]
"""What, wanted, measured, met."""


def sheet(results: Results) -> Sheet:
    return Sheet(
        key="bars",
        title="Bars",
        columns=("bar", "wanted", "measured", "met"),
        rows=[(what, wanted, found, "yes" if met else "**no**") for what, wanted, found, met in bars(results)],
    )


def bars(results: Results) -> Iterator[Bar]:
    """The bars for which there are results."""
    if "speed" in results:
        yield from _speed({line["route"]: line for line in results["speed"]["summary"]})
        yield _files("plain route and build give equal files", results["speed"]["equal_files"], 48)
    if "small" in results:
        yield _at_most("whole small build", median(t["seconds"] for t in results["small"]["trials"]), 6, "s")
    if "stages" in results:
        yield from _stages(results["stages"]["summary"], plain_rate(results))
    if "memory" in results:
        yield from _memory(results["memory"]["growth"])
    if "real" in results:
        yield _files("real rows give the files they must become", results["real"]["equal_files"], 48)
    if "points" in results:
        differ = results["points"]["different"]["gigatoken, guarded"]
        yield ("code points on which the guarded encoder differs", "0", f"{differ:,}", differ == 0)


def _speed(lines: dict[str, dict[str, Any]]) -> Iterator[Bar]:
    one, two = lines["build --workers 1"], lines["build --workers 2"]
    yield _at_least("whole build, 1 worker, of plain", one["whole_ratio"], 10)
    yield _at_least("render + split + write, 1 worker, of plain", one["core_ratio"], 10)
    yield _at_least("2 workers of 1, whole build", two["whole"] / one["whole"], 1.8)
    yield _at_least("2 workers of 1, render + split + write", two["core"] / one["core"], 1.8)
    yield _at_most("start-up of a build, 1 worker", one["startup"], 6, "s")
    peak = max(line["worker_peak"] for line in lines.values())
    yield ("peak of a worker", f"≤ {WORKER_BOUND // MIB} MiB", f"{peak / MIB:,.0f} MiB", peak <= WORKER_BOUND)
    torch = any(line["torch_in_worker"] for line in lines.values())
    yield ("a render worker imports torch", "no", "yes" if torch else "no", not torch)


def _stages(summary: dict[str, Any], plain: float | None) -> Iterator[Bar]:
    if plain:
        yield _at_least("render-shard alone, of plain", summary["steps"]["render-shard"]["rate"] / plain, 15)
    yield _at_least("write-indexed without hashing, of tofile", summary["write"]["step_of_raw"], 0.7)
    yield _at_least("the same between the sizes", summary["write"]["step_of_raw_marginal"], 0.7)
    yield _at_least("its writer alone, of tofile", summary["write"]["writer_of_raw"], 0.7)
    yield _at_most("worker: spawn to first rendered row", summary["worker_startup"], 2, "s")


def _memory(growth: list[dict[str, Any]]) -> Iterator[Bar]:
    by_place = {(line["process"], line["stage"]): line for line in growth}
    for process, stage, what in (
        ("worker", "render", "a worker grows by, a row rendered"),
        ("worker", "write", "a worker grows by, a sequence written"),
        ("parent", "whole", "the parent grows by, a row"),
    ):
        if (process, stage) in by_place:
            yield _at_most(what, by_place[process, stage]["bytes_per_row"], BOUND, "bytes")


def _at_least(what: str, found: float, wanted: float) -> Bar:
    return (what, f"≥ {wanted:g}×", f"{found:.2f}×", found >= wanted)


def _at_most(what: str, found: float, wanted: float, unit: str) -> Bar:
    measured = f"{found:.0f}" if unit == "bytes" else f"{found:.2f}"
    return (what, f"≤ {wanted:g} {unit}", f"{measured} {unit}", found <= wanted)


def _files(what: str, equal: int, of: int) -> Bar:
    return (what, f"{of} of {of}", f"{equal} of {of}", equal == of)
