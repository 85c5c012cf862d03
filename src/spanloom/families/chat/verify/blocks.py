"""Checks of every block of a packed chat dataset, from the arrays on disk.

In: consecutive blocks as on disk, their rows, and the rules of the manifest; for the deep check also the tokens of the
records. Out: findings with block and offset. The loss mask is derived again marker by marker, and blocks are packed
again token by token. Nothing of `packing`, whose result is checked, is used.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import OpenedShard
from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.disk_documents import DiskRun
from spanloom.findings import Finding

Ids = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The packing rules of a dataset, from its manifest. Marker ids are plain numbers here."""

    block_size: int
    post_training: bool
    strict_user: bool
    keep_lossless: bool
    pad_tail: int | None
    eos: int
    system: int
    user: int
    assistant: int
    end: int
    vocab_size: int

    @staticmethod
    def of(content: Content) -> "Rules":
        """The rules of the dataset with this manifest `content`."""
        config = content.config
        ids = {name: config["markers"][name]["id"] for name in ("eos", "system", "user", "assistant", "end")}
        options = {
            name: config[name] for name in ("block_size", "post_training", "strict_user", "keep_lossless", "pad_tail")
        }
        return Rules(**options, **ids, vocab_size=content.tokenizer.vocab_size)

    @property
    def markers(self) -> tuple[int, ...]:
        return self.eos, self.system, self.user, self.assistant, self.end


@dataclass(frozen=True, kw_only=True)
class CheckedBlocks(DiskRun):
    """N whole blocks of one shard, as on disk: `tokens` int32 [N, B], `lossmask` uint8 [N, B], label-aligned.

    `injected` and `padding` int64 [N] are the values of the rows.
    """

    tokens: Ids
    lossmask: Flags
    injected: npt.NDArray[np.int64]
    padding: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, opened: OpenedShard, first: int, arrays: Mapping[str, npt.NDArray[Any]], rows: pa.Table, rules: Rules
    ) -> "CheckedBlocks":
        """The blocks from number `first` on. `arrays`: flat, [N * B]; `rows`: their N rows."""
        return cls(
            split=opened.split,
            shard=opened.shard.shard,
            first=first,
            tokens=arrays["tokens"].reshape(-1, rules.block_size),
            lossmask=arrays["lossmask"].reshape(-1, rules.block_size),
            injected=rows.column("injected_tokens").to_numpy(),
            padding=rows.column("padding_tokens").to_numpy(),
        )

    def at(self, check: str, message: str, wrong: npt.NDArray[np.bool_]) -> Iterator[Finding]:
        """One finding for each position where `wrong`, bool [N, B], is true."""
        for block, offset in np.argwhere(wrong).tolist():
            yield self.finding(check, message, block, offset)


def check_blocks(blocks: CheckedBlocks, rules: Rules) -> Iterator[Finding]:
    """Checks ids, values, the last label, and the loss mask against one that is derived here."""
    tokens, lossmask = blocks.tokens, blocks.lossmask
    outside = (tokens < 0) | (tokens >= rules.vocab_size)
    yield from blocks.at("ids", f"a token id outside 0 … {rules.vocab_size - 1}", outside)
    yield from blocks.at("values", "a loss mask value other than 0 or 1", lossmask > 1)
    for block in np.flatnonzero(lossmask[:, -1]).tolist():
        yield blocks.finding("shift", "the last position of a block has no label to train", block, rules.block_size - 1)
    derived = derived_mask(tokens, rules, injected=blocks.injected, padding=blocks.padding)
    labels = np.zeros_like(derived)
    labels[:, :-1] = derived[:, 1:]
    yield from blocks.at("loss_mask", "the loss mask is not that of the next token", labels != lossmask)
    yield from _check_injected(blocks, rules)


