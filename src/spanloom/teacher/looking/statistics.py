"""What a teacher thinks of groups of labels: by span, split, shard, and the columns of the row table.

In: finished signals and their dataset. Out: means for each group. Memory depends on the number of groups and of
documents in a shard (4 bytes each), not of labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import open_arrays, rows_file
from spanloom.dataset.root.opened import content_at
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.statistics import PLACES, Key, Tally, check_groups, groups
from spanloom.megatron.reader import open_shard_reader
from spanloom.supervision import Lengths
from spanloom.teacher.coding import decode_ids, decode_logprobs
from spanloom.teacher.format import OF_TOP, OWN, REST, TOP_HIGH, TOP_LOGP, TOP_LOW, prefixes
from spanloom.teacher.reader import TeacherSignals, open_teacher

SPAN = "span"
"""The grouping of labels, beside those of documents."""

_READ = 1 << 20
"""Tokens that are read at once."""

Flat = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class GroupScores:
    """The scored labels of one group.

    mean       of the log-probabilities of the labels; None for imported signals, which have not all
    entropy    mean, in nats, of k + 1 classes: the top k, and the rest as one; at most that of the whole vocabulary
    agreement  share of labels that are the teacher's most probable token
    """

    labels: int
    mean: float | None
    entropy: float
    agreement: float


def group_scores(folder: Path, root: Path, by: Sequence[str], columns: Sequence[str]) -> dict[Key, GroupScores]:
    """The scores of each group that has scored labels. `by`: names of SPAN, PLACES and `columns`, those of the row
    table that documents may be grouped by; empty: all labels in one group.

    Raises SpanloomError for an unknown grouping, ArtifactError for damaged signals, DatasetError for those of another
    dataset.
    """
    check_groups(by, (SPAN, *PLACES, *columns))
    signals, dataset = open_teacher(folder, root), content_at(root)
    names = dataset.span_names
    of_documents = tuple(name for name in by if name != SPAN)
    tally = Tally(dict.fromkeys(("labels", "mean", "entropy", "agreement"), len(names)), np.float64)
    for split, shard in signals.shards:
        if signals.shards[split, shard].positions:
            lines = _lines(root, tally, of_documents, columns, split, shard)
            for documents, spans, values in _labels(signals, root, dataset, split, shard):
                for name, each in values.items():
                    np.add.at(tally.sums[name], (lines[documents], spans), each)
    found: dict[Key, GroupScores] = {}
    for key, line in tally.ordered():
        sums = {name: each[line] for name, each in tally.sums.items()}
        if SPAN not in by:
            sums = {name: each.sum(keepdims=True) for name, each in sums.items()}
        for span in np.flatnonzero(sums["labels"]).tolist():
            parts = iter(key)
            labels = sums["labels"][span]
            means = {name: float(each[span] / labels) for name, each in sums.items() if name != "labels"}
            known = means if signals.content.own else {**means, "mean": None}
            found[tuple(names[span] if name == SPAN else next(parts) for name in by)] = GroupScores(
                labels=int(labels), **known
            )
    return found


def _lines(
    root: Path, tally: Tally, by: tuple[str, ...], columns: Sequence[str], split: str, shard: int
) -> npt.NDArray[np.int32]:
    """The line in the tally of each document of one split of one shard: int32 [N]."""
    schema = pa.schema([pa.field("sequence", pa.int64()), *(pa.field(name, pa.string()) for name in columns)])
    batches = row_batches(rows_file(root, split, shard), schema)
    return np.concatenate([tally.lines(*groups(batch, by, split, shard)).astype(np.int32) for batch in batches])


def _labels(
    signals: TeacherSignals, root: Path, dataset: Content, split: str, shard: int
) -> Iterator[tuple[npt.NDArray[np.int64], Flat, dict[str, Flat]]]:
    """Scored labels of one split of one shard, many at once: the document and the span of each, int [P]; and what is
    summed, each float64 [P]."""
    k, arrays = signals.content.k, signals.content.arrays
    places = prefixes(signals.folder, split, shard, arrays)
    tops, ones = (
        open_shard_reader({name: (places[name], arrays[name]) for name in arrays if (name in OF_TOP) == top})
        for top in (True, False)
    )
    held = {name: dtype for name, dtype in dataset.arrays.items() if name in ("tokens", "lossmask", "span")}
    for first, lengths, flat in open_arrays(root, split, shard, held).batches(_READ):
        spans = flat.get("span", flat["lossmask"])
        documents, positions = _scored(signals, flat["lossmask"], spans, lengths)
        counts = np.bincount(documents, minlength=lengths.size)
        entries = ones.lengths(first, lengths.size)
        if (other := (entries != 0) & (entries != counts)).any():
            at = int(other.argmax())
            raise signals.other_labels((split, shard, first + at), int(counts[at]), int(entries[at]))
        stored = {**tops.read(first, entries * np.int32(k)), **ones.read(first, entries)}
        has = entries[documents] > 0
        documents, positions = documents[has], positions[has]
        ids = decode_ids(stored[TOP_LOW], stored.get(TOP_HIGH)).reshape(-1, k)
        classes = np.column_stack([decode_logprobs(stored[TOP_LOGP]).reshape(-1, k), decode_logprobs(stored[REST])])
        yield (
            first + documents,
            spans[positions],
            {
                "labels": np.ones(positions.size),
                "mean": decode_logprobs(stored[OWN]).astype(np.float64) if OWN in stored else np.full(len(ids), np.nan),
                "entropy": -(np.exp(classes.astype(np.float64)) * classes).sum(axis=1),
                "agreement": (ids[:, 0] == flat["tokens"][positions + 1]).astype(np.float64),
            },
        )


def _scored(
    signals: TeacherSignals, lossmask: Flat, spans: Flat, lengths: Lengths
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The document and the position of each scored label of documents end to end: int64 [P] each."""
    ends = np.cumsum(lengths, dtype=np.int64)
    positions = np.concatenate(
        [
            begin + signals.scored(lossmask[begin:end], spans[begin:end])
            for begin, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        ]
    )
    return np.searchsorted(ends, positions, side="right"), positions
