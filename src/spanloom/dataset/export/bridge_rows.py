"""Documents → rows of Megatron-Bridge's packed Parquet, which `GPTSFTPackedParquetDataset` reads.

In: documents as on disk, tokens and label-aligned loss mask; the tokens per row. Out: rows of whole documents.

    documents    [a b c EOD] [d e EOD]     lossmask [0 1 1 0] [1 1 0]
    input_ids    [a b c EOD d e EOD]       seq_start_id [0 4]
    loss_mask    [0 1 1 0 1 1 0]           position t is about token t + 1

The mask is unchanged from disk: Bridge's own packing shifts the mask by one before writing, its reader does not.

Bridge splits a row into parts at `seq_start_id`. Inputs are all tokens of a part except the last, labels all except the
first. A part is a document; in packed blocks, it is a conversation, which ends after an EOD whose next token has no
loss. So the first token of a part, which is never a label, is never trained. Other documents are never cut: if EOD ends
each answer, a cut would remove the history. Padding at the end of a block is left out: Bridge pads by itself.

Sources: `data/packing/parquet.py` and `gpt_sft.py` of NVIDIA-NeMo/Megatron-Bridge.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.errors import DatasetError
from spanloom.supervision import Lengths

SCHEMA = pa.schema(
    [
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.int8()), nullable=False),
        pa.field("seq_start_id", pa.list_(pa.int32()), nullable=False),
    ]
)
MEANINGS = {
    "input_ids": "the tokens of a row: whole documents, one after the other",
    "loss_mask": "1 where the **next** token is trained, as Megatron-Bridge reads it",
    "seq_start_id": "where each part of the row begins: a document, or a conversation of a block",
}

OPEN_ROWS = 64
"""Rows that are open at once: a document goes into the first row with room for it."""

TOKENS_AT_ONCE = 1 << 18
"""Tokens of a row group: Bridge reads a whole row group for each sample."""


@dataclass
class RowCounts:
    """Counts of packing the documents of a split. Bridge calls `parts` sequences."""

    documents: int = 0
    rows: int = 0
    tokens: int = 0
    trained: int = 0
    padding_left_out: int = 0
    dropped_documents: int = 0
    dropped_tokens: int = 0
    longest_part: int = 0
    most_parts: int = 0
    parts: int = 0
    shortest_row: int = 0

    def metadata(self, sequence_length: int) -> dict[str, Any]:
        """The metadata of Bridge's own packing, for a split with rows: Bridge's reader needs them with
        `pad_cu_seqlens`."""
        return {
            "dataset_max_seqlen": self.longest_part,
            "max_samples_per_bin": self.most_parts,
            "packing_factor": round(self.parts / self.rows, 2),
            "packing_efficiency": round(self.tokens / self.rows / sequence_length * 100, 2),
            "pack_size": sequence_length,
            "min_packed_seqlen": self.shortest_row,
        }


@dataclass(kw_only=True, eq=False)
class _Row:
    """A row that is being filled."""

    tokens: list[npt.NDArray[np.int32]] = field(default_factory=list)
    loss_mask: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    starts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    size: int = 0


class RowPacker:
    """Packs the documents of one split, in order, by first fit: the same documents give the same rows.

    Memory holds `OPEN_ROWS` rows, and the rows of the current row group.
    """

    def __init__(self, *, sequence_length: int, cut_behind: int | None, drop_too_long: bool, counts: RowCounts) -> None:
        """`cut_behind`: the EOD of packed blocks, which hold several conversations. None: each document is a part."""
        self._length, self._cut_behind, self._drop = sequence_length, cut_behind, drop_too_long
        self._counts = counts
        self._open: list[_Row] = []
        self._done: list[_Row] = []
        self._waiting = 0

    def add(
        self, lengths: Lengths, arrays: dict[str, npt.NDArray[Any]], padding: npt.NDArray[np.int64] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Adds documents, and yields the finished row groups. `lengths` int32 [N], the arrays flat [T], `padding` int64
        [N]: tokens at the end of each document that are left out.

        Raises DatasetError for a document longer than a row, unless such documents are dropped and counted.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        for number, (end, size) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
            left_out = 0 if padding is None else int(padding[number])
            own = slice(end - size, end - left_out)
            self._counts.documents += 1
            self._counts.padding_left_out += left_out
            if size - left_out > self._length:
                self._too_long(size - left_out)
                continue
            self._place(arrays["tokens"][own], arrays["lossmask"][own])
            if self._waiting >= TOKENS_AT_ONCE:
                yield self._batch()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields the remaining rows."""
        for row in self._open:
            self._close(row)
        self._open = []
        if self._done:
            yield self._batch()

    def _too_long(self, tokens: int) -> None:
        if not self._drop:
            raise DatasetError(
                f"a document has {tokens:,} tokens, a row holds {self._length:,}",
                remedy="take a greater --sequence-length, or leave such documents out and count them: --too-long drop",
            )
        self._counts.dropped_documents += 1
        self._counts.dropped_tokens += tokens

    def _place(self, tokens: npt.NDArray[np.int32], loss_mask: npt.NDArray[np.uint8]) -> None:
        row = next((row for row in self._open if row.size + tokens.size <= self._length), None)
        if row is None:
            if len(self._open) == OPEN_ROWS:
                fullest = max(range(OPEN_ROWS), key=lambda number: self._open[number].size)
                self._close(self._open.pop(fullest))
            row = _Row()
            self._open.append(row)
        starts = np.zeros(1, dtype=np.int64)
        if self._cut_behind is not None:
            cuts = np.flatnonzero((tokens[:-1] == self._cut_behind) & (loss_mask[:-1] == 0)) + 1
            starts = np.concatenate([starts, cuts])
        row.starts.append(starts + row.size)
        row.tokens.append(tokens.copy())  # a view would keep the whole batch in memory
        row.loss_mask.append(loss_mask.copy())
        row.size += tokens.size
        if row.size == self._length:
            self._open.remove(row)
            self._close(row)

    def _close(self, row: _Row) -> None:
        self._done.append(row)
        self._waiting += row.size
        starts, counts = np.concatenate(row.starts), self._counts
        sizes = np.diff(starts, append=row.size)
        counts.rows += 1
        counts.tokens += row.size
        counts.trained += sum(int(np.count_nonzero(mask)) for mask in row.loss_mask)
        counts.parts += starts.size
        counts.most_parts = max(counts.most_parts, starts.size)
        counts.longest_part = max(counts.longest_part, int(sizes.max()))
        counts.shortest_row = min(counts.shortest_row or row.size, row.size)

    def _batch(self) -> pa.RecordBatch:
        rows, self._done, self._waiting = self._done, [], 0
        flat = (
            np.concatenate([part for row in rows for part in row.tokens]),
            np.concatenate([part for row in rows for part in row.loss_mask]).astype(np.int8),
            np.concatenate([part for row in rows for part in row.starts]).astype(np.int32),
        )
        sizes = [row.size for row in rows]
        parts = [sum(part.size for part in row.starts) for row in rows]
        arrays = [
            pa.ListArray.from_arrays(
                pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)), pa.array(values), type=kind.type
            )
            for lengths, values, kind in zip((sizes, sizes, parts), flat, SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
