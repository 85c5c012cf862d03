"""Counts over a dataset, streamed from its `shard_NN_rows.parquet` files.

In: the root, the manifest's `content`, the columns to group by, the spans to compare. Out: `Counts` for each group.
Memory use depends on the number of groups, not of documents. Validation checks the rows against the tokens on disk, so
counts of the rows are counts of the dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.table import row_batches, rows_schema
from spanloom.errors import SpanloomError

PLACES = ("split", "shard")
"""The groupings that every dataset has; its family adds columns."""

SEQUENCE_LENGTHS = (2048, 4096, 8192, 16384)
"""Training sequence lengths for which the number of documents that fit whole is counted."""

OTHERS = "(others)"
GROUPS_KEPT = 1000
"""Distinct values with a group of their own; later values are counted together, which bounds the memory."""

FINE = 64
LENGTH_EDGES: npt.NDArray[np.int64] = np.unique(
    np.concatenate([np.arange(1, FINE + 1), *(2**octave * np.arange(FINE, 2 * FINE + 1) for octave in range(25))])
)
"""Upper edges of the length bins: exact up to 128 tokens, then 64 per octave. Powers of two are edges, so the number of
documents of at most 2,048 tokens is exact; a quantile is rounded up by at most 1/64."""

RATIO_OCTAVES, RATIO_FINE = 8, 2
RATIO_EDGES: npt.NDArray[np.float64] = 2.0 ** (
    np.arange(-RATIO_OCTAVES * RATIO_FINE, RATIO_OCTAVES * RATIO_FINE + 1) / RATIO_FINE
)
"""Upper edges of the bins of a ratio, from 1:256 to 256:1; the last bin counts everything above."""

Key = tuple[str | None, ...]
Counted = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The sums over one group of documents.

    span_tokens  name → labels of that span, as on disk; the first span is context, all others are trained
    lengths      int64 [len(LENGTH_EDGES)], documents per bin
    ratios       int64 [len(RATIO_EDGES) + 1], documents with both spans of the ratio, per bin
    """

    sequences: int
    span_tokens: dict[str, int]
    longest: int
    lengths: npt.NDArray[np.int64]
    ratios: npt.NDArray[np.int64]
    without: dict[str, int]
    """name of a trained span → documents that have no label of it."""

    @property
    def tokens(self) -> int:
        return sum(self.span_tokens.values())

    @property
    def trained(self) -> int:
        return sum(list(self.span_tokens.values())[1:])

    @property
    def mean_length(self) -> float | None:
        return self.tokens / self.sequences if self.sequences else None

    def fitting(self, limit: int) -> int:
        """The number of documents of at most `limit` tokens; exact if `limit` is a power of two."""
        return int(self.lengths[: np.searchsorted(LENGTH_EDGES, limit, side="right")].sum())

    def quantile(self, share: float) -> int | None:
        """The length that `share` of the documents do not exceed, rounded up to the edge of its bin; None without
        documents."""
        if not self.sequences:
            return None
        at = int(np.searchsorted(np.cumsum(self.lengths), share * self.sequences, side="left"))
        return min(int(LENGTH_EDGES[at]), self.longest)


def collect(
    root: Path,
    content: Content,
    groupings: Sequence[tuple[str, ...]],
    *,
    columns: Sequence[str] = (),
    ratio: tuple[str, str] | None = None,
) -> dict[tuple[str, ...], dict[Key, Counts]]:
    """Reads every row once and counts it in each of the `groupings`, such as `("split", "language")` or `()` for all.

    `columns`: the family's group columns of the row table; a missing value is None. `ratio`: the two spans to compare.
    Raises SpanloomError for an unknown grouping, ArtifactError if a row table is missing or invalid.
    """
    for by in groupings:
        check_groups(by, (*PLACES, *columns))
    spans = content.span_names
    tallies = {by: _empty(spans) for by in groupings}
    for split, shard, batch in _row_batches(root, content, columns):
        values = {name: batch.column(name).to_numpy() for name in (*(f"{span}_tokens" for span in spans), "tokens")}
        counts = np.stack([values[f"{span}_tokens"] for span in spans], axis=1)
        ratio_bin = _ratio_bins(values, ratio)
        for by, tally in tallies.items():
            line = tally.lines(*groups(batch, by, split, shard))
            _add(tally, line, counts, values["tokens"], ratio_bin)
    return {by: _counts(tally, spans) for by, tally in tallies.items()}


def check_groups(by: Sequence[str], known: Sequence[str]) -> None:
    """Raises SpanloomError for a grouping that is not known."""
    if unknown := [name for name in by if name not in known]:
        raise SpanloomError(f"cannot group by {unknown[0]!r}", remedy=f"group by {', '.join(known)}")


