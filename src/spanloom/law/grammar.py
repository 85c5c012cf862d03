"""The tokens of a chat template's frames: what begins and ends the messages of each role.

In: nothing. Out: `Grammar` and `Beginnings`, which the probe of a model fills.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SYSTEM, USER, ASSISTANT, TOOL = range(4)
ROLES = ("system", "user", "assistant", "tool")
Ids = tuple[int, ...]

HISTORY, BETWEEN, LAST = range(3)
"""Where an answer is: before a later question; before another answer to the same question; last in its document."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """`core`: the ids that begin a message of a role; `tail`: white space after them, `()` if there is none.

    `next_byte`: the first byte after a core whose last token is text, None if anything may follow. Without it the
    header of `tool` would be found in a message that begins with `tools`.
    """

    role: int
    core: Ids
    tail: Ids
    next_byte: int | None = None


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The tokens of frames.

    headers     of all roles; headers of tool definitions between messages count as the system's
    stops       ids that end a turn
    closers     ids that end messages
    closed      roles whose messages are always closed by one of `closers`
    prefills    role before the assistant → the tokens that the generation prompt adds after the header, by variables
    reasoning   ids that begin reasoning, if the template drops it from history; otherwise None
    bos         the id that the template writes first, or None
    written     ids of control tokens that the template writes
    stop_last   whether the template writes a stop token after the last turn
    text_behind whether it writes ordinary text behind a closer: messages that no token of their own begins
    """

    headers: tuple[Header, ...]
    stops: frozenset[int]
    closers: frozenset[int]
    closed: frozenset[int]
    prefills: Mapping[int, tuple[Ids, ...]]
    reasoning: Ids | None
    bos: int | None
    written: frozenset[int]
    stop_last: bool
    text_behind: bool


@dataclass(frozen=True, kw_only=True)
class Beginnings:
    """`document`: the ids that begin each document; `answers`: where an answer is → the ids behind its header. They are
    control tokens and what is between them; empty if the template writes none, or not always."""

    document: Ids = ()
    answers: Mapping[int, Ids] = field(default_factory=dict)


def common_prefix(sequences: Sequence[Ids]) -> Ids:
    """The longest common prefix; empty for no sequences."""
    shortest = min(sequences, key=len, default=())
    same = 0
    while same < len(shortest) and all(ids[same] == shortest[same] for ids in sequences):
        same += 1
    return shortest[:same]
