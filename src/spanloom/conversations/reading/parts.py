"""Parts of one assistant message that a form writes as several messages → one turn.

In: the turns of a record. Out: the turns, with parts joined where the form leaves no doubt: reasoning with what follows
it, text on commentary with its calls, calls with calls. Each message of an assistant then ends in one stop token.

    Harmony, Responses      analysis, commentary, calls and final as messages of their own
    ShareGPT, ms-swift      turns `function_call`, `tool_call`, `reasoning`
"""

from collections.abc import Sequence
from dataclasses import replace

from spanloom.conversations.turns import Turn


def joined_parts(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with parts joined. A turn that is no part is joined only to a part beside it."""
    joined: list[Turn] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if last is not None and _is_one_message(last, turn):
            joined[-1] = _one(last, turn)
        else:
            joined.append(turn)
    return joined


def _is_one_message(before: Turn, turn: Turn) -> bool:
    if not (turn.is_part or before.is_part) or before.role != "assistant" or turn.role != "assistant":
        return False
    if before.trained != turn.trained or before.truncated or turn.reasoning:
        return False
    if not before.texts and not before.calls:  # reasoning alone
        return True
    if before.texts and not before.calls and before.channel != "commentary":  # an answer
        return False
    return bool(turn.calls) and not turn.texts


def _one(before: Turn, turn: Turn) -> Turn:
    metadata = {**before.metadata, **turn.metadata} if before.metadata or turn.metadata else before.metadata
    for key in before.metadata.keys() & turn.metadata.keys():
        if before.metadata[key] != turn.metadata[key]:
            metadata = {**metadata, key: [before.metadata[key], turn.metadata[key]]}
    return replace(
        before,
        texts=before.texts + turn.texts,
        calls=before.calls + turn.calls,
        channel=None if turn.calls else turn.channel,
        truncated=turn.truncated,
        metadata=metadata,
        is_part=True,
    )