def _check_injected(blocks: CheckedBlocks, rules: Rules) -> Iterator[Finding]:
    """The tokens that the rows declare as injected are USER, or a system span and USER."""
    for block in np.flatnonzero(blocks.injected).tolist():
        count = int(blocks.injected[block])
        head = blocks.tokens[block, :count].tolist()
        inner = head[1:-2] if count > 1 else []
        well_formed = (
            rules.post_training
            and 0 < count < rules.block_size
            and head[-1] == rules.user
            and (count == 1 or (count > 2 and (head[0], head[-2]) == (rules.system, rules.end)))
            and not set(inner) & set(rules.markers)
        )
        if not well_formed:
            message = f"the first {count} tokens are no injected USER, with or without a system span"
            yield blocks.finding("injected", message, block)


def check_rows(blocks: CheckedBlocks, rows: pa.Table, rules: Rules) -> Iterator[Finding]:
    """Checks the rows of these blocks: numbering and counts."""
    count, size = blocks.tokens.shape
    trained = (blocks.lossmask != 0).sum(axis=1, dtype=np.int64)
    kept = np.arange(size) < (size - blocks.padding)[:, None]
    expected = {
        "sequence": np.arange(blocks.first, blocks.first + count),
        "tokens": np.full(count, size),
        "context_tokens": size - trained,
        "assistant_tokens": trained,
        "conversations": ((blocks.tokens == rules.eos) & kept).sum(axis=1),
    }
    for name, values in expected.items():
        column = rows.column(name).to_numpy()
        for at in np.flatnonzero(column != values).tolist():
            yield blocks.finding("rows", f"{name} is {column[at]}, the files say {values[at]}", at)
    pad = rules.pad_tail
    for block in np.flatnonzero(blocks.padding).tolist():
        tail = blocks.tokens[block, size - int(blocks.padding[block]) :] if 0 < blocks.padding[block] < size else None
        if pad is None or tail is None or (tail != pad).any():
            yield blocks.finding("rows", f"{blocks.padding[block]} tokens are called padding and are not", block)


def derived_mask(
    tokens: Ids, rules: Rules, *, injected: npt.NDArray[np.int64], padding: npt.NDArray[np.int64]
) -> Flags:
    """The loss mask of finished blocks, token-aligned: uint8 [N, B], from their tokens alone.

    `injected` matters only with `strict_user`: an answer after a user span that an injected USER opened has no loss.
    """
    count, size = tokens.shape
    real = np.arange(size) < (size - padding)[:, None]
    if not rules.post_training:
        every: Flags = real.astype(np.uint8)
        return every
    mask = np.zeros((count, size), dtype=np.uint8)
    rows, positions = np.nonzero(np.isin(tokens, rules.markers) & real)
    block, role, user_ok, start, copied = -1, "none", False, -1, False
    for row, at, token in zip(rows.tolist(), positions.tolist(), tokens[rows, positions].tolist(), strict=True):
        if row != block:
            block, role, user_ok, start = row, "none", False, -1
        if token == rules.end:
            if role == "assistant" and start >= 0:
                mask[row, start : at + 1] = 1
            elif role == "user":
                user_ok = not (copied and rules.strict_user)
            role, start = "none", -1
        elif token == rules.assistant:
            role, start = "assistant", at if user_ok else -1
        else:
            role = {rules.user: "user", rules.system: "system"}.get(token, "none")
            user_ok, start = False, -1
            copied = role == "user" and at == injected[row] - 1
    return mask


@dataclass(frozen=True, kw_only=True)
class PlainBlock:
    """A block packed by the plain loop: its tokens, the number of copies at its beginning and of padding at its end."""

    tokens: list[int]
    injected: int
    padding: int


