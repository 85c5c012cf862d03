"""What a person reads: the results as short tables.

In: the results of `speed`, `memory` and `stages`, as they also go to JSON. Out: tables for the terminal.
"""

from math import isnan
from typing import Any

from rich.table import Table

from bench.memory import BOUND, WORKER_BOUND
from bench.speed import MIB

Results = list[dict[str, Any]]


def speed_table(lines: Results, repeats: int) -> Table:
    table = _table(
        f"Tokens a second, marginal between the two sizes (medians of {repeats})",
        *("route", "whole build", "of plain", "render+split+write", "of plain", "start-up"),
    )
    for line in lines:
        table.add_row(
            line["route"],
            _rate(line["whole"]),
            _times(line["whole_ratio"]),
            _rate(line["core"]),
            _times(line["core_ratio"]),
            "noise" if isnan(line["startup"]) else f"{line['startup']:.1f} s",
        )
    return table


def process_table(lines: Results) -> Table:
    table = _table(
        "Seconds a million tokens, by stage, and the processes of these runs",
        *("route", "render", "split", "write", "validate", "parent peak", "worker peak", "torch in a worker"),
    )
    for line in lines:
        stages = (line.get(f"{stage}_seconds_per_million") for stage in ("render", "split", "write", "validate"))
        torch = {None: "–", True: "YES", False: "no"}[line["torch_in_worker"]]
        table.add_row(
            line["route"],
            *("–" if seconds is None else f"{seconds:.3f}" for seconds in stages),
            _mib(line["parent_peak"]),
            _mib(line["worker_peak"]) if line["worker_peak"] else "–",
            torch,
        )
    return table


def memory_table(lines: Results, rows: list[int], method: str) -> Table:
    table = _table(
        f"Peak memory by process and stage: {method}",
        *("process", "stage", f"{rows[0]:,} rows", f"{rows[1]:,} rows", "bytes a row", "without mapped files"),
    )
    for line in lines:
        table.add_row(
            line["process"],
            line["stage"],
            _mib(line["small"]),
            _mib(line["big"]),
            f"{line['bytes_per_row']:.0f}",
            f"{line['anonymous_per_row']:.0f}",
        )
    table.caption = f"allowed: about {BOUND} bytes a row in the parent; {_mib(WORKER_BOUND)} and flat in a worker"
    return table


def stage_table(lines: Results) -> Table:
    table = _table(
        "Stages alone, one process (MB of JSON, then of files; raw is tofile and fsync)",
        "stage",
        "seconds",
        "rows/s",
        "tokens/s",
        "MB/s",
        "of raw",
    )
    raw = next(line for line in lines if line["stage"].startswith("raw"))
    reference = raw["bytes"] / raw["seconds"]
    writing = False
    for line in lines:
        writing = writing or line["stage"].startswith("step write")
        rates = {name: line[name] / line["seconds"] for name in ("rows", "tokens", "bytes") if name in line}
        table.add_row(
            line["stage"],
            f"{line['seconds']:.2f}",
            f"{rates['rows']:,.0f}" if "rows" in rates else "",
            _rate(rates["tokens"]) if "tokens" in rates else "",
            f"{rates['bytes'] / 1e6:,.0f}" if "bytes" in rates else "",
            f"{rates['bytes'] / reference:.2f}" if writing else "",
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=not index)
    return table


def _rate(value: float) -> str:
    return "noise" if isnan(value) else f"{value / 1e6:.2f} M"


def _times(ratio: float) -> str:
    return "noise" if isnan(ratio) else f"{ratio:.2f}×"


def _mib(value: float) -> str:
    return f"{value / MIB:,.0f} MiB"
