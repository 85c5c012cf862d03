"""Token documents and their supervision: which tokens carry loss, and which span of the answer each belongs to.

In: flat token arrays with one value of supervision per token. Out: the same arrays aligned to *labels*, for the disk.

Everything in memory and in intermediate artifacts is **token-aligned**: position t describes token t. Training reads
position t as "predict token t+1", so on disk the supervision is shifted left by one. Only `shift_to_labels` does this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ArtifactError

ALIGNMENT = "labels_shift_left_1"
"""Name of the on-disk alignment, recorded in every manifest: supervision[t] describes tokens[t + 1]."""

SPAN_CONTEXT = 0
"""The span that carries no loss, in every family. Each family defines and names its other spans."""

IGNORED = -100
"""The label that PyTorch's cross entropy ignores, and therefore every trainer."""

Tokens = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int32]

_DTYPES = {"tokens": np.int32, "loss_mask": np.uint8, "span_id": np.uint8, "lengths": np.int32}


@dataclass(frozen=True, kw_only=True)
class TokenDocuments:
    """N documents laid end to end, token-aligned.

    tokens     int32 [T]  token ids
    loss_mask  uint8 [T]  1 = trained
    span_id    uint8 [T]  0 = context; each family names its others
    lengths    int32 [N]  tokens per document, all ≥ 1, sum = T
    """

    tokens: Tokens
    loss_mask: Flags
    span_id: Flags
    lengths: Lengths

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1:
                raise ArtifactError(
                    f"{name} must be one-dimensional {np.dtype(dtype)}, got {array.dtype} {array.shape}"
                )
        if self.lengths.size and int(self.lengths.min()) < 1:
            raise ArtifactError("a document has no tokens")
        total = int(self.lengths.sum(dtype=np.int64))
        if not total == self.tokens.size == self.loss_mask.size == self.span_id.size:
            raise ArtifactError(
                f"lengths add up to {total} but there are {self.tokens.size} tokens, "
                f"{self.loss_mask.size} mask values and {self.span_id.size} span values"
            )

    def __len__(self) -> int:
        return self.lengths.size

    def between(self, first: int, last: int) -> "TokenDocuments":
        """Documents number `first` up to, not including, `last`, as views."""
        start = int(self.lengths[:first].sum(dtype=np.int64))
        end = start + int(self.lengths[first:last].sum(dtype=np.int64))
        return TokenDocuments(
            tokens=self.tokens[start:end],
            loss_mask=self.loss_mask[start:end],
            span_id=self.span_id[start:end],
            lengths=self.lengths[first:last],
        )

    def taken(self, numbers: npt.NDArray[np.int64]) -> "TokenDocuments":
        """The documents with these numbers, int64 [K], in this order, as copies."""
        lengths = self.lengths[numbers]
        firsts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        inside = ranges(firsts[numbers], lengths)
        return TokenDocuments(
            tokens=self.tokens[inside],
            loss_mask=self.loss_mask[inside],
            span_id=self.span_id[inside],
            lengths=lengths,
        )


def closed_documents(
    tokens: Sequence[Tokens], masks: Sequence[Flags], spans: Sequence[Flags], eod: int
) -> TokenDocuments:
    """N documents end to end, each closed by an EOD, which is context. Each item: int32 or uint8 [T]."""
    context = np.zeros(1, dtype=np.uint8)
    closing = np.array([eod], dtype=np.int32)

    def end_to_end(items: Sequence[npt.NDArray[Any]], last: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([last[:0], *(part for item in items for part in (item, last))])

    return TokenDocuments(
        tokens=end_to_end(tokens, closing),
        loss_mask=end_to_end(masks, context),
        span_id=end_to_end(spans, context),
        lengths=np.array([item.size + 1 for item in tokens], dtype=np.int32),
    )


def joined(parts: Sequence[TokenDocuments]) -> TokenDocuments:
    """The documents of all parts, in order."""

    def end_to_end(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, dtype=dtype), *(getattr(part, name) for part in parts)])

    return TokenDocuments(**{name: end_to_end(name, dtype) for name, dtype in _DTYPES.items()})


def ranges(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """start, start + 1, … of each segment, end to end. Args: int64 [N], integers [N]. Returns int64 [sum(lengths)]."""
    ends = np.cumsum(lengths, dtype=np.int64)
    steps: npt.NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    steps += np.arange(steps.size)
    return steps


def spans_from_messages(tokens: Tokens, labels_per_message: Flags, *, message_start: int) -> Flags:
    """Span of every token, given the span of every message.

    Every message opens with exactly one `message_start` token and content cannot emit it, so counting starts gives
    the message a token belongs to:

        tokens            S u M h i E S a C f M o k R      (S = message_start)
        cumsum(S) - 1     0 0 0 0 0 0 1 1 1 1 1 1 1 1
        labels [0, 2]     0 0 0 0 0 0 2 2 2 2 2 2 2 2

    Args: tokens int32 [T]; labels_per_message uint8 [M]. Returns uint8 [T].
    Raises ValueError when the tokens do not begin with a start or hold another number of starts than M.
    """
    starts = tokens == message_start
    if tokens.size and not starts[0]:
        raise ValueError("the tokens do not begin with a message")
    if int(starts.sum()) != labels_per_message.size:
        raise ValueError(f"{labels_per_message.size} messages, but {int(starts.sum())} message starts in the tokens")
    spans: Flags = labels_per_message[np.cumsum(starts) - 1]
    return spans


def shift_to_labels(values: Flags, lengths: Lengths) -> Flags:
    """Token-aligned supervision → label-aligned, document by document: `v[1:] + [0]`.

        values    [0 0 2 2 | 0 1 2]   lengths [4 3]
        returned  [0 2 2 0 | 1 2 0]

    Args: values uint8 [T]; lengths int32 [N], all ≥ 1, sum = T. Returns a new uint8 [T].
    """
    shifted = np.empty_like(values)
    if values.size:
        shifted[:-1] = values[1:]
        shifted[np.cumsum(lengths, dtype=np.int64) - 1] = 0
    return shifted


def shift_to_tokens(values: Flags, lengths: Lengths) -> Flags:
    """Label-aligned supervision, as on disk → token-aligned, document by document: `[0] + v[:-1]`.

        values    [0 2 2 0 | 1 2 0]   lengths [4 3]
        returned  [0 0 2 2 | 0 1 2]

    No position predicts a document's first token, so it comes back as 0, whatever it was. Args: values uint8 [T];
    lengths int32 [N], all ≥ 1, sum = T. Returns a new uint8 [T].
    """
    shifted = np.empty_like(values)
    if values.size:
        shifted[1:] = values[:-1]
        shifted[np.cumsum(lengths, dtype=np.int64) - lengths] = 0
    return shifted


def tokens_per_span(span_id: Flags, lengths: Lengths, spans: int) -> npt.NDArray[np.int64]:
    """Tokens of each span in each document.

    Args: span_id uint8 [T], all below `spans`; lengths int32 [N], all ≥ 1. Returns int64 [N, spans].
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    # Spans are long, so runs of one span are counted. A run starts where the span changes or a document begins.
    firsts = np.sort(np.concatenate([np.flatnonzero(span_id[1:] != span_id[:-1]) + 1, ends - lengths]))
    documents = np.searchsorted(ends, firsts, side="right")
    counts = np.bincount(
        documents * spans + span_id[firsts],
        weights=np.diff(firsts, append=span_id.size),
        minlength=lengths.size * spans,
    )
    return counts.astype(np.int64).reshape(lengths.size, spans)
