"""The stream → blocks of one length: boundary injection and the stop rule.

In: tokens of one stream, in calls of any size. Out: `Blocks`, and `PackingCounts` that account for every token.

Blocks are filled in order. A block that begins inside a user span starts with copies (boundary injection): the system
span of the conversation, if it fits, and U. If the block also ends inside that same span, the rest of the conversation,
up to its X, is given up (stop rule). Neither changes the state of the stream, which at any position depends only on the
markers before it. So every block consists of slices of the stream,

    stream   S s E U a b c d E A e f E X        B = 8
    blocks   S s E U a b c d                    slice 0:8
             S s E U E A e f                    slices 0:3, 3:4 (injected), 8:12

and packing has three parts: find the markers, find the slices of each block in a short loop, copy them.
"""

from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import ASSISTANT, SYSTEM, USER, Found, Markers, Stream
from spanloom.families.chat.blocks.masks import Flags, loss_mask, mask_of
from spanloom.families.chat.blocks.stream import JoinedStream, StreamSpans, Tokens, as_stream, moved
from spanloom.records.scalars import is_integer

STATE_VERSION = 1
OPTIONS = ("block_size", "post_training", "strict_user", "pad_tail", "keep_lossless")
"""The options of a `Packer` other than its markers and dtype."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """N finished blocks.

    input_ids  int32 or int64 [N, B]  the dtype of the packer
    loss_mask  uint8 [N, B]           1 = trained, token-aligned
    injected   int32 [N]              number of copied tokens at the beginning of each block
    """

    input_ids: Stream
    loss_mask: Flags
    injected: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return self.injected.size

    def __getitem__(self, rows: slice | npt.NDArray[np.bool_]) -> "Blocks":
        return Blocks(input_ids=self.input_ids[rows], loss_mask=self.loss_mask[rows], injected=self.injected[rows])


@dataclass(frozen=True, kw_only=True)
class PackingCounts:
    """Counts of a stream's tokens and blocks. Once it is finished, `tokens_in` equals

        blocks * B - injected_tokens - padding_tokens + dropped_tokens + tokens_given_up + tail_tokens

    tokens_in        tokens of the stream
    blocks           blocks returned
    loss_tokens      tokens in them that have loss
    injected_blocks  blocks returned that begin with copies
    injected_tokens  copies in them
    stops            how often the stop rule applied
    tokens_given_up  tokens that the stop rule skipped
    lossless_blocks  blocks without any loss, whether returned or dropped
    dropped_blocks   those of them that were dropped, with keep_lossless=False
    dropped_tokens   tokens of the stream in dropped blocks
    tail_tokens      tokens of the stream in the last, shorter block, if it was dropped
    padding_tokens   padding in the last block, if it was padded instead
    """

    tokens_in: int = 0
    blocks: int = 0
    loss_tokens: int = 0
    injected_blocks: int = 0
    injected_tokens: int = 0
    stops: int = 0
    tokens_given_up: int = 0
    lossless_blocks: int = 0
    dropped_blocks: int = 0
    dropped_tokens: int = 0
    tail_tokens: int = 0
    padding_tokens: int = 0

    def __add__(self, other: "PackingCounts") -> "PackingCounts":
        return PackingCounts(**{name: count + getattr(other, name) for name, count in asdict(self).items()})


class Packer:
    """Packs one stream. Between calls it holds less than two blocks, and a system span that fits into one.

    `post_training=False` is plain packing: no injection, no stop rule, every token has loss.
    `strict_user`: a user span opened by an injected U never counts as complete, since the block lacks its beginning.
    `pad_tail`: fill the last, shorter block with this id, without loss, instead of dropping it.
    `keep_lossless=False`: drop blocks in which no token has loss.
    `dtype`: int32, or int64 for larger ids.
    """

    def __init__(
        self,
        *,
        block_size: int,
        markers: Markers,
        post_training: bool = True,
        strict_user: bool = True,
        pad_tail: int | None = None,
        keep_lossless: bool = True,
        dtype: npt.DTypeLike = np.int32,
    ) -> None:
        if not is_integer(block_size) or block_size < 2:
            raise ChatError(f"block_size must be at least 2, got {block_size!r}: a block predicts one token or more")
        if pad_tail is not None and post_training and pad_tail in markers.ids[SYSTEM:]:
            raise ChatError(
                f"the tail cannot be padded with {pad_tail}: it is the id of a marker of messages",
                remedy="take the id of <|PAD|> or of <|EOS|>",
            )
        self.block_size, self.markers = int(block_size), markers
        self.post_training, self.strict_user = post_training, strict_user
        self.pad_tail, self.keep_lossless = pad_tail, keep_lossless
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
            raise ChatError(f"tokens are int32 or int64, not {self.dtype}")
        if pad_tail is not None and not 0 <= pad_tail <= np.iinfo(self.dtype).max:
            raise ChatError(f"the padding id {pad_tail} is not a number from 0 to {np.iinfo(self.dtype).max}")
        self._counts = dict.fromkeys(asdict(PackingCounts()), 0)
        self._finished = False
        self._giving_up = False
        # The stream from the beginning of the current block, and before it just enough of the stream to know its state
        # there: the system span that may yet be injected, and the marker (S: the part so far) of the span that is open.
        self._held: Stream = np.empty(0, self.dtype)
        self._begin = 0
        self._waiting: list[Stream] = []  # fed since then, not yet enough to fill the block
        self._needed = self.block_size  # number of stream tokens that the block takes, from `_begin`

    @property
    def counts(self) -> PackingCounts:
        """The counts of the stream so far."""
        return PackingCounts(**self._counts)

    def feed(self, tokens: Tokens) -> Blocks:
        """Takes the next tokens of the stream, one-dimensional, any number; returns the blocks that they complete.

        Raises ChatError, a ValueError, for ids that are negative or too large for the packer's dtype; the packer is
        then unchanged.
        """
        if self._finished:
            raise ChatError("the packer has been finished: take a new one for another stream")
        fed = as_stream(tokens, self.dtype)
        self._count(tokens_in=fed.size)
        if self._giving_up:
            fed = self._rest_of_conversation(fed)
        waiting = self._held.size - self._begin + sum(part.size for part in self._waiting)
        if waiting + fed.size < self._needed:
            if fed.size:
                self._waiting.append(fed.copy())  # the caller may reuse the array
            return self._none()
        held = np.concatenate([self._held, *self._waiting]) if self._waiting else self._held
        self._waiting = []
        return self._pack(JoinedStream(held, fed)) if self.post_training else self._cut(JoinedStream(held, fed))

    def finish(self) -> Blocks:
        """Ends the stream; returns the last, shorter block if it is padded, else no block."""
        if self._finished:
            return self._none()
        self._finished = True
        held = np.concatenate([self._held, *self._waiting])
        stream = JoinedStream(held, held[:0])
        left = held.size - self._begin
        self._held, self._begin, self._waiting = held[:0], 0, []
        if not left:
            return self._none()
        if self.pad_tail is None:
            self._count(tail_tokens=left)
            return self._none()
        start = self.block_size - self._needed  # the injected slices
        tail = np.full((1, self.block_size), self.pad_tail, self.dtype)
        tail[0, start : start + left] = held[held.size - left :]
        if self.post_training:
            marks = stream.find(self.markers)
            spans = StreamSpans(marks, stream.size, self.block_size)
            slices = spans.injected_at(held.size - left)
            tail[0, :start] = np.concatenate([held[:0], *(stream.between(*cut) for cut in slices)])
            copies = np.array([start], np.int32)
            mask = loss_mask(
                tail[:, : start + left], markers=self.markers, injected=copies, strict_user=self.strict_user
            )
        else:
            mask = np.ones((1, left), np.uint8)
        whole = np.zeros((1, self.block_size), np.uint8)
        whole[:, : start + left] = mask
        return self._handed_out(
            Blocks(input_ids=tail, loss_mask=whole, injected=np.array([start], np.int32)),
            padding=self.block_size - start - left,
        )

    def _cut(self, stream: "JoinedStream") -> Blocks:
        """Plain packing."""
        rows = stream.size // self.block_size
        cut = rows * self.block_size
        blocks = stream.gather([(0, cut)]).reshape(rows, self.block_size)
        self._held = stream.between(cut, stream.size).copy()
        return self._handed_out(
            Blocks(input_ids=blocks, loss_mask=np.ones(blocks.shape, np.uint8), injected=np.zeros(rows, np.int32))
        )

    def _pack(self, stream: "JoinedStream") -> Blocks:
        marks = stream.find(self.markers)
        spans = StreamSpans(marks, stream.size, self.block_size)
        size, width = stream.size, self.block_size
        begins, nexts, stops = spans.begins, spans.nexts, spans.stops
        given_up = stopped = 0

        slices: list[tuple[int, int]] = []
        injected: list[int] = []
        at = copied = self._begin  # where the block begins; up to where `slices` cover the stream
        span = bisect_left(begins, at)  # user spans that begin before it
        while True:
            # Upper bound of how many more there are at the next block.
            span = bisect_left(begins, at, span, min(span + width + 1, len(begins)))
            if span == 0 or at > nexts[span - 1]:
                if at + width > size:
                    break
                injected.append(0)
                at += width
                continue
            # A block that begins inside a user span.
            user = begins[span - 1]
            system = spans.system_at(user)
            copies = 1 if system is None else system[1] - system[0] + 1
            end = at + width - copies
            if end > size:
                break
            if at > copied:
                slices.append((copied, at))
            if system is not None:
                slices.append(system)
            slices.append((user, user + 1))
            injected.append(copies)
            copied, at = at, end
            if nexts[span - 1] >= end:  # and ends inside it
                slices.append((copied, end))
                stopped += 1
                stop = bisect_left(stops, end)
                at = copied = stops[stop] + 1 if stop < len(stops) else size
                given_up += at - end
                if stop == len(stops):
                    self._giving_up = True
                    break
                span = bisect_left(begins, at)
        if at > copied:
            slices.append((copied, at))
        self._count(tokens_given_up=given_up, stops=stopped)

        rows = len(injected)
        copies_of = np.array(injected, np.int32)
        blocks = stream.gather(slices).reshape(rows, width)
        mask = mask_of(moved(marks, slices), (rows, width), copies_of if self.strict_user else None)
        if self._giving_up:
            self._held, self._begin, self._needed = self._held[:0].copy(), 0, self.block_size
        else:
            self._hold(stream, marks, spans, at)
        return self._handed_out(Blocks(input_ids=blocks, loss_mask=mask, injected=copies_of))

    def _hold(self, stream: "JoinedStream", marks: Found, spans: "StreamSpans", at: int) -> None:
        """Keeps the stream from `at` on, and the tokens before it that decide its state."""
        past = int(np.searchsorted(marks.positions, at))
        context = [stream.between(0, 0)]
        if (system := spans.system_at(at)) is not None:
            context.append(stream.between(*system))
        if past and (kind := marks.kinds[past - 1]) in (SYSTEM, USER, ASSISTANT):
            opened = int(marks.positions[past - 1])
            # Of an open system span, keep only so much that it is already too long for any block.
            kept = min(at - opened, self.block_size) if kind == SYSTEM else 1
            context.append(stream.between(opened, opened + kept))
        before = np.concatenate(context)
        self._held = np.concatenate([before, stream.between(at, stream.size)])
        self._begin = before.size
        self._needed = self.block_size - sum(stop - start for start, stop in spans.injected_at(at))

    def _rest_of_conversation(self, fed: Stream) -> Stream:
        """Gives up tokens up to the X that ends the conversation; returns the tokens after it."""
        ends = np.flatnonzero(fed == self.markers.eos)
        after = int(ends[0]) + 1 if ends.size else fed.size
        self._giving_up = not ends.size
        self._count(tokens_given_up=after)
        return fed[after:]

    def _handed_out(self, blocks: Blocks, padding: int = 0) -> Blocks:
        some: npt.NDArray[np.bool_] = np.any(blocks.loss_mask.view(np.bool_), axis=1)
        lossless = int(np.count_nonzero(~some))
        self._count(lossless_blocks=lossless)
        if lossless and not self.keep_lossless:
            dropped_copies = int(blocks.injected[~some].sum())
            if not some[-1]:  # only the tail has padding, and it comes in a call of its own
                dropped_copies, padding = dropped_copies + padding, 0
            self._count(dropped_blocks=lossless, dropped_tokens=lossless * self.block_size - dropped_copies)
            blocks = blocks[some]
        self._count(
            blocks=len(blocks),
            loss_tokens=int(np.count_nonzero(blocks.loss_mask)),
            injected_blocks=int(np.count_nonzero(blocks.injected)),
            injected_tokens=int(blocks.injected.sum()),
            padding_tokens=padding,
        )
        return blocks

    def _none(self) -> Blocks:
        """No blocks, with shape (0, B)."""
        return Blocks(
            input_ids=np.empty((0, self.block_size), self.dtype),
            loss_mask=np.empty((0, self.block_size), np.uint8),
            injected=np.empty(0, np.int32),
        )

    def _count(self, **more: int) -> None:
        for name, count in more.items():
            self._counts[name] += count

    def state(self) -> dict[str, Any]:
        """The state from which `from_state` resumes, as JSON values."""
        return {
            "version": STATE_VERSION,
            "options": {
                **{name: getattr(self, name) for name in OPTIONS},
                "markers": asdict(self.markers),
                "dtype": self.dtype.name,
            },
            "held": np.concatenate([self._held, *self._waiting]).tolist(),
            "begin": self._begin,
            "needed": self._needed,
            "giving_up": self._giving_up,
            "finished": self._finished,
            "counts": dict(self._counts),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Packer":
        """A packer that resumes where `state` was taken. Raises ChatError for an invalid state."""
        try:
            if state["version"] != STATE_VERSION:
                raise ChatError(f"a packing state of version {state['version']!r}, this Spanloom reads {STATE_VERSION}")
            options = {**state["options"], "markers": Markers(**state["options"]["markers"])}
            packer = cls(**options)
            packer._held = as_stream(state["held"], packer.dtype)
            packer._begin, packer._needed = int(state["begin"]), int(state["needed"])
            packer._giving_up, packer._finished = bool(state["giving_up"]), bool(state["finished"])
            packer._counts = asdict(PackingCounts(**state["counts"]))
        except (KeyError, TypeError) as wrong:
            raise ChatError(f"this is no packing state: {wrong!r}") from wrong
        if not (0 <= packer._begin <= packer._held.size and 1 <= packer._needed <= packer.block_size):
            raise ChatError("this is no packing state: its numbers contradict each other")
        return packer


def pack(tokens: Tokens, **options: Any) -> tuple[Blocks, PackingCounts]:
    """Packs a whole stream at once. `options`: those of `Packer`, but `dtype` is int32, or int64 if an id needs it."""
    is_int32 = isinstance(tokens, np.ndarray) and tokens.dtype == np.int32
    stream: Any = tokens if is_int32 else as_stream(tokens, np.dtype(np.int64))
    wide = not is_int32 and stream.size and int(stream.max()) > np.iinfo(np.int32).max
    packer = Packer(**options, dtype=np.int64 if wide else np.int32)
    blocks, tail = packer.feed(stream), packer.finish()
    if len(tail):
        ends = {name: np.concatenate([part, getattr(tail, name)]) for name, part in vars(blocks).items()}
        blocks = Blocks(**ends)
    return blocks, packer.counts
