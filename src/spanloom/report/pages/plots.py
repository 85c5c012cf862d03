"""Plots of the report as inline SVG, whose colours and fonts are those of the page: light, dark, printed, enlarged.

In: facts. Out: `<svg>`, by the template `plot.svg.j2`. Only numbers are drawn, no text of documents. Sizes are in the
units of the view box, of which a line of text takes 15.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, log2, log10
from typing import Any

from markupsafe import Markup

from spanloom.dataset.statistics import SEQUENCE_LENGTHS
from spanloom.report.pages.html import drawing, percent

WIDTH, LEFT, RIGHT, BELOW = 760.0, 52.0, 750.0, 44.0
"""Of a plot; where its axes begin and end; the space below them, for the labels."""

MOST_TICKS = 14
"""On an axis of powers of two; every second power is left out, and so on, where there are more."""

Scale = Callable[[float], float]
"""Function: value → place in the view box."""


@dataclass(kw_only=True)
class Plot:
    """What the template draws. `columns`, `rows`: places of ticks with their texts; `paths`: class and path data;
    `texts`: class, x, y and text; `key`: class and text of each line that is explained; `name`: of the x-axis."""

    label: str
    height: float
    columns: Sequence[tuple[float, str]]
    rows: Sequence[tuple[float, str]] = ()
    paths: list[tuple[str, str]] = field(default_factory=list)
    texts: list[tuple[str, float, float, str]] = field(default_factory=list)
    key: Sequence[tuple[str, str]] = ()
    name: str = ""

    @property
    def floor(self) -> float:
        """Where the x-axis is."""
        return self.height - BELOW

    def drawn(self) -> Markup:
        return drawing("plot.svg.j2", plot=self, width=WIDTH, left=LEFT, right=RIGHT)


def lengths_plot(statistics: dict[str, Any]) -> Markup:
    """Documents by length on a log axis, one outline per split, with the share that fits common sequence lengths."""
    lengths, total = statistics["lengths"], statistics["total"]
    edges = [max(float(lengths["below"]), 0.5), *map(float, lengths["edges"])]
    # From a quarter of the shortest length, which leaves room for its label left of its line.
    low, high = min(edges[0], SEQUENCE_LENGTHS[0] / 4) / 1.1, max(edges[-1], SEQUENCE_LENGTHS[-1]) * 1.3
    across = _log_scale(low, high)
    shares = {split: _shares(counts) for split, counts in lengths["splits"].items()}
    up, rows = _upwards(max(map(max, shares.values())), top=44.0, bottom=290.0 - BELOW)
    plot = Plot(
        label="Share of documents by length, on a logarithmic axis; the table below has the numbers",
        height=290.0,
        columns=[(across(value), f"{value:,.0f}" if value >= 1 else f"{value:g}") for value in _powers(low, high)],
        rows=rows,
        key=[(kind, split) for split, kind in zip(shares, ("first", "second"), strict=False)],
        name="tokens in a document",
    )
    for limit in SEQUENCE_LENGTHS:
        x = across(limit)
        plot.paths.append(("limit", f"M{x:.1f} 8V{plot.floor:.1f}"))
        fit = percent(total[f"fit_{limit}"] / total["sequences"])
        plot.texts += [("end", x - 5, 18.0, f"{limit // 1024}k"), ("end", x - 5, 33.0, fit)]
    for kind, share in zip(("first", "second"), shares.values(), strict=False):
        steps = "".join(f"V{up(y):.1f}H{across(x):.1f}" for y, x in zip(share, edges[1:], strict=True))
        outline = f"M{across(edges[0]):.1f} {plot.floor:.1f}{steps}V{plot.floor:.1f}"
        plot.paths += [(f"{kind} area", f"{outline}Z"), (kind, outline)]
    return plot.drawn()


def ratios_plot(ratios: dict[str, Any]) -> Markup:
    """Documents by reasoning : answer, on a log axis around 1 : 1."""
    share, inner = _shares(ratios["documents"]), [float(edge) for edge in ratios["edges"]]
    edges = [inner[0] / 2**0.5, *inner, inner[-1] * 2**0.5]
    bins = [(*bounds, y) for bounds, y in zip(pairwise(edges), share, strict=True) if y]
    reach = max([4.0, *(max(1 / begin, end) for begin, end, _ in bins)])
    across = _log_scale(1 / reach, reach)
    up, rows = _upwards(max(share), top=10.0, bottom=220.0 - BELOW)
    plot = Plot(
        label="Share of documents by the ratio of reasoning tokens to answer tokens",
        height=220.0,
        columns=[
            (across(value), f"{value:g} : 1" if value >= 1 else f"1 : {1 / value:g}")
            for value in _powers(1 / reach, reach)
        ],
        rows=rows,
        name="reasoning tokens : answer tokens",
    )
    for begin, end, y in bins:
        kind = "first" if begin * end > 1 else "second"
        bar = f"M{across(begin):.1f} {plot.floor:.1f}V{up(y):.1f}H{across(end):.1f}V{plot.floor:.1f}Z"
        plot.paths.append((f"{kind} bar", bar))
    plot.paths.append(("limit", f"M{across(1):.1f} 8V{plot.floor:.1f}"))
    return plot.drawn()


def fraction_plot(fraction: dict[str, Any]) -> Markup:
    """The requested fraction, and the realised one with its interval."""
    low, high, asked, realised = map(float, (*fraction["interval"], fraction["asked"], fraction["realised"]))
    reach = max(high - low, abs(asked - realised), 1e-9)
    first, last = max(0.0, min(low, asked) - 0.25 * reach), min(1.0, max(high, asked) + 0.25 * reach)

    def across(value: float) -> float:
        return LEFT + (value - first) / (last - first) * (RIGHT - LEFT)

    plot = Plot(
        label="The valid fraction that was asked and the realised one with its interval",
        height=110.0,
        columns=[(across(value), f"{100 * value:.6g} %") for value in _round_numbers(first, last)],
    )
    middle = plot.floor / 2
    plot.paths += [
        ("second interval", f"M{across(low):.1f} {middle}H{across(high):.1f}"),
        ("second dot", f"M{across(realised):.1f} {middle}h0"),
        ("asked", f"M{across(asked):.1f} {middle - 11}v22"),
    ]
    plot.texts += [
        ("middle ink", across(asked), middle - 16, "asked"),
        ("middle second", across(realised), middle + 22, "realised"),
    ]
    return plot.drawn()


def _shares(counts: Sequence[int]) -> list[float]:
    whole = max(sum(counts), 1)
    return [count / whole for count in counts]


def _log_scale(low: float, high: float) -> Scale:
    return lambda value: LEFT + log2(value / low) / log2(high / low) * (RIGHT - LEFT)


def _powers(low: float, high: float) -> Iterator[float]:
    """Powers of two in an interval, 1 or every second one from 1, and so on, where these are too many."""
    exponents = range(ceil(log2(low)), floor(log2(high)) + 1)
    step = ceil(len(exponents) / MOST_TICKS)
    yield from (2.0**exponent for exponent in exponents if exponent % step == 0)


def _upwards(highest: float, *, top: float, bottom: float) -> tuple[Scale, list[tuple[float, str]]]:
    """The scale of shares from 0 to the highest, and its ticks."""
    high = highest or 1.0

    def up(share: float) -> float:
        return bottom - share / high * (bottom - top)

    return up, [(up(value), f"{100 * value:g} %") for value in _round_numbers(0.0, high)]


def _round_numbers(low: float, high: float) -> list[float]:
    """Two to five numbers in an interval that are multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [round(number * step, 12) for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
