"""Estimates the size of a build from its source, before any work."""

from typing import Any

from spanloom.building.disk import Size
from spanloom.conversations.source.folder import BATCH_ROWS, Part, Source, read_rows, text_bytes
from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import profile_of_source


def estimate(source: Source, rules: CutRules | None, caps: Caps) -> Size:
    """About how many tokens and documents a build of this source makes."""
    rows = float(sum(shard.rows for shard in source.shards))
    tokens = Size.of_text(sum(text_bytes(shard) for shard in source.shards), rows).tokens
    documents = 1.0
    if rules is not None:
        repeated, documents = growth(source, rules)
        tokens *= repeated
    if caps.any:
        read = sum(caps.rows_read([shard.rows for shard in source.shards]))
        tokens *= read / rows if rows else 0
        rows = read
        tokens = min(tokens, caps.max_tokens or tokens)
    return Size(tokens=tokens, documents=rows * documents)


def growth(source: Source, rules: CutRules) -> tuple[float, float]:
    """Estimates from the first rows of each shard: text written ÷ text of the conversations, and documents per row."""
    original = written = rows = documents = 0
    for shard in source.shards:
        part = Part(index=0, row_groups=(0,), first_row=0, rows=min(shard.rows, BATCH_ROWS))
        for batch in read_rows(shard, part) if shard.rows else ():
            for text in batch.messages_json.to_pylist():
                try:
                    conversation = parse_conversation(text, profile=profile_of_source(source.format))
                except RowRefusedError:
                    continue
                cuts = cut_conversation(conversation, rules).cuts
                sizes = {id(message): _size(message) for message in conversation.messages}
                original += sum(sizes.values())
                shown = [message for cut in cuts for message in cut.shown.messages]  # most of them shared
                written += sum(sizes[id(message)] if id(message) in sizes else _size(message) for message in shown)
                rows, documents = rows + 1, documents + len(cuts)
    return written / original if original else 1.0, documents / rows if rows else 1.0


def _size(message: dict[str, Any]) -> int:
    return len(str(message.get("content")))
