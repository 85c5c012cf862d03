"""The blocks of a shard as one stream: what a block begins with follows from the blocks before it.

In: consecutive blocks, what the blocks before them leave open. Out: findings, the state behind them. Python loops run
over markers, not over tokens.

    block 1   S s E U a b c d      ends inside a user span
    block 2   S s E U E A e f      so it begins with the system span and U
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from spanloom.families.chat.verify.blocks import CheckedBlocks, Rules
from spanloom.findings import Finding


@dataclass(kw_only=True)
class OpenStream:
    """What the blocks of a shard leave open. `whole`: no block was dropped between them.

    closed  whether records were taken only with all their spans closed
    role    of the span that is open, "" for none
    system  the last complete system span of the conversation, with its markers; `opened`: of one that is open
    stops   how often the rest of a conversation was given up
    """

    whole: bool
    closed: bool
    role: str = ""
    system: list[int] | None = None
    opened: list[int] = field(default_factory=list)
    stops: int = 0
    padded: bool = False

    def head(self, rules: Rules) -> list[int]:
        """The tokens that the next block begins with before those of the stream."""
        if self.role != "user" or not rules.post_training:
            return []
        fits = self.system is not None and len(self.system) + 1 <= rules.block_size - 1
        return [*(self.system or [] if fits else []), rules.user]


def check_sequence(blocks: CheckedBlocks, rules: Rules, stream: OpenStream) -> Iterator[Finding]:
    """Checks the begin of each block, that spans are closed, and that only the last block has padding."""
    count, size = blocks.tokens.shape
    real = np.arange(size) < (size - blocks.padding)[:, None]
    real &= np.arange(size) >= blocks.injected[:, None]
    rows, positions = np.nonzero(np.isin(blocks.tokens, rules.markers) & real)
    edges = np.searchsorted(rows, np.arange(count + 1))
    for block in range(count):
        if stream.padded:
            yield blocks.finding("sequence", "a block follows one with padding", block)
        stream.padded = bool(blocks.padding[block])
        if not rules.post_training:
            continue
        injected = int(blocks.injected[block])
        wanted = stream.head(rules)
        if stream.whole and blocks.tokens[block, :injected].tolist() != wanted:
            message = f"it begins with {injected} injected tokens, by the blocks before it with {len(wanted)}"
            yield blocks.finding("sequence", f"{message}, or with others", block)
        if not stream.whole:
            stream.role, stream.system, stream.opened = "user" if injected else "?", None, []
        found = positions[edges[block] : edges[block + 1]].tolist()
        yield from _read(blocks, block, found, rules, stream)


def _read(
    blocks: CheckedBlocks, block: int, positions: list[int], rules: Rules, stream: OpenStream
) -> Iterator[Finding]:
    """Reads the markers of a block, at `positions`."""
    tokens = blocks.tokens[block]
    roles = {rules.system: "system", rules.user: "user", rules.assistant: "assistant"}
    first, end = int(blocks.injected[block]), rules.block_size - int(blocks.padding[block])
    cut = stream.role == "user" and not positions
    begins = first
    for position in positions:
        marker = int(tokens[position])
        if stream.closed and stream.role not in ("", "?") and marker != rules.end:
            yield blocks.finding("sequence", f"the span of {stream.role} is not closed", block, position)
        if marker == rules.end and stream.role == "system":
            stream.system = [*stream.opened, *tokens[begins : position + 1].tolist()]
        elif marker == rules.eos:
            stream.system = None
        stream.role, stream.opened, begins = roles.get(marker, ""), [], position
    if stream.role == "system":  # of one that is longer than a block, its length is enough
        stream.opened = [*stream.opened, *tokens[begins:end].tolist()][: rules.block_size]
    if cut and first and end == rules.block_size:  # a whole block of one user span: the rest is given up
        stream.stops += 1
        stream.role, stream.system = "", None
