"""The text of a shard's blocks against its records, without encoding: the stop rule and the tail aside, the stream of
the blocks is the text of the records.

In: the blocks of a shard, the records, the bytes of tokens. Out: what became of the tokens; None where the texts
differ, or where only packing the records again can tell.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.families.chat.blocks.markers import EOS_STRING
from spanloom.tokenizers.token_texts import TokenTexts

_EOS = EOS_STRING.encode()


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block on disk: its tokens between copies and padding, int32 [T], and whether the rest of the conversation was
    given up behind it."""

    tokens: npt.NDArray[np.int32]
    stopped: bool


class _Records:
    """The text of records, each closed by EOS, from a place of the stream on."""

    def __init__(self, records: Iterator[str], texts: TokenTexts) -> None:
        self._records, self._texts = records, texts
        self._ahead: list[tuple[str, bytes]] = []
        self.read = 0
        """Bytes of the first record that are read."""

    def take(self, data: bytes) -> list[int] | None:
        """Reads bytes; returns where in them records end, None if the records go on otherwise."""
        ends: list[int] = []
        place = 0
        while place < len(data):
            if not self._ahead and not self._fill():
                return None
            whole = self._ahead[0][1]
            part = whole[self.read : self.read + len(data) - place]
            if data[place : place + len(part)] != part:
                return None
            place, self.read = place + len(part), self.read + len(part)
            if self.read == len(whole):
                self.skip()
                ends.append(place)
        return ends

    def skip(self) -> str | None:
        """Goes to the next record. Returns the text of the one that is left, None if there is none."""
        if not self._ahead and not self._fill():
            return None
        self.read = 0
        return self._ahead.pop(0)[0]

    def _fill(self) -> bool:
        text = next(self._records, None)
        if text is not None:
            self._ahead.append((text, self._texts.as_read(text).encode() + _EOS))
        return text is not None


def counted_stream(
    blocks: Iterator[Block], records: Iterator[str], texts: TokenTexts, count: Callable[[str], int]
) -> dict[str, int] | None:
    """What became of the tokens of a shard of which no block was dropped: `tokens_in`, `stops`, `tokens_given_up` and
    `tail_tokens`. `count`: tokens of a record, with its EOS."""
    stream = _Records(records, texts)
    counts = dict.fromkeys(("tokens_in", "stops", "tokens_given_up", "tail_tokens"), 0)
    since = 0  # tokens of the first record that is not read whole
    for block in blocks:
        whole = texts.read(block.tokens)
        ends = stream.take(whole.data.tobytes())
        if ends is None:
            return None
        last = int(np.searchsorted(whole.edges, ends[-1])) if ends else 0
        since = block.tokens.size - last if ends else since + block.tokens.size
        counts["tokens_in"] += block.tokens.size
        if block.stopped:
            text = stream.skip()
            if text is None or EOS_STRING in text:
                return None
            given_up = count(text) - since
            counts["stops"] += 1
            counts["tokens_given_up"] += given_up
            counts["tokens_in"] += given_up
            since = 0
    rest = 0
    while (text := stream.skip()) is not None:
        rest += count(text)
    counts["tail_tokens"] = rest - since
    counts["tokens_in"] += rest - since
    return counts