def _row_batches(root: Path, content: Content, columns: Sequence[str]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    counts_alone = rows_schema(pa.schema([]), content.span_names)
    wanted = pa.schema([*(pa.field(name, pa.string()) for name in columns), *counts_alone])
    for shard in content.shards:
        for split, counts in shard.splits.items():
            if counts.sequences:
                for batch in row_batches(rows_file(root, split, shard.shard), wanted):
                    yield split, shard.shard, batch


def _ratio_bins(values: Mapping[str, Counted], ratio: tuple[str, str] | None) -> Counted:
    """The ratio bin of each of N documents, -1 for a document without both spans. `values`: int64 [N] each."""
    bins = np.full(values["tokens"].size, -1, dtype=np.int64)
    if ratio is not None:
        above, below = (values[f"{span}_tokens"] for span in ratio)
        both = (above > 0) & (below > 0)
        bins[both] = np.searchsorted(RATIO_EDGES, above[both] / below[both], side="left")
    return bins


def groups(
    batch: pa.RecordBatch, by: tuple[str, ...], split: str, shard: int
) -> tuple[npt.NDArray[np.int64], list[Key]]:
    """The group of each row: `codes` int64 [N], which index the distinct `keys`.

    by (split, language), rows de en de of train  →  codes [0 1 0], keys [(train, de), (train, en)]
    """
    fixed = {"split": split, "shard": f"{shard:02d}"}
    columns: list[tuple[npt.NDArray[np.int64], list[str | None]]] = []
    for name in by:
        if name in fixed or name not in batch.schema.names:
            columns.append((np.zeros(batch.num_rows, dtype=np.int64), [fixed.get(name)]))
        else:
            encoded = batch.column(name).dictionary_encode(null_encoding="encode")
            columns.append((encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()))
    combined = np.zeros(batch.num_rows, dtype=np.int64)
    for codes, names in columns:
        combined = combined * max(len(names), 1) + codes
    distinct, inverse = np.unique(combined, return_inverse=True)
    keys: list[Key] = []
    for code in distinct.tolist():
        parts: list[str | None] = []
        for _, names in reversed(columns):
            code, at = divmod(code, max(len(names), 1))
            parts.append(names[at])
        keys.append(tuple(reversed(parts)))
    return inverse.astype(np.int64), keys


class Tally:
    """Running sums by group: `sums` maps a name to an array [lines, width], a line for each group. Arrays grow."""

    def __init__(self, widths: Mapping[str, int], dtype: npt.DTypeLike = np.int64) -> None:
        self._lines: dict[Key, int] = {}
        self.sums: dict[str, npt.NDArray[Any]] = {name: np.zeros((0, width), dtype) for name, width in widths.items()}

    def lines(self, codes: Counted, keys: list[Key]) -> Counted:
        """The lines of N rows: `codes` int64 [N] index `keys`. Groups after the first GROUPS_KEPT share a line."""
        return np.array([self._line(key) for key in keys], dtype=np.int64)[codes]

    def _line(self, key: Key) -> int:
        if key not in self._lines and len(self._lines) >= GROUPS_KEPT:
            key = (OTHERS,) * len(key)
        if key not in self._lines:
            self._lines[key] = len(self._lines)
            if len(self._lines) > len(next(iter(self.sums.values()))):
                more = max(8, len(self._lines))
                self.sums = {name: np.pad(sums, ((0, more), (0, 0))) for name, sums in self.sums.items()}
        return self._lines[key]

    def ordered(self) -> list[tuple[Key, int]]:
        """The groups and their lines, in the order of their keys; a missing value comes last."""
        return sorted(self._lines.items(), key=lambda item: [(part is None, part or "") for part in item[0]])


def _empty(spans: Sequence[str]) -> Tally:
    return Tally(
        {
            "sequences": 1,
            "spans": len(spans),
            "without": len(spans),
            "longest": 1,
            "lengths": LENGTH_EDGES.size + 1,
            "ratios": RATIO_EDGES.size + 1,
        }
    )


def _add(tally: Tally, line: Counted, spans: Counted, tokens: Counted, ratio_bin: Counted) -> None:
    """Adds N documents: `line` [N] of each, `spans` [N, S] labels, `tokens` [N], `ratio_bin` [N]; int64."""
    sums = tally.sums
    np.add.at(sums["sequences"][:, 0], line, 1)
    np.add.at(sums["spans"], line, spans)
    np.add.at(sums["without"], line, (spans == 0).astype(np.int64))
    np.maximum.at(sums["longest"][:, 0], line, tokens)
    np.add.at(sums["lengths"], (line, np.searchsorted(LENGTH_EDGES, tokens, side="left")), 1)
    has = ratio_bin >= 0
    np.add.at(sums["ratios"], (line[has], ratio_bin[has]), 1)


def _counts(tally: Tally, spans: Sequence[str]) -> dict[Key, Counts]:
    sums = tally.sums
    return {
        key: Counts(
            sequences=int(sums["sequences"][line, 0]),
            span_tokens=dict(zip(spans, sums["spans"][line].tolist(), strict=True)),
            longest=int(sums["longest"][line, 0]),
            lengths=sums["lengths"][line, : LENGTH_EDGES.size].copy(),
            ratios=sums["ratios"][line].copy(),
            without=dict(list(zip(spans, sums["without"][line].tolist(), strict=True))[1:]),
        )
        for key, line in tally.ordered()
    }
