"""What a person reads: the results as short tables, for the terminal and for a page.

In: the results as they go to JSON. Out: `Sheet`s, and each as a terminal table or as Markdown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from statistics import median
from typing import Any

from rich.table import Table

from tools.bench.memory import BOUND, WORKER_BOUND
from tools.bench.peers import LACKS
from tools.bench.speed import MIB

Results = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table: `key` names its place on the page; the first column is text, the others are numbers."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    caption: str = ""


def terminal(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, caption=sheet.caption, box=None, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for index, column in enumerate(sheet.columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=not index)
    for row in sheet.rows:
        table.add_row(*row)
    return table


def markdown(sheet: Sheet) -> str:
    lines = [f"| {' | '.join(sheet.columns)} |", f"|---{'|--:' * (len(sheet.columns) - 1)}|"]
    lines += [f"| {' | '.join(row)} |" for row in sheet.rows]
    return "\n".join([f"{sheet.title}:", "", *lines, *(["", sheet.caption] if sheet.caption else [])])


def all_tables(results: Results) -> Iterator[Sheet]:
    """A sheet for each part that was measured."""
    if "speed" in results:
        yield routes(results)
        yield processes(results["speed"]["summary"])
    if "summary" in results.get("peers", {}):
        yield peers_sheet(results)
    if "encoders" in results:
        yield encoders_sheet(results)
    if "stages" in results:
        yield worker(results["stages"]["summary"])
        yield steps(results)
        yield writing(results["stages"]["summary"])
    if "small" in results:
        yield small(results)
    if "start" in results:
        yield start(results["start"])
    if "memory" in results:
        yield memory(results["memory"])
    if "packing" in results:
        yield packing(results["packing"])
    if "chess" in results:
        yield chess(results["chess"])
        yield chess_preparing(results["chess"])
        yield chess_loader(results["chess"])


def routes(results: Results) -> Sheet:
    lines = results["speed"]["summary"]
    return Sheet(
        key="routes",
        title=f"Tokens a second, marginal between two sizes, medians of {lines[0]['runs']} runs of each",
        columns=("route", "rows", "whole build", "of plain", "render + split + write", "of plain", "start-up"),
        rows=[
            (
                f"{line['route']}",
                _sizes(line),
                _rate(line["whole"]),
                _times(line.get("whole_ratio")),
                _rate(line["core"]),
                _times(line.get("core_ratio")),
                _seconds(line["startup"]),
            )
            for line in lines
        ],
    )


def processes(lines: list[dict[str, Any]]) -> Sheet:
    return Sheet(
        key="processes",
        title="Seconds a million tokens by stage, and the processes of these runs (peaks)",
        columns=("route", "render", "split", "write", "validate", "parent", "worker", "validator", "torch in a worker"),
        rows=[
            (
                line["route"],
                *(
                    _number(line.get(f"{name}_seconds_per_million"))
                    for name in ("render", "split", "write", "validate")
                ),
                *(_mib(line[f"{name}_peak"]) for name in ("parent", "worker", "validator")),
                {None: "–", True: "YES", False: "no"}[line["torch_in_worker"]],
            )
            for line in lines
        ],
    )


def peers_sheet(results: Results) -> Sheet:
    lines, equal = results["peers"]["summary"], results["peers"]["equal"]
    return Sheet(
        key="peers",
        title=f"Other routes, one process, marginal between {_sizes(lines[0])} rows, medians of {lines[0]['runs']}",
        columns=("route", "tokens/s", "of plain", "start-up", "equal to the record", "what it lacks"),
        rows=[
            (
                line["route"],
                _rate(line["whole"]),
                _times(line.get("whole_ratio")),
                _seconds(line["startup"]),
                ", ".join(f"{what}: {'yes' if same else 'NO'}" for what, same in equal.get(line["route"], {}).items())
                or "it is the record",
                LACKS[line["route"]],
            )
            for line in lines
        ],
    )


def encoders_sheet(results: Results) -> Sheet:
    lines = results["encoders"]["summary"]
    points = results.get("points", {"different": {}})
    runs = len({trial["repeat"] for trial in results["encoders"]["trials"]})
    return Sheet(
        key="encoders",
        title=f"Content text to tokens on one core, {lines[0]['tokens']:,} tokens, medians of {runs} cold runs",
        columns=("encoder", "version", "tokens/s", "of tiktoken", "start-up", "ids equal", "code points that differ"),
        rows=[
            (
                line["encoder"],
                line["version"],
                _rate(line["rate"]),
                _times(line["ratio"]),
                _seconds(line["startup"]),
                {None: "–", True: "yes", False: "NO"}[line["equal"]],
                f"{points['different'][line['encoder']]:,}" if line["encoder"] in points["different"] else "–",
            )
            for line in sorted(lines, key=lambda line: -line["rate"])
        ],
        caption=f"Code points: one in {points['stride']}." if points.get("stride", 1) > 1 else "",
    )


def worker(summary: dict[str, Any]) -> Sheet:
    whole = summary["worker"][-1]["seconds"]
    return Sheet(
        key="worker",
        title=f"What a render worker does, one process, {summary['worker'][0]['rows']:,} rows, batch by batch",
        columns=("stage", "seconds", "share", "rows/s", "tokens/s"),
        rows=[
            (
                line["stage"],
                f"{line['seconds']:.2f}",
                f"{line['seconds'] / whole:.0%}",
                f"{line['rows'] / line['seconds']:,.0f}",
                _rate(line["rate"]),
            )
            for line in summary["worker"]
        ],
    )


def steps(results: Results) -> Sheet:
    summary = results["stages"]["summary"]
    plain = plain_rate(results)
    found = summary["steps"]
    rows = [
        ("convert-shard", f"{found['convert-shard']['rate']:,.0f} rows/s", "", ""),
        (
            "render-shard, 1 worker",
            _rate(found["render-shard"]["rate"]),
            _of(found["render-shard"]["rate"], plain),
            _seconds(found["render-shard"]["fixed"]),
        ),
        (
            "assemble-split, of the whole big size",
            f"{found['assemble-split']['whole_rate']:,.0f} rows/s",
            "",
            "",
        ),
        ("write-indexed", f"{summary['write']['rate'] / 1e6:,.0f} MB/s", "", ""),
        *(
            (name, _rate(found[step]["rate"]), _of(found[step]["rate"], plain), _seconds(found[step]["fixed"]))
            for step, name in (
                ("validate-alignment", "validate-alignment, 1 core"),
                ("check documents", "… without the source"),
            )
        ),
        ("worker: spawn to first rendered row", "", "", _seconds(summary["worker_startup"])),
        ("validator: import of Megatron's reader", "", "", _seconds(summary["reader_import"])),
    ]
    return Sheet(
        key="steps",
        title="Steps alone, marginal between the two sizes",
        columns=("step", "a second", "of plain", "fixed"),
        rows=rows,
    )


def writing(summary: dict[str, Any]) -> Sheet:
    rows = []
    for line in summary["writing"]:
        name = line["stage"] + (f", {line['size']}" if "size" in line else "")
        rows.append(
            (name, f"{line['seconds']:.3f}", f"{line['bytes'] / 1e6:,.0f}", _mb(line["bytes"], line["seconds"]))
        )
        if "hashing" in line:
            net = line["seconds"] - line["hashing"]
            rows += [
                ("… its hashing subtracted", f"{net:.3f}", "", _mb(line["bytes"], net)),
                ("… reading its input, alone", f"{line['reading']:.3f}", "", _mb(line["bytes"], line["reading"])),
                ("… the same files by tofile and fsync", f"{line['raw']:.3f}", "", _mb(line["bytes"], line["raw"])),
            ]
    write = summary["write"]
    return Sheet(
        key="writing",
        title="Writing",
        columns=("what", "seconds", "MB", "MB/s"),
        rows=rows,
        caption=f"Of tofile: the writer alone {write['writer_of_raw']:.2f}; the step without hashing "
        f"{write['step_of_raw']:.2f} at the big size, {write['step_of_raw_marginal']:.2f} between the sizes.",
    )


def small(results: Results) -> Sheet:
    trials = results["small"]["trials"]
    seconds = sorted(trial["seconds"] for trial in trials)
    rows = [(f"whole build of {trials[0]['rows']} rows", f"{seconds[len(seconds) // 2]:.2f} s", "")]
    if "real" in results:
        real = results["real"]
        passes = sorted(real["trials"], key=lambda trial: trial["seconds"])
        one = passes[len(passes) // 2]
        rows.append(
            (
                f"{one['rows']} real rows, read, checked and rendered in one pass",
                f"{one['seconds']:.3f} s",
                f"{_rate(one['tokens'] / one['seconds'])} tokens/s; {one['fallbacks']} by the record route; "
                f"{real['equal_files']} of {real['files']} files equal",
            )
        )
    return Sheet(key="small", title=f"Small builds, medians of {len(trials)}", columns=("what", "time", ""), rows=rows)


def start(found: dict[str, Any]) -> Sheet:
    return Sheet(
        key="start",
        title=f"Start, medians of {len({trial['repeat'] for trial in found['trials']})} runs",
        columns=("command", "seconds", "CPU s", "first line after", "of the baseline", "CPU"),
        rows=[
            (
                line["command"],
                f"{median(line['seconds']):.2f}",
                f"{line['cpu']:.2f}",
                "–" if line["first_line"] is None else f"{line['first_line']:.2f} s",
                _times(median(line["ratios"]) if line["ratios"] else None),
                _times(line["cpu_ratio"]),
            )
            for line in found["summary"]
        ],
    )


def memory(found: dict[str, Any]) -> Sheet:
    sizes = [size["rows"] for size in found["sizes"]]
    return Sheet(
        key="memory",
        title=f"Peak memory by process: {found['method']}",
        columns=("process", "stage", *(f"{rows:,} rows" for rows in sizes), "bytes a row", "without mapped files"),
        rows=[
            (
                line["process"],
                line["stage"],
                _mib(line["small"]),
                _mib(line["big"]),
                f"{line['bytes_per_row']:.0f}",
                f"{line['anonymous_per_row']:.0f}",
            )
            for line in found["growth"]
            if line["stage"] in ("whole", "validate")
        ],
        caption=f"allowed: about {BOUND} bytes a row in the parent; {_mib(WORKER_BOUND)} and flat in a worker",
    )


def packing(found: dict[str, Any]) -> Sheet:
    memory = " and ".join(f"{_mib(size['peak'])} for {size['tokens']:,} tokens" for size in found["memory"])
    return Sheet(
        key="packing",
        title="Packed chat: tokens a second, blocks of 1,024, ratios within each run",
        columns=("route", "tokens/s", "compared with"),
        rows=[
            (
                line["route"],
                _rate(line["rate"]),
                ", ".join(f"{_times(median(runs))} of {other}" for other, runs in line["of"].items()) or "–",
            )
            for line in found["summary"]
        ],
        caption=f"peak memory of packing: {memory}",
    )


def chess(found: dict[str, Any]) -> Sheet:
    rounds = len({trial["repeat"] for trial in found["trials"]})
    data = f"{found['games']} games of {found['plies']:,} plies, samples of {found['length']:,} tokens"
    return Sheet(
        key="chess",
        title=f"Samples a second, {data}, one thread, medians of {rounds} rounds, ratios within each round",
        columns=("route", "by CPU time", "by the clock", "of its loop, CPU", "of its loop, clock"),
        rows=[
            (
                line["route"],
                f"{line['cpu_rate']:,.0f}",
                f"{line['wall_rate']:,.0f}",
                *(_spread(line[ratios]) for ratios in ("cpu_ratios", "wall_ratios")),
            )
            for line in found["summary"]
        ],
        caption=f"load of the machine (1-minute average, {found['machine']['cpus']} cores): "
        f"{found['load'][0]:.1f} before, {found['load'][1]:.1f} after",
    )


def chess_preparing(found: dict[str, Any]) -> Sheet:
    return Sheet(
        key="chess_preparing",
        title="Preparing games, one process, validation and all",
        columns=("input", "plies/s by CPU time", "plies/s by the clock", "peak memory"),
        rows=[
            (
                f"{line['plies']:,} plies in {line['files']} file{'s' if line['files'] > 1 else ''}",
                f"{line['plies'] / line['cpu']:,.0f}",
                f"{line['plies'] / line['wall']:,.0f}",
                _mib(line["peak"]),
            )
            for line in found["prepare"]
        ],
    )


def chess_loader(found: dict[str, Any]) -> Sheet:
    trials = found["dataloader"]
    workers = sorted({trial["workers"] for trial in trials})

    def rate(*of: str | int) -> float:
        names = ("route", "batch_size", "workers")
        return float(median(trial["rate"] for trial in trials if tuple(trial[name] for name in names) == of))

    return Sheet(
        key="chess_loader",
        title=f"DataLoader, samples a second by the clock, {trials[0]['cpus']} cores, medians",
        columns=("route", "batch", *(f"{number} worker{'' if number == 1 else 's'}" for number in workers), "2 of 1"),
        rows=[
            (
                route,
                str(size),
                *(f"{rate(route, size, number):,.0f}" for number in workers),
                _times(rate(route, size, 2) / rate(route, size, 1)),
            )
            for route, size in dict.fromkeys((trial["route"], trial["batch_size"]) for trial in trials)
        ],
    )


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):.1f}× ({min(ratios):.1f}–{max(ratios):.1f})" if ratios else "–"


def plain_rate(results: Results) -> float | None:
    """The plain route's tokens a second, where it was measured."""
    return next(
        (line["whole"] for line in results.get("speed", {}).get("summary", []) if line["route"] == "plain"), None
    )


def _sizes(line: dict[str, Any]) -> str:
    return " and ".join(f"{rows:,}" for rows in line["rows"])


def _rate(value: float) -> str:
    return "noise" if isnan(value) else f"{value / 1e6:.2f} M"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else "noise" if isnan(ratio) else f"{ratio:.2f}×"


def _of(rate: float, plain: float | None) -> str:
    return _times(rate / plain if plain else None)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _seconds(value: float) -> str:
    return "noise" if isnan(value) else f"{value:.1f} s" if value >= 0.95 or value < 0 else f"{value:.2f} s"


def _mb(size: float, seconds: float) -> str:
    return f"{size / seconds / 1e6:,.0f}"


def _mib(value: float) -> str:
    return f"{value / MIB:,.0f} MiB" if value else "–"
