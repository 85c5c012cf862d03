"""Counts of a dataset as a table for users, as CSV, as JSON.

In: counts by group. Out: lines of plain values, a rich table, CSV text.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from spanloom.dataset.facts import as_values
from spanloom.dataset.statistics import SEQUENCE_LENGTHS, Counts, Key
from spanloom.report.pages.html import percent
from spanloom.text import visible, visible_line


def stats_lines(by: tuple[str, ...], groups: dict[Key, Counts]) -> list[dict[str, Any]]:
    """One plain dictionary per group: the values that it is grouped by, then its counts."""
    return [{**dict(zip(by, key, strict=True)), **as_values(counts)} for key, counts in groups.items()]


def stats_csv(lines: list[dict[str, Any]]) -> str:
    """The lines as CSV with a header; a missing value is an empty field."""
    text = io.StringIO()
    if lines:
        writer = csv.DictWriter(text, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return visible(text.getvalue())


def stats_table(by: tuple[str, ...], groups: dict[Key, Counts]) -> Table:
    """The columns that fit a screen; `--json` and `--csv` have all."""
    spans = list(next(iter(groups.values())).span_tokens) if groups else []
    names = ("documents", "tokens", *spans, "trained", "median", "99 %", "longest", f"fit {SEQUENCE_LENGTHS[1]:,}")
    rows = {
        key: (
            f"{counts.sequences:,}",
            f"{counts.tokens:,}",
            *(f"{tokens:,}" for tokens in counts.span_tokens.values()),
            percent(counts.trained / counts.tokens if counts.tokens else None),
            f"{counts.quantile(0.5) or 0:,}",
            f"{counts.quantile(0.99) or 0:,}",
            f"{counts.longest:,}",
            percent(counts.fitting(SEQUENCE_LENGTHS[1]) / counts.sequences if counts.sequences else None),
        )
        for key, counts in groups.items()
    }
    return group_table(by, names, rows)


def group_table(by: tuple[str, ...], names: Sequence[str], rows: Mapping[Key, Sequence[str]]) -> Table:
    """A row for each group: the values that it is grouped by, then those of the columns `names`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in by:
        table.add_column(Text(name), overflow="fold")
    for name in names:
        table.add_column(Text(visible_line(name, 40)), justify="right", no_wrap=True)
    for key, values in rows.items():
        table.add_row(*(Text("(none)" if part is None else visible_line(part, 60)) for part in key), *values)
    return table
