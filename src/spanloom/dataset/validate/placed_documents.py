"""Documents by their source row, to be compared with the rows of the source.

In: a dataset whose row tables have a column `row`. Out: the place of each document, and the columns of its row; read in
step with the source, so that memory does not grow with the number of rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import merge
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.root.layout import array_prefix, rows_file
from spanloom.dataset.rows.table import row_batches
from spanloom.findings import Finding, Report
from spanloom.megatron.readers import OpenIndexed
from spanloom.supervision import shift_to_tokens

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PlacedDocument:
    """A document and its row of the row table. `sequence`: its position in the file, not the number in its row.

    `open_with`: the reader of arrays; it should keep what it has opened, since an index is read as a whole.
    """

    split: str
    shard: int
    sequence: int
    row: Mapping[str, Any]
    open_with: OpenIndexed

    def finding(self, check: str, message: str, offset: int | None = None) -> Finding:
        return Finding(
            check=check, message=message, split=self.split, shard=self.shard, sequence=self.sequence, offset=offset
        )

    def read(self, root: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]] | None:
        """Arrays of the document by name, [T] each; None if one of them has no such document."""
        opened = {name: self.open_with(array_prefix(root, self.split, self.shard, name)) for name in names}
        if not all(0 <= self.sequence < len(array) for array in opened.values()):
            return None
        return {name: array.get(self.sequence) for name, array in opened.items()}

    def differences(
        self, root: Path, origin: str, tokens: Sequence[int], **labels: Sequence[Sequence[int]]
    ) -> Iterator[Finding]:
        """Compares the document on disk with the expected `tokens`, [T].

        `labels`: name of an array → all of its valid values, token-aligned, [T] each; `origin`: of what, in messages.
        """
        yield from self.differences_in([range(len(tokens))], root, origin, tokens, labels)

    def differences_in(
        self,
        known: Sequence[range],
        root: Path,
        origin: str,
        tokens: Sequence[int],
        labels: Mapping[str, Sequence[Sequence[int]]],
    ) -> Iterator[Finding]:
        """The same, where only the labels of the tokens `known` are compared."""
        arrays = self.read(root, ("tokens", *labels))
        if arrays is None:  # in the report already
            return
        stored = arrays["tokens"].tolist()
        if stored != tokens:
            message = f"the tokens are not those of {origin}"
            yield self.finding("source", message, first_difference(stored, tokens))
            return
        for name, ways in labels.items():
            label = arrays[name].astype(np.uint8)
            aligned = shift_to_tokens(label, np.array([label.size], dtype=np.int32)).tolist()
            for own in known:
                part = aligned[own.start : own.stop]
                wanted = [way[own.start : own.stop] for way in ways]
                if part not in wanted:
                    message = f"the {_LABELS[name]} of {origin}"
                    differs = max(first_difference(part, way) for way in wanted)
                    yield self.finding("source", message, own.start + differs)
                    break


_LABELS = {"span": "spans are not those", "lossmask": "mask is not that"}


AT_ONCE, TOKENS_AT_ONCE = 256, 1 << 18
"""Sequences that are read at once where they are read in order, and about how many items they have at most."""


class _InOrder:
    """An opened IndexedDataset whose sequences are mostly read in order: each read opens the file, so that more and
    more of those that follow are read with one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._lengths = dataset, np.asarray(dataset.sequence_lengths, np.int64)
        self._held = np.empty(0, dataset.index.dtype)
        self._edges = [0]  # of the sequences in `_held`
        self._first, self._next = 0, 1

    def __len__(self) -> int:
        return len(self._lengths)

    def get(self, sequence: int) -> npt.NDArray[Any]:
        at = sequence - self._first
        held = len(self._edges) - 1
        if not 0 <= at < held:
            self._next = min(2 * self._next, AT_ONCE) if at == held else 1
            ends = np.cumsum(self._lengths[sequence : sequence + self._next])
            self._first, at = sequence, 0
            self._edges = [0, *ends[: max(1, int((ends <= TOKENS_AT_ONCE).sum()))].tolist()]
            self._held = self._dataset.bin_reader.read(  # `dataset[first:last]` reads it too, and splits it slowly
                dtype=self._dataset.index.dtype,
                count=self._edges[-1],
                offset=int(self._dataset.index.sequence_pointers[sequence]),
            )
        return self._held[self._edges[at] : self._edges[at + 1]]


def reading_in_order(open_with: OpenIndexed) -> OpenIndexed:
    """Opens each IndexedDataset once, to be read mostly in order of its sequences, by one thread."""
    return cache(lambda prefix: _InOrder(open_with(prefix)))


def documents_by_row(
    whole: WholeCheck, shard: ShardEntry, columns: pa.Schema, rows: range | Sequence[int] | None = None
) -> Iterator[PlacedDocument]:
    """The documents of a shard by ascending `row`, of all splits. `columns`: of the row tables, including `row`.
    `rows`: the source rows whose documents are wanted; None: all.

    The tables are read side by side, a batch of each at a time. Raises ArtifactError if one cannot be read.
    """

    open_with = reading_in_order(whole.open_with)

    def documents(split: str) -> Iterator[PlacedDocument]:
        first = 0
        for batch in row_batches(rows_file(whole.root, split, shard.shard), columns):
            numbers = batch.column("row").to_numpy()
            chosen = np.arange(numbers.size)
            if isinstance(rows, range):
                chosen = np.flatnonzero((numbers >= rows.start) & (numbers < rows.stop))
            elif rows is not None:
                chosen = np.flatnonzero(np.isin(numbers, rows))
            for at, row in zip(chosen.tolist(), batch.take(pa.array(chosen)).to_pylist(), strict=True):
                place = {"split": split, "shard": shard.shard, "sequence": first + at}
                yield PlacedDocument(**place, row=row, open_with=open_with)
            first += batch.num_rows

    return merge(*map(documents, whole.readable_splits(shard)), key=lambda document: document.row["row"])


def with_documents(
    report: Report, source: Iterable[T], documents: Iterator[PlacedDocument]
) -> Iterator[tuple[int, T, PlacedDocument | None]]:
    """Each row of a source, by number from 0, with its document; None where there is none. `documents`: by row.

    Reports documents without a row. Rows 0 1 2 3 and documents of rows 1 1 3 5: None, the first, None, the third; the
    second and the last are reported.
    """
    waiting = next(documents, None)
    row = -1
    for row, value in enumerate(source):
        document = None
        while waiting is not None and waiting.row["row"] <= row:
            if document is None and waiting.row["row"] == row:
                document = waiting
            else:
                report.add([waiting.finding("source", _NO_ROW)])
            waiting = next(documents, None)
        yield row, value, document
    while waiting is not None:
        report.add([waiting.finding("source", _NO_ROW)])
        waiting = next(documents, None)


_NO_ROW = "the source has no row for this document"


def drawn_rows(rows: int, deep: int) -> set[int]:
    """The numbers of `deep` rows, evenly spaced over a source of `rows` rows; all rows if there are fewer."""
    return set(np.linspace(0, rows - 1, min(deep, rows), dtype=np.int64).tolist()) if rows and deep else set()


def first_difference(values: Sequence[int], wanted: Sequence[int]) -> int:
    """The first index at which two sequences differ."""
    pairs = enumerate(zip(values, wanted, strict=False))
    return next((at for at, (value, other) in pairs if value != other), min(len(values), len(wanted)))