def packed_again(
    records: Iterable[Sequence[int]], rules: Rules, tally: Counter[str] | None = None
) -> Iterator[PlainBlock]:
    """The blocks of a stream, packed token by token, as the specification words it. `records` include their EOS.

    `tally`: the packing counts of the stream are added to it.
    """
    size = rules.block_size
    tally = Counter() if tally is None else tally
    block: list[int] = []
    injected = 0
    role, open_system, system = "none", None, None  # type: str, list[int] | None, list[int] | None
    cut_user = giving_up = False
    for token in _tokens(records, tally):
        if giving_up:
            tally["tokens_given_up"] += 1
            if token == rules.eos:
                giving_up, role, open_system, system = False, "none", None, None
            continue
        if not block and rules.post_training and role == "user":
            cut_user = True
            block = [*(system if system is not None and len(system) + 1 <= size - 1 else []), rules.user]
            injected = len(block)
        block.append(token)
        cut_user = cut_user and token not in rules.markers
        if open_system is not None:
            open_system.append(token)
        if token == rules.end:
            if role == "system":
                system = open_system
            role, open_system = "none", None
        elif token == rules.eos:
            role, open_system, system = "none", None, None
        elif token == rules.system:
            role, open_system = "system", [token]
        elif token in (rules.user, rules.assistant):
            role, open_system = "user" if token == rules.user else "assistant", None
        if len(block) == size:
            yield PlainBlock(tokens=block, injected=injected, padding=0)
            giving_up = cut_user
            tally["stops"] += giving_up
            block, injected, cut_user = [], 0, False
    if block and rules.pad_tail is None:
        tally["tail_tokens"] += len(block) - injected
    if block and rules.pad_tail is not None:
        missing = size - len(block)
        yield PlainBlock(tokens=block + [rules.pad_tail] * missing, injected=injected, padding=missing)


def _tokens(records: Iterable[Sequence[int]], tally: Counter[str]) -> Iterator[int]:
    for record in records:
        tally["tokens_in"] += len(record)
        yield from record


def check_blocks_again(
    blocks: CheckedBlocks, records: Iterable[Sequence[int]], rules: Rules, packing: Mapping[str, int] | None = None
) -> Iterator[Finding]:
    """Packs the records of a shard again and compares its first blocks.

    `packing`: the manifest's packing counts of the shard, if these are all its blocks.
    """
    tally: Counter[str] = Counter()
    again = _kept(packed_again(records, rules, tally), rules, tally)
    for at in range(len(blocks.tokens)):
        wanted = next(again, None)
        if wanted is None:
            yield blocks.finding("source", "the source gives no such block", at)
            return
        differs = np.flatnonzero(blocks.tokens[at] != np.array(wanted.tokens))
        if differs.size:
            offset = int(differs[0])
            message = f"token {blocks.tokens[at, offset]}, the source gives {wanted.tokens[offset]}"
            yield blocks.finding("source", message, at, offset)
        if (wanted.injected, wanted.padding) != (blocks.injected[at], blocks.padding[at]):
            message = (
                f"rows.parquet says {blocks.injected[at]} injected and {blocks.padding[at]} padding tokens, "
                f"the source gives {wanted.injected} and {wanted.padding}"
            )
            yield blocks.finding("source", message, at)
    if packing is None:
        return
    if more := sum(1 for _ in again):
        yield blocks.finding("source", f"the source gives {more} more blocks", len(blocks.tokens) - 1)
    for name in ("tokens_in", "stops", "tokens_given_up", "tail_tokens", "dropped_blocks", "dropped_tokens"):
        if packing.get(name, tally[name]) != tally[name]:
            message = f"{name} is {packing[name]}, packing the source again gives {tally[name]}"
            yield Finding(check="source", message=message, split=blocks.split, shard=blocks.shard)


def _kept(again: Iterable[PlainBlock], rules: Rules, tally: Counter[str]) -> Iterator[PlainBlock]:
    """The blocks that are written; dropped ones are counted."""
    for block in again:
        if rules.keep_lossless or _carries_loss(block, rules):
            yield block
        else:
            tally["dropped_blocks"] += 1
            tally["dropped_tokens"] += len(block.tokens) - block.injected - block.padding


def _carries_loss(block: PlainBlock, rules: Rules) -> bool:
    ends = {name: np.array([getattr(block, name)]) for name in ("injected", "padding")}
    return bool(derived_mask(np.array([block.tokens], dtype=np.int32), rules, **ends).any())
