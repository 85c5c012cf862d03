"""Counts of what does not reach the transcripts, by reason.

In: the generator's decisions. Out: counts for the report; every message that was read is counted once.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from spanloom.errors import RecordError
from spanloom.families.chat.options.generate import GeneratorRules as GeneratorRules

EXAMPLES_KEPT = 10
"""Number of examples kept for each reason."""

NO_ROLE = "no-role"
"""Name of a message without a role in `GeneratorRules.drop`."""


class Skip(StrEnum):
    """Reason why a conversation is not in the output."""

    CONTROL_STRING = "control_string"
    NO_PAIR = "no_pair"
    EMPTY_ANSWER = "empty_answer"
    FIRST_PAIR_TOO_LONG = "first_pair_too_long"
    UNUSED_KEY = "unused_key"
    UNKNOWN_ROLE = "unknown_role"
    THINK_TAG = "think_tag"
    UNREADABLE = "unreadable"
    UNTRAINED = "untrained"
    TRUNCATED = "truncated"
    NOT_PREFERRED = "not_preferred"
    MARKUP = "markup"


class LeftOut(StrEnum):
    """Reason why a message is not in the output."""

    CONVERSATION_SKIPPED = "conversation_skipped"
    SYSTEM_EMPTY = "system_empty"
    SYSTEM_REPLACED = "system_replaced"  # by a later system message before the first pair
    SYSTEM_LATE = "system_late"
    ANSWER_WITHOUT_QUESTION = "answer_without_question"
    DROPPED_ROLE = "dropped_role"
    UNANSWERED_USER = "unanswered_user"
    EMPTY_ANSWER = "empty_answer"  # and its question
    AFTER_THE_END = "after_the_end"  # of a conversation that one of the two reasons before ended
    LATER_PAIR_TOO_LONG = "later_pair_too_long"  # and all after it


Think = Literal["keep", "drop", "refuse"]


@dataclass
class GeneratorCounts:
    """Counts of conversations, messages and pairs.

    Each message that was read is written, or counted under one reason in `messages_left_out`. `keys_dropped`,
    `roles_dropped` and the think blocks count only conversations that were written.
    """

    conversations_read: int = 0
    conversations_written: int = 0
    conversations_skipped: Counter[Skip] = field(default_factory=Counter)
    conversations_shortened: int = 0
    conversations_ended_early: int = 0
    pairs_written: int = 0
    pairs_dropped: int = 0
    messages_read: int = 0
    messages_written: int = 0
    messages_left_out: Counter[LeftOut] = field(default_factory=Counter)
    keys_dropped: Counter[str] = field(default_factory=Counter)
    roles_dropped: Counter[str] = field(default_factory=Counter)
    think_blocks_kept: int = 0
    think_blocks_dropped: int = 0
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def skip(self, reason: Skip, messages: int = 0, **example: Any) -> None:
        """Counts a conversation that is left out, and its messages."""
        self.conversations_skipped[reason] += 1
        if messages:
            self.messages_left_out[LeftOut.CONVERSATION_SKIPPED] += messages
        self.note(reason, **example)

    def note(self, reason: Skip | LeftOut, **example: Any) -> None:
        kept = self.examples.setdefault(reason.value, [])
        if len(kept) < EXAMPLES_KEPT:
            kept.append({name: value for name, value in example.items() if value is not None})

    def unreadable(self, error: RecordError) -> None:
        """Counts a record that is not a conversation; a callback for `read_conversations`."""
        self.conversations_read += 1
        self.skip(Skip.UNREADABLE, where=error.where, what=error.what)

    def as_dict(self) -> dict[str, Any]:
        """The counts as in the report: reasons in the order of their enum, names sorted."""
        skipped, left_out = self.conversations_skipped, self.messages_left_out
        return {
            **vars(self),
            "conversations_skipped": {reason.value: skipped[reason] for reason in Skip if skipped[reason]},
            "messages_left_out": {reason.value: left_out[reason] for reason in LeftOut if left_out[reason]},
            **{name: dict(sorted(vars(self)[name].items())) for name in ("keys_dropped", "roles_dropped", "examples")},
        }
