"""The documents that a teacher finds strangest: those whose labels it expects least.

In: finished signals and their dataset. Out: documents by the mean log-probability of their labels, the lowest first.
Rows that are broken (text cut, garbled, of another language or question) are among the first. Only what is stored of
the labels themselves is read.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spanloom.errors import DatasetError
from spanloom.megatron.reader import open_shard_reader
from spanloom.teacher.coding import decode_logprobs
from spanloom.teacher.format import OWN, prefixes
from spanloom.teacher.reader import TeacherSignals, open_teacher

_READ = 1 << 22
"""Labels that are read at once."""


@dataclass(frozen=True, kw_only=True)
class RankedDocument:
    """A document. `mean`: of the log-probabilities of its labels; `lowest`: the lowest of them, `at` its label."""

    split: str
    shard: int
    sequence: int
    labels: int
    mean: float
    lowest: float
    at: int


def strangest(folder: Path, root: Path, count: int, *, at_least: int = 1) -> list[RankedDocument]:
    """At most `count` documents with `at_least` labels or more, the strangest first.

    Raises ArtifactError for damaged signals, DatasetError for those of another dataset, and for imported ones.
    """
    ranked = _ranked(open_teacher(folder, root), at_least)
    return heapq.nsmallest(count, ranked, key=lambda each: (each.mean, each.split, each.shard, each.sequence))


def _ranked(signals: TeacherSignals, at_least: int) -> Iterator[RankedDocument]:
    if OWN not in signals.content.arrays:
        raise DatasetError(
            "these signals were imported, and have not the log-probability of every label",
            where=str(signals.folder),
            remedy="`spanloom teacher score` stores it",
        )
    dtype = signals.content.arrays[OWN]
    for (split, shard), entry in signals.shards.items():
        if not entry.positions:
            continue
        prefix = prefixes(signals.folder, split, shard, {OWN: dtype})[OWN]
        for first, lengths, flat in open_shard_reader({OWN: (prefix, dtype)}).batches(_READ):
            own = decode_logprobs(flat[OWN])
            ends = np.cumsum(lengths, dtype=np.int64)
            for number, (begin, end) in enumerate(zip(ends - lengths, ends, strict=True)):
                if end - begin >= max(1, at_least):
                    values = own[begin:end]
                    at = int(values.argmin())
                    yield RankedDocument(
                        split=split,
                        shard=shard,
                        sequence=first + number,
                        labels=int(end - begin),
                        mean=float(values.mean(dtype=np.float64)),
                        lowest=float(values[at]),
                        at=at,
                    )
