"""The report as one page: the verdict first, then the content of the dataset in tables and plots.

In: facts. Out: self-contained HTML without scripts. Every number of a plot is also in a table.
"""

from collections.abc import Sequence
from typing import Any

from spanloom.dataset.facts import plural
from spanloom.dataset.family import Description
from spanloom.dataset.statistics import SEQUENCE_LENGTHS
from spanloom.megatron.readers import reader_in_words
from spanloom.report.card import duplicate_lines
from spanloom.report.pages.html import load, page
from spanloom.report.pages.plots import fraction_plot, lengths_plot, ratios_plot

FINDINGS_SHOWN = 200
ROWS_SHOWN = 40
"""Further groups are summed in one line: the page stays small for any source."""


def load_report_page() -> None:
    """Loads what `report_page` needs, while something else is waited for."""
    load("report.html.j2", "plot.svg.j2")


def report_page(facts: dict[str, Any], description: Description, groups: Sequence[str]) -> str:
    """The page of `dataset_facts`. `description`: from the family; `groups`: the columns of its counts."""
    statistics = facts["statistics"]
    filled = statistics is not None and statistics["total"] is not None
    plots = {}
    if filled:
        if not description.one_length:
            plots["lengths"] = lengths_plot(statistics)
        if statistics["ratios"] and sum(statistics["ratios"]["documents"]):
            plots["ratios"] = ratios_plot(statistics["ratios"])
        if facts["valid_fraction"] and facts["valid_fraction"]["documents"]:
            plots["fraction"] = fraction_plot(facts["valid_fraction"])
    tokens = sum(counts["tokens"] for counts in facts["dataset"]["totals"]["splits"].values())
    return page(
        "report.html.j2",
        style="report.css",
        facts=facts,
        dataset=facts["dataset"],
        environment=facts["environment"],
        reader=reader_in_words(facts["environment"].get("reader")),
        statistics=statistics if filled else None,
        description=description,
        spans=facts["dataset"]["span_names"],
        findings=facts["findings"][:FINDINGS_SHOWN],
        found=sum(facts["found"].values()),
        groups={
            plural(name): {"name": name, "lines": _slices(statistics[plural(name)], name)}
            for name in (groups if filled else ())
        },
        sequence_lengths=SEQUENCE_LENGTHS,
        duplicates="".join(duplicate_lines(facts.get("duplicate_documents"), statistics["total"]["sequences"]))
        if filled
        else "",
        longest_ids=_longest_ids(statistics["samples"]) if filled else {},
        throughput=[
            {"stage": stage, "seconds": seconds, "rate": tokens / seconds if seconds > 0 else None}
            for stage, seconds in facts["environment"]["timings"].items()
        ],
        plots=plots,
    )


def _longest_ids(samples: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Split → id of its longest document; empty if documents have no ids."""
    longest = [sample for sample in samples if sample["which"].startswith("longest") and sample["id"] is not None]
    return {sample["document"].split("/")[0]: sample["id"] for sample in longest}


def _slices(lines: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The largest slices, the others summed in one line; empty if no document has a value."""
    if all(line[name] is None for line in lines):
        return []
    shown = [{**line, "name": "(none)" if line[name] is None else line[name]} for line in lines[:ROWS_SHOWN]]
    if rest := lines[ROWS_SHOWN:]:
        added = {key: sum(line[key] for line in rest) for key in ("sequences", "tokens")}
        added |= {key: sum(line[key] for line in rest) for key in rest[0] if key.endswith("_tokens")}
        shown.append({**added, "name": f"{len(rest):,} more"})
    return shown
