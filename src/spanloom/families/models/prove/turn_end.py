"""Where a turn ends: with the first declared stop token after the last text of the run.

In: F, the ids of its completion with their offsets, the stop tokens. Out: the number of completion tokens through the
stop token. If the template writes none, the marker of the next speaker ends the turn: `next_marker`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.families.models.errors import RefusedError
from spanloom.families.models.prove.refusals import NO_TURN_END, REMEDIES
from spanloom.supervision import Tokens
from spanloom.tokenizers.character_spans import Offsets
from spanloom.tokenizers.traced_text import marks_of


def completion_end(ids: Tokens, offsets: Offsets, stops: Mapping[int, str], last: int) -> int | None:
    """The number of tokens through the first stop token at or after `last`; None if there is none.

    Raises RefusedError (`no_turn_end`) for a stop token before `last`: the model would stop there.
    """
    for place, token in enumerate(ids.tolist()):
        if token not in stops:
            continue
        if offsets[place][0] >= last:
            return place + 1
        raise RefusedError(
            NO_TURN_END,
            f"the stop token {stops[token]!r} is before the last text of the run: the model would stop there",
            "give the message as several, or other stop tokens: --stop",
        )
    return None


def next_marker(whole: str, last: int, field: int, longer: str, stops: Mapping[int, str]) -> str | None:
    """The stop token that follows F if another message is appended; None if there is none.

    Args: `last`, the end of the last text in F; `field`, its number; `longer`, the traced text with another message.
    """
    ends = [mark[1] for mark in marks_of(longer) if mark[2] == field]
    if not ends:
        return None
    tail = whole[last:]
    at = ends[-1] + len(tail)
    if longer[ends[-1] : at] != tail:
        return None
    return next((text for text in stops.values() if longer.startswith(text, at)), None)


def missing_end(stops: Mapping[int, str], tail: str) -> RefusedError:
    """The error if neither the template nor the next message ends the turn."""
    names = ", ".join(map(repr, stops.values()))
    return RefusedError(
        NO_TURN_END, f"behind the last text is {tail[:40]!r}, and no stop token of {names}", REMEDIES[NO_TURN_END]
    )


def next_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message that may follow the assistant's: the result of its first call, or the user's."""
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if not calls:
        return {"role": "user", "content": "Go on."}
    identity = {} if calls[0].get("id") is None else {"tool_call_id": calls[0]["id"]}
    return {"role": "tool", "content": "Done.", "name": calls[0]["function"]["name"], **identity}
