"""The documents of a dataset, and which of their labels are scored.

In: one split of one shard. Out: `ScoredDocument`s. Label-aligned, as on disk: position t is scored if `lossmask[t]`
is 1 and its span is one that is scored; its label is `tokens[t + 1]`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import open_arrays
from spanloom.supervision import Lengths, Tokens


@dataclass(frozen=True, kw_only=True)
class ScoredDocument:
    """A document up to its last scored label: `tokens` int32 [T]. `positions` int64 [P], ascending and below T, are
    scored; `labels` int32 [P]. `sequence`: its number in its split of the shard."""

    sequence: int
    tokens: Tokens
    positions: npt.NDArray[np.int64]
    labels: Tokens


def scored_documents(
    first: int, lengths: Lengths, arrays: dict[str, npt.NDArray[Any]], spans: frozenset[int] | None
) -> Iterator[ScoredDocument]:
    """The documents of a run of sequences that begins at `first`, as `ShardReader.batches` gives them. `spans`: the ids
    of those that are scored, None for all."""
    scored = arrays["lossmask"] > 0
    if spans is not None:
        scored &= np.isin(arrays["span"], sorted(spans))
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        positions = np.flatnonzero(scored[begin : end - 1])  # the last token has no label
        last = int(positions[-1]) + 1 if positions.size else 0
        tokens = arrays["tokens"][begin:end]
        yield ScoredDocument(
            sequence=first + number, tokens=tokens[:last], positions=positions, labels=tokens[positions + 1]
        )


def documents_of(
    root: Path, dataset: Content, split: str, shard: int, spans: frozenset[int] | None, tokens: int
) -> Iterator[list[ScoredDocument]]:
    """All documents of one split of one shard, in lists of about `tokens` tokens, which depend on the dataset alone."""
    names = ("tokens", "lossmask", "span")
    arrays = {name: dtype for name, dtype in dataset.arrays.items() if name in names}
    for first, lengths, flat in open_arrays(root, split, shard, arrays).batches(tokens):
        yield list(scored_documents(first, lengths, flat, spans))
