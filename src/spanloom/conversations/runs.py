"""Finds the runs of assistant messages and the last turn of a conversation; names the documents made from runs.

In: the roles of the messages, in order. Out: positions of messages, from 0. Pure.
"""

from collections.abc import Sequence
from itertools import pairwise


def document_id(conversation: str, number: int) -> str:
    """The id of the document of assistant run `number`, from 0: `ID#0` for the first run of conversation ID."""
    return f"{conversation}#{number}"


def assistant_runs(roles: Sequence[str]) -> list[tuple[int, int]]:
    """First message and end (exclusive) of each assistant run.

    user assistant assistant tool assistant  →  (1, 3) (4, 5)
    """
    inside = [False, *(role == "assistant" for role in roles), False]
    edges = [at for at, (before, after) in enumerate(pairwise(inside)) if before != after]
    return list(zip(edges[::2], edges[1::2], strict=True))


def last_turn(roles: Sequence[str], bounds: Sequence[tuple[int, int]]) -> int:
    """Position of the last user message that is followed by a run; 0 if there is none."""
    if not bounds:
        return 0
    return max((at for at in range(bounds[-1][0]) if roles[at] == "user"), default=0)


def runs_note(runs: int) -> str:
    """The note shown for a document that trains several assistant runs."""
    return f"{runs} assistant runs"
