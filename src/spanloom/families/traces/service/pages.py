"""Datasets and traces as pages for a browser.

In: values that the service read. Out: HTML without external resources. `spanloom.report.pages.html` escapes text of
others and makes control characters visible.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from spanloom.families.traces.export.lines import FORMATS
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import StoredTrace, TraceCounts, TracePreview
from spanloom.families.traces.store.manifest import TraceManifest
from spanloom.provenance import readable_json
from spanloom.report.pages.texts import Link, TextSection, texts_page

SHOWN = 100
"""Traces per page."""

_TOP: Link = ("reasoning traces", "/")


def datasets_page(datasets: Sequence[Mapping[str, Any]], shown: Sequence[TracePreview], total: int, first: int) -> str:
    """All datasets, and a page of the traces, newest first; the page begins at trace `first`, from 0."""
    rows: list[list[Link]] = [
        [
            (dataset["dataset_key"], f"/datasets/{quote(dataset['dataset_key'])}"),
            (f"{dataset['trace_count']:,}" if dataset["valid"] else "invalid manifest", None),
            (dataset["created_at"] or "", None),
        ]
        for dataset in datasets
    ]
    traces: list[list[Link]] = [
        [
            (dataset.prompt or "(blank)", f"/traces/{dataset.id}"),
            (dataset.source, None),
            (dataset.created_at[: len("2025-12-01T10:00:00")].replace("T", " ") + " UTC", None),
            (dataset.id, f"/traces/{dataset.id}"),
        ]
        for dataset in shown
    ]
    last = first + len(shown)
    range_text = (
        f"{first + 1:,} to {last:,} of {total:,}." if shown else "None." if not total else f"No more than {total:,}."
    )
    return texts_page(
        "Reasoning traces",
        path=[("all requests", "/docs")],
        figures=[("traces", f"{total:,}"), ("datasets", f"{len(datasets):,}")],
        sections=[
            TextSection(heading="Datasets", columns=("key", "traces", "built"), rows=rows, after=_none(rows)),
            TextSection(
                heading="Traces, newest first",
                columns=("prompt", "source", "created", "id"),
                rows=traces,
                after=range_text,
            ),
            *_turn("/", first, last, total),
        ],
    )


def dataset_page(manifest: TraceManifest, shown: Sequence[str], counts: Mapping[str, TraceCounts], first: int) -> str:
    """A dataset: its request, and a page of its traces in their order."""
    base = f"/datasets/{quote(manifest.dataset_key)}"
    rows: list[list[Link]] = []
    for number, trace_id in enumerate(shown, start=first + 1):
        trace = counts.get(trace_id)
        rows.append(
            [
                (f"{number:,}", None),
                (trace_id, None if trace is None else f"/traces/{trace_id}"),
                ("deleted" if trace is None else f"{trace.steps:,} steps, {trace.chars:,} characters", None),
            ]
        )
    exports: list[list[Link]] = [[(form, f"/api{base}/export.jsonl?format={form}")] for form in FORMATS]
    facts = {
        "filters": manifest.filters,
        "selection_strategy": manifest.selection_strategy,
        "seed": manifest.seed,
        "stats": manifest.stats,
        "provenance": manifest.provenance,
    }
    return texts_page(
        manifest.dataset_key,
        path=[_TOP, ("dataset", None)],
        figures=[("traces", f"{len(manifest.trace_ids):,}"), ("built", manifest.as_dict()["created_at"])],
        sections=[
            TextSection(heading="What it is", texts=[("manifest", readable_json(facts).decode())]),
            TextSection(heading="Exports", columns=("format",), rows=exports),
            TextSection(heading="Traces", columns=("", "id", ""), rows=rows, after=_none(rows)),
            *_turn(base, first, first + len(shown), len(manifest.trace_ids)),
        ],
    )


def trace_page(trace: StoredTrace) -> str:
    """A trace with its steps, in their order."""
    payload = trace.payload
    steps = [
        (f"{number} · {step['type']} · index {step['i']}", step["content"])
        for number, step in enumerate(payload["steps"], start=1)
    ]
    meta = [] if payload["meta"] is None else [("meta", readable_json(payload["meta"]).decode())]
    return texts_page(
        "Trace",
        path=[_TOP, (trace.id, None)],
        figures=[("created", timestamps.shown(trace.created_at)), ("version", payload["trace_version"])],
        sections=[
            TextSection(heading="Prompt", texts=[("", payload["prompt"])]),
            TextSection(heading="Steps", texts=steps),
            TextSection(heading="Final answer", texts=[("", payload["final_answer"])]),
            *([TextSection(heading="Meta", texts=meta)] if meta else []),
        ],
    )


def missing_page(what: str) -> str:
    """The page for something that does not exist or cannot be shown."""
    return texts_page(what, path=[_TOP], sections=[])


def _turn(path: str, first: int, last: int, total: int) -> list[TextSection]:
    """Links to the previous and the next page, if they exist."""
    rows: list[list[Link]] = []
    if first:
        rows.append([("earlier", f"{path}?offset={max(0, first - SHOWN)}")])
    if last < total:
        rows.append([("later", f"{path}?offset={last}")])
    return [TextSection(heading="More", columns=("",), rows=rows)] if rows else []


def _none(rows: Sequence[object]) -> str:
    return "" if rows else "None."
