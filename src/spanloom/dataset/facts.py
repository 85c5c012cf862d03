"""The content of a report, as plain values: `report.json` holds it, and the page shows it.

In: a dataset's manifest, the report of its validation, its rows. Out: `facts`, a JSON value. It works for a damaged
dataset, too: then it gives the reason for missing statistics, and the findings give the rest.
"""

import json
from collections.abc import Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, Manifest
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.table import row_batches, rows_schema
from spanloom.dataset.statistics import LENGTH_EDGES, RATIO_EDGES, SEQUENCE_LENGTHS, Counts, Key, collect
from spanloom.errors import SpanloomError
from spanloom.findings import Report
from spanloom.split import VALID
from spanloom.text import visible_line

BINS_PER_OCTAVE = 8
CONFIDENCE = 0.95
_Z = 1.959963984540054
"""The two-sided 95 % point of the normal distribution."""

REPORT_VERSION = "spanloom_report_v1"
EXAMPLES, EXAMPLE_CHARACTERS = 3, 300


def dataset_facts(
    root: Path,
    written: Manifest,
    family: DatasetFamily,
    report: Report,
    *,
    timings: Mapping[str, float] | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """The facts of the dataset at `root`. `timings` (stage → seconds) are added to those in the manifest; `name`: the
    dataset's name, if it differs from its folder's current name.

    Times, places and the machine are only under `environment`: everything else is equal for equal builds.
    """
    content, environment = written.content, written.environment
    values = content.as_dict()
    statistics, fault = None, None
    try:
        statistics = _statistics(root, content, family)
    except SpanloomError as error:
        fault = error.what
    return {
        "report": REPORT_VERSION,
        **report.as_dict(),
        "dataset": {
            **{name: values[name] for name in ("family", "config_sha256", "git_sha", "alignment")},
            **family.describe(content).facts,
            **{name: values[name] for name in ("tokenizer", "input", "span_names", "totals")},
        },
        "statistics": statistics,
        "statistics_fault": fault,
        "valid_fraction": _valid_fraction(content),
        "rejects": _rejects(root, content),
        "environment": {
            "name": name or root.resolve().name,
            **environment,
            **({} if report.reader is None else {"reader": report.reader}),
            "timings": {**(environment.get("timings") or {}), **(timings or {})},
        },
    }


def _statistics(root: Path, content: Content, family: DatasetFamily) -> dict[str, Any]:
    columns = family.GROUP_COLUMNS
    groupings: list[tuple[str, ...]] = [(), ("split",), ("split", "shard"), *((column,) for column in columns)]
    counted = collect(root, content, groupings, columns=columns, ratio=family.RATIO)
    total = counted[()].get(())

    def table(by: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{**dict(zip(by, key, strict=True)), **as_values(counts)} for key, counts in counted[by].items()]

    return {
        "total": as_values(total) if total else None,
        "splits": table(("split",)),
        "shards": table(("split", "shard")),
        **{plural(column): sorted(table((column,)), key=lambda line: -line["tokens"]) for column in columns},
        "samples": [*_samples(root, content, family, counted[("split", "shard")])],
        "lengths": _lengths(counted[("split",)]),
        "ratios": _ratios(total, family.RATIO),
    }


def _samples(
    root: Path, content: Content, family: DatasetFamily, by_shard: Mapping[Key, Counts]
) -> Iterator[dict[str, Any]]:
    """The first and the longest document of each split: `document` (an address for `spanloom inspect`), `id`, `tokens`.

    Reads the row tables of at most two shards of a split.
    """
    rows = rows_schema(family.row_schema(content), content.span_names)
    for split in content.totals.splits:
        shards = {int(str(shard)): counts for (name, shard), counts in by_shard.items() if name == split}
        if not shards:
            continue
        longest = max(shards, key=lambda shard: (shards[shard].longest, -shard))
        for which, shard in (("first", min(shards)), ("longest", longest)):
            for batch in row_batches(rows_file(root, split, shard), rows):
                lengths = batch.column("tokens").to_numpy()
                at = 0 if which == "first" else int(lengths.argmax())
                if which == "first" or lengths[at] == shards[shard].longest:
                    sequence = batch.column("sequence")[at].as_py()
                    name = (
                        batch.column(family.ID_COLUMN)[at].as_py() if family.ID_COLUMN in batch.schema.names else None
                    )
                    document = f"{split}/{shard:02d}/{sequence}"
                    yield {"which": f"{which} of {split}", "document": document, "id": name, "tokens": int(lengths[at])}
                    break


def plural(column: str) -> str:
    """The key in the statistics of the counts by a column: `language` → `languages`."""
    return f"{column}s"


def as_values(counts: Counts) -> dict[str, Any]:
    """One group as plain values. Length quantiles are rounded up by at most 1/64; counts of fitting documents are
    exact."""
    return {
        "sequences": counts.sequences,
        "tokens": counts.tokens,
        **{f"{name}_tokens": tokens for name, tokens in counts.span_tokens.items()},
        "trained_tokens": counts.trained,
        "mean_length": None if counts.mean_length is None else round(counts.mean_length, 2),
        "median_length": counts.quantile(0.5),
        "p90_length": counts.quantile(0.9),
        "p99_length": counts.quantile(0.99),
        "longest": counts.longest,
        **{f"fit_{limit}": counts.fitting(limit) for limit in SEQUENCE_LENGTHS},
        **{f"without_{name}": count for name, count in counts.without.items()},
    }


def _lengths(by_split: dict[Key, Counts]) -> dict[str, Any]:
    """Documents by length for each split, in bins whose upper edges are `edges`: about eight to an octave."""
    wanted = 2.0 ** (np.arange(31 * BINS_PER_OCTAVE + 1) / BINS_PER_OCTAVE)
    edges = np.unique(LENGTH_EDGES[np.searchsorted(LENGTH_EDGES, wanted)])  # a subset of the fine edges: exact counts
    coarse = np.searchsorted(edges, LENGTH_EDGES)
    splits = {
        str(key[0]): np.bincount(coarse, weights=counts.lengths, minlength=edges.size).astype(np.int64)
        for key, counts in by_split.items()
    }
    used = np.flatnonzero(sum(splits.values(), np.zeros(edges.size, dtype=np.int64)))
    window = slice(int(used[0]), int(used[-1]) + 1) if used.size else slice(0, 0)
    below = int(edges[used[0] - 1]) if used.size and used[0] else 0
    return {
        "edges": edges[window].tolist(),
        "below": below,
        "splits": {split: counts[window].tolist() for split, counts in splits.items()},
    }


def _ratios(total: Counts | None, ratio: tuple[str, str] | None) -> dict[str, Any] | None:
    """The ratio of the two spans: by document (bins with upper `edges`), and of all tokens together."""
    if total is None or ratio is None:
        return None
    above, below = (total.span_tokens[span] for span in ratio)
    return {
        "edges": RATIO_EDGES.tolist(),
        "documents": total.ratios.tolist(),
        "overall": above / below if below else None,
        "median": _median_ratio(total.ratios),
        **{f"without_{name}": count for name, count in total.without.items()},
    }


def _median_ratio(documents: npt.NDArray[np.int64]) -> float | None:
    """The median: the upper edge of the bin of the middle document; half of the documents have at most this ratio.

    None if no document has both spans, or if the middle document is above all edges.
    """
    if not documents.sum():
        return None
    at = int(np.searchsorted(np.cumsum(documents), documents.sum() / 2, side="left"))
    return float(RATIO_EDGES[at]) if at < RATIO_EDGES.size else None


def _valid_fraction(content: Content) -> dict[str, Any] | None:
    if content.split is None or VALID not in content.totals.splits:
        return None
    valid = content.totals.splits[VALID].sequences
    total = content.totals.sequences
    # All documents of a conversation are in one split: the number of trials is the number of conversations.
    trials = total if content.totals.cutting is None else content.totals.cutting["conversations"]
    low, high = wilson_interval(round(valid * trials / total) if total else 0, trials)
    fraction = content.split.valid_fraction
    return {
        "asked": fraction,
        "valid": valid,
        "documents": total,
        "realised": valid / total if total else None,
        "confidence": CONFIDENCE,
        "interval": [low, high],
        "asked_lies_inside": low <= fraction <= high,
    }


def wilson_interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of `hits` in `trials`; accurate also near 0 and 1, as valid fractions are.

    The split rule hashes ids, so each id is a trial with the requested fraction. A requested fraction far outside means
    that the ids are not independent of the rule (a filtered source, or repeated ids).
    """
    if not trials:
        return 0.0, 1.0
    share, squared = hits / trials, _Z * _Z
    middle = (share + squared / (2 * trials)) / (1 + squared / trials)
    reach = _Z / (1 + squared / trials) * sqrt(share * (1 - share) / trials + squared / (4 * trials * trials))
    return (0.0 if not hits else middle - reach), (1.0 if hits == trials else middle + reach)


def _rejects(root: Path, content: Content) -> dict[str, Any]:
    """Counts by reason, and the first few examples of each, shortened."""
    counts = content.totals.rejected
    examples: dict[str, list[dict[str, Any]]] = {reason: [] for reason in counts}
    for shard in content.shards:
        if shard.rejects_file is not None and any(len(of_reason) < EXAMPLES for of_reason in examples.values()):
            _read_examples(root / shard.rejects_file.path, examples)
    return {
        "rows_read": content.totals.rows_read,
        "total": sum(counts.values()),
        "reasons": {
            reason: {"rows": rows, "examples": examples[reason]}
            for reason, rows in sorted(counts.items(), key=lambda item: -item[1])
        },
    }


def _read_examples(path: Path, examples: dict[str, list[dict[str, Any]]]) -> None:
    """Adds examples from a rejects file. A line has `reason`, `detail`, and fields that identify the row."""
    if not path.is_file():  # opening a FIFO would block
        return
    try:
        with path.open("rb") as lines:
            for line in lines:
                reject = json.loads(line)
                kept = examples.get(reject.pop("reason"))
                if kept is not None and len(kept) < EXAMPLES:
                    detail = _cut(reject.pop("detail"))
                    kept.append({**{name: _cut(value) for name, value in reject.items()}, "detail": detail})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # validation reports a missing or changed file


def _cut(value: Any) -> Any:
    return visible_line(value, EXAMPLE_CHARACTERS) if isinstance(value, str) else value
