"""Ranges of documents as on disk, for a family's checks; findings by document and offset.

In: arrays of whole documents of one split of one shard. Out: findings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.findings import Finding


@dataclass(frozen=True, kw_only=True)
class DiskRun:
    """Consecutive documents in one split of one shard; `first`: the number in the file of the first document."""

    split: str
    shard: int
    first: int

    def finding(self, check: str, message: str, number: int, offset: int | None = None) -> Finding:
        """A finding about document `number` of the run, counted from 0."""
        return Finding(
            check=check,
            message=message,
            split=self.split,
            shard=self.shard,
            sequence=self.first + number,
            offset=offset,
        )


@dataclass(frozen=True, kw_only=True)
class DiskDocuments(DiskRun):
    """N whole documents as on disk. `lengths` int32 [N]; `tokens` int32 [T]; `lossmask` uint8 [T], label-aligned."""

    lengths: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    lossmask: npt.NDArray[np.uint8]

    def at(self, check: str, message: str, positions: npt.NDArray[np.int64]) -> Iterator[Finding]:
        """One finding for each flat position, as sequence and offset."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        for position in positions.tolist():
            document = int(np.searchsorted(ends, position, side="right"))
            yield self.finding(check, message, document, position - int(ends[document] - self.lengths[document]))

    @property
    def spans(self) -> npt.NDArray[np.uint8]:
        """The span of each label, uint8 [T]; in a dataset without spans, 1 for trained labels."""
        return (self.lossmask > 0).astype(np.uint8)

    @property
    def last(self) -> npt.NDArray[np.int64]:
        """The position of each document's last token, int64 [N]."""
        return np.cumsum(self.lengths, dtype=np.int64) - 1

    def check_tokens(self, content: Content) -> Iterator[Finding]:
        """Checks that each document ends in EOD, ids are in the vocabulary, and the loss mask is 0 or 1."""
        eod, vocab_size, last = content.tokenizer.eod, content.tokenizer.vocab_size, self.last
        yield from self.at("eod", "the document does not end in EOD", last[self.tokens[last] != eod])
        outside = np.flatnonzero(self.tokens.view(np.uint32) >= vocab_size)  # a negative id is above all
        yield from self.at("ids", f"a token id outside 0 … {vocab_size - 1}", outside)
        yield from self.at("values", "a loss mask value other than 0 or 1", np.flatnonzero(self.lossmask > 1))

    def inner_eods(self, eod: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """EODs that neither begin nor end a document: their positions and their documents, int64 [E] each.

        A template may begin a text with that token, or write it behind the last message.
        """
        last = self.last
        at = np.flatnonzero(self.tokens == eod)
        number = np.searchsorted(last, at)
        inside = (at > (last - self.lengths + 1)[number]) & (at < last[number] - 1)
        return at[inside], number[inside]

    def check_labels(self, learned: str = "learned") -> Iterator[Finding]:
        """Checks that a document's last position is not trained, nor the position before it, whose label is the EOD.

        `learned`: the family's word for "trained" in messages.
        """

        def labelled(at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            return at[(self.lossmask[at] > 0) | (spans[at] > 0)]

        last, spans = self.last, self.spans
        yield from self.at("shift", "the last position of a document has no label to train", labelled(last))
        yield from self.at("eod", f"the EOD is {learned}", labelled(last[self.lengths > 1] - 1))

    def check_trained(self, message: str) -> Iterator[Finding]:
        """Checks that each document has a trained token."""
        most = np.maximum.reduceat(self.lossmask, self.last - self.lengths + 1)
        for at in np.flatnonzero(most == 0).tolist():
            yield self.finding("span", message, at)

    def counted(self, span_names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """The expected row columns, computed from the arrays: number, tokens, and the labels of each span."""
        return {
            "sequence": np.arange(self.first, self.first + self.lengths.size),
            "tokens": self.lengths,
            **{
                f"{name}_tokens": tokens for name, tokens in zip(span_names, self._span_tokens(span_names), strict=True)
            },
        }

    def _span_tokens(self, span_names: Sequence[str]) -> list[npt.NDArray[np.int64]]:
        """The number of tokens of each document in each span: int64 [N] for each name.

        Interpolates the cumulative count at each document's end: between two changes of the span, the count grows by
        one per token, or not at all.
        """
        turns = np.concatenate([[0], np.flatnonzero(self.spans[1:] != self.spans[:-1]) + 1, [self.spans.size]])
        sizes, values = np.diff(turns), self.spans[turns[:-1]]
        ends = np.cumsum(self.lengths, dtype=np.int64)
        counts = []
        for value in range(len(span_names)):
            before = np.concatenate([[0], np.cumsum(sizes * (values == value))])
            counts.append(np.diff(np.interp(ends, turns, before).round().astype(np.int64), prepend=0))
        return counts

    def check_rows(self, rows: pa.Table, expected: Mapping[str, npt.NDArray[Any]]) -> Iterator[Finding]:
        """Checks columns of the rows of these documents against the expected values, [N] each."""
        for name, values in expected.items():
            column = rows.column(name).to_numpy()
            for at in np.flatnonzero(column != values).tolist():
                yield self.finding("rows", f"{name} is {column[at]}, the files say {values[at]}", at)

    def check_order(self, rows: pa.Table, noun: str) -> Iterator[Finding]:
        """Checks that each document is of a later row than the one before it. `noun`: what the rows are."""
        for at in np.flatnonzero(np.diff(rows.column("row").to_numpy()) <= 0).tolist():
            yield self.finding("rows", f"the documents do not follow the order of the {noun}", at + 1)

    def check_weights(self, rows: pa.Table) -> Iterator[Finding]:
        weights = rows.column("weight").to_numpy()
        for at in np.flatnonzero(~(weights >= 0) | ~np.isfinite(weights)).tolist():
            yield self.finding("weight", f"the weight {weights[at]} is not a number of 0 or more", at)

    def check_split(self, ids: pa.ChunkedArray, digests: npt.NDArray[np.uint64], content: Content) -> Iterator[Finding]:
        """Checks the split of each document by the split rule and its id's digest."""
        assert content.split is not None, "the schema demands it of these families"
        threshold = int(Decimal(str(content.split.valid_fraction)) * 2**64)
        valid = digests < threshold if threshold < 2**64 else np.ones(digests.size, dtype=np.bool_)
        for at in np.flatnonzero(valid != (self.split == "valid")).tolist():
            wanted = "valid" if valid[at] else "train"
            yield self.finding("split", f"{ids[at].as_py()!r} belongs to {wanted}", at)


@dataclass(frozen=True, kw_only=True)
class SpanDocuments(DiskDocuments):
    """`DiskDocuments` with `span` uint8 [T], label-aligned."""

    span: npt.NDArray[np.uint8]

    @property
    def spans(self) -> npt.NDArray[np.uint8]:
        return self.span

    def check_labels(self, learned: str = "learned") -> Iterator[Finding]:
        """Also checks that the loss mask is 1 exactly where there is a span."""
        different = np.flatnonzero((self.span > 0) != (self.lossmask > 0))
        yield from self.at("mask_is_span", "loss mask and span disagree", different)
        yield from super().check_labels(learned)


def token_digests(tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """The first 64 bits of sha256 of each document's tokens, uint64 [N]: equal for documents with the same tokens.

    `tokens` int32 [T] of N documents; `lengths` int32 [N]. Among 80 million different documents, the probability of a
    collision is 2e-4. sha256, because processors accelerate it: 3 ns per token; blake2b takes 5 ns.
    """
    stored = memoryview(np.ascontiguousarray(tokens, dtype="<i4")).cast("B")  # type: ignore[arg-type]  # a buffer
    ends = (4 * np.cumsum(lengths, dtype=np.int64)).tolist()
    parts = zip([0, *ends], ends, strict=False)
    joined = b"".join([sha256(stored[start:end]).digest()[:8] for start, end in parts])
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def digests_of(ids: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint64]:
    """The input of the split rule: the 64-bit blake2b of each id, as big-endian numbers, uint64 [N].

    Rows with equal ids have equal digests, so the rule assigns them to the same split.
    """
    joined = b"".join([blake2b(name or b"", digest_size=8).digest() for name in ids.cast(pa.binary()).to_pylist()])
    return np.frombuffer(joined, dtype=">u8").astype(np.uint64)
