"""Plots as SVG that takes its colours from the page: the same drawing in light and dark, printed and enlarged.

In: facts. Out: inline `<svg>`, with text as text, drawn by matplotlib. The same facts give the same bytes: no date, ids
from a fixed salt. Only numbers are drawn, no text of documents.
"""

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from markupsafe import Markup

from spanloom.dataset.statistics import SEQUENCE_LENGTHS
from spanloom.report.pages.html import percent

# Placeholder colours: plots are drawn with these, which are then replaced by the page's variables.
_INKS = {
    "#010101": "var(--ink)",
    "#020202": "var(--quiet)",
    "#030303": "var(--line)",
    "#040404": "var(--faint)",
    "#050505": "var(--span1)",
    "#060606": "var(--span2)",
    "#070707": "var(--paper)",
}
_INK, _QUIET, _LINE, _FAINT, _FIRST, _SECOND, _PAPER = _INKS

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # part of matplotlib: text has the same width everywhere
    "font.size": 10,
    "text.parse_math": False,
    "axes.edgecolor": _FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "text.color": _INK,
    "axes.labelcolor": _QUIET,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
    "xtick.major.width": 0.8,
    "ytick.major.size": 0,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def can_plot() -> bool:
    """Whether matplotlib is installed. Without it a report has only tables, and names what is missing."""
    return find_spec("matplotlib") is not None


@cache
def load_plotting() -> None:
    """Prepares matplotlib before its use, if it is installed: import and first drawing take a second."""
    if can_plot():
        _svg(lambda axes: axes.set_xscale("log", base=2), (4, 2), "")


def lengths_plot(statistics: dict[str, Any]) -> Markup:
    """Documents by length on a log axis, one outline per split, with the share that fits common sequence lengths."""
    lengths, total = statistics["lengths"], statistics["total"]
    edges = np.array([max(lengths["below"], 0.5), *lengths["edges"]], dtype=float)

    def draw(axes: Any) -> None:
        for split, colour, style in zip(lengths["splits"], (_FIRST, _SECOND), ("-", "--"), strict=False):
            counts = np.array(lengths["splits"][split], dtype=float)
            share = counts / max(counts.sum(), 1)
            axes.stairs(share, edges, color=colour, linewidth=1.6, linestyle=style, label=split)
            axes.stairs(share, edges, color=colour, fill=True, alpha=0.14)
        axes.set_xscale("log", base=2)
        # From a quarter of the shortest length, which leaves room for its label and the legend left of its line.
        axes.set_xlim(min(edges[0], SEQUENCE_LENGTHS[0] / 4) / 1.1, max(edges[-1], SEQUENCE_LENGTHS[-1]) * 1.3)
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= min(high, 1)])
        axes.set_ylim(low, high * 1.32)
        for limit in SEQUENCE_LENGTHS:
            axes.axvline(limit, color=_FAINT, linewidth=0.8, linestyle=(0, (2, 2)))
            fit = total[f"fit_{limit}"] / total["sequences"]
            axes.text(
                limit, high * 1.28, f"{limit // 1024}k\n{percent(fit)}", ha="right", va="top", color=_QUIET, fontsize=9
            )
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.grid(axis="y", color=_LINE, linewidth=0.6)
        axes.set_xlabel("tokens in a document")
        axes.legend(loc="upper left", labelcolor=_QUIET, ncols=2, handlelength=1.6)

    return _svg(
        draw, (7.6, 2.9), "Share of documents by length, on a logarithmic axis; the table below has the numbers"
    )


def ratios_plot(ratios: dict[str, Any]) -> Markup:
    """Documents by reasoning : answer, on a log axis around 1 : 1."""
    counts = np.array(ratios["documents"], dtype=float)
    edges = np.array(ratios["edges"], dtype=float)
    edges = np.concatenate([[edges[0] / np.sqrt(2)], edges, [edges[-1] * np.sqrt(2)]])
    used = np.flatnonzero(counts)

    def draw(axes: Any) -> None:
        share = counts / max(counts.sum(), 1)
        widths = edges[1:] / edges[:-1]
        middle = np.sqrt(edges[1:] * edges[:-1])
        for above, colour, hatch in ((False, _SECOND, None), (True, _FIRST, "////")):
            at = (middle > 1) == above
            axes.bar(
                edges[:-1][at], share[at], (edges[:-1] * (widths - 1))[at], align="edge", color=colour, alpha=0.8,
                hatch=hatch, edgecolor=_PAPER, linewidth=0.8,
            )  # fmt: skip
        axes.axvline(1, color=_FAINT, linewidth=0.8)
        axes.set_xscale("log", base=2)
        if used.size:
            reach = max(4.0, 1 / edges[used[0]], edges[used[-1] + 1])
            axes.set_xlim(1 / reach, reach)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} : 1" if value >= 1 else f"1 : {1 / value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.grid(axis="y", color=_LINE, linewidth=0.6)
        axes.set_xlabel("reasoning tokens : answer tokens")

    return _svg(draw, (7.6, 2.2), "Share of documents by the ratio of reasoning tokens to answer tokens")


def fraction_plot(fraction: dict[str, Any]) -> Markup:
    """The requested fraction, and the realised one with its interval."""
    low, high = fraction["interval"]

    def draw(axes: Any) -> None:
        axes.plot([low, high], [0, 0], color=_SECOND, linewidth=3, solid_capstyle="butt", alpha=0.45)
        axes.plot([fraction["realised"]], [0], "o", color=_SECOND, markersize=7)
        axes.plot([fraction["asked"]], [0], "|", color=_INK, markersize=20, markeredgewidth=1.6)
        for name, offset, colour in (("asked", 12, _INK), ("realised", -18, _SECOND)):
            where = {"xy": (fraction[name], 0), "xytext": (0, offset), "textcoords": "offset points"}
            axes.annotate(name, **where, ha="center", color=colour, fontsize=9)
        reach = max(high - low, abs(fraction["asked"] - fraction["realised"]), 1e-9)
        axes.set_xlim(
            max(0.0, min(low, fraction["asked"]) - 0.25 * reach), min(1.0, max(high, fraction["asked"]) + 0.25 * reach)
        )
        axes.set_ylim(-1, 1)
        axes.set_yticks([])
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")

    return _svg(draw, (7.6, 1.2), "The valid fraction that was asked and the realised one with its interval")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without matplotlib's warnings that it has no folder for settings (HOME=/): the plots need none."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _svg(draw: Any, size: tuple[float, float], label: str) -> Markup:
    with _quiet():
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

    with mpl.rc_context({**_STYLE, "svg.hashsalt": label}):  # different ids for the plots of a page
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        stream = io.StringIO()
        # Dates and the version of matplotlib would make equal reports differ.
        figure.savefig(
            stream,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return Markup(_inlined(stream.getvalue(), label))


def _inlined(svg: str, label: str) -> str:
    """A self-contained SVG file → an element for a page: no prolog, no fixed size, the page's colours and fonts."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'(<svg )[^>]*?(viewBox="[^"]*")[^>]*>', rf'\1class="plot" role="img" aria-label="{label}" \2>', svg, count=1
    )
    svg = re.sub(r"font-family: [^;\"]*; ", "", svg)
    svg = re.sub(r' id="[a-z0-9]+(_\d+|\.[a-z_0-9]+)"', "", svg)  # axes_1 and the like: nothing refers to them
    svg = re.sub(r" xmlns(:xlink)?=\"[^\"]*\"", "", svg).replace("xlink:href", "href")
    for drawn, ink in _INKS.items():
        svg = svg.replace(drawn, ink)
    return re.sub(r"\n\s*", "\n", svg).strip()
