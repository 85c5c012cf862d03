"""Finds the runs of assistant messages and the last turn of a conversation; names the documents made from runs.

In: the roles of the messages, in order; or the messages. Out: positions of messages, from 0; why a chat template cannot
hold the assistant's messages. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from spanloom.conversations.source.rejects import Reason
from spanloom.conversations.turns import Message


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


@dataclass(frozen=True, kw_only=True)
class RunFault:
    """Why the assistant's messages cannot be trained with a chat template. `message`: the place of the one at fault."""

    reason: Reason
    detail: str
    remedy: str
    message: int


def run_fault(messages: Sequence[Message]) -> RunFault | None:
    """The first message of the assistant that a chat template cannot hold as the model writes it; None without one.

    `assistant_in_a_row`: it follows another one, trained or not. A template ends both turns with a stop token, which
    the model does not write between two calls, nor between a thought and its answer.
    `answer_missing`: it is trained, and has reasoning without an answer or a call. The stop token would be trained
    behind the thought.
    """
    for place, message in enumerate(messages):
        if message.role != "assistant":
            continue
        if place and messages[place - 1].role == "assistant":
            return RunFault(
                reason=Reason.ASSISTANT_IN_A_ROW,
                detail=f"message {place} follows a message of the assistant: a stop would be trained between the two",
                remedy="make one message of both: spanloom convert --join-consecutive",
                message=place,
            )
        following = messages[place + 1].role if place + 1 < len(messages) else None
        if place and message.trained and message.reasoning and not message.calls and following != "assistant":
            if "".join(message.texts).strip():
                continue
            return RunFault(
                reason=Reason.ANSWER_MISSING,
                detail=f"message {place} has reasoning without an answer or a call: a stop would be trained behind it",
                remedy="give such a message its answer, or leave the conversation out",
                message=place,
            )
    return None


def calls_in_a_row(messages: Sequence[Message]) -> bool:
    """Whether a message of the assistant without an answer is followed by another with calls alone: both are one."""
    return any(
        before.role == message.role == "assistant" and bool(message.calls) and not (message.texts or message.reasoning)
        for before, message in pairwise(messages)
        if before.calls or not before.texts
    )


def last_turn(roles: Sequence[str], bounds: Sequence[tuple[int, int]]) -> int:
    """Position of the last user message that is followed by a run; 0 if there is none."""
    if not bounds:
        return 0
    return max((at for at in range(bounds[-1][0]) if roles[at] == "user"), default=0)


def runs_note(runs: int) -> str:
    """The note shown for a document that trains several assistant runs."""
    return f"{runs} assistant runs"
