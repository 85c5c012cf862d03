"""Conversations → transcripts, with the length filter.

In: conversations, a count of tokens. Out: one transcript a conversation that fits, and `GeneratorCounts` of the others.

    system   <|SYSTEM|>text<|END|>
    pair     <|USER|>text<|END|><|ASSISTANT|>text<|END|>

The first pair must fit into the context together with the system span, each later one by itself: that is what a block
can hold of it. The conversation ends before the first later pair that does not fit; without the first there is none.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Literal

from spanloom.errors import ChatError, RecordError
from spanloom.families.chat.markers import ASSISTANT_STRING, CONTROL_STRINGS, END_STRING, SYSTEM_STRING, USER_STRING
from spanloom.families.chat.source import ASSISTANT, SYSTEM, USER, Conversation, Message

BATCH = 256
EXAMPLES_KEPT = 10
"""The first conversations of each kind that were left out say as much as all of them."""

_MARKERS = {SYSTEM: SYSTEM_STRING, USER: USER_STRING, ASSISTANT: ASSISTANT_STRING}
_SAME = {"prompter": USER}

CountTokens = Callable[[Sequence[str]], Sequence[int]]
"""How many tokens each text has, control strings counted as one."""


class Skip(StrEnum):
    """Why a conversation, or a part of it, is not in the output."""

    CONTROL_STRING = "control_string"
    NO_PAIR = "no_pair"
    FIRST_PAIR_TOO_LONG = "first_pair_too_long"
    LATER_PAIR_TOO_LONG = "later_pair_too_long"
    UNANSWERED_USER = "unanswered_user"
    UNREADABLE = "unreadable"


@dataclass
class GeneratorCounts:
    """What became of the conversations, and of the pairs in those that were written."""

    read: int = 0
    written: int = 0
    skipped: dict[Skip, int] = field(default_factory=dict)
    pairs_written: int = 0
    pairs_dropped: int = 0
    shortened: int = 0
    ended_early: int = 0
    messages_passed_over: int = 0
    examples: dict[Skip, list[dict[str, Any]]] = field(default_factory=dict)

    def skip(self, reason: Skip, **example: Any) -> None:
        """Counts a conversation that is left out."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        self.note(reason, **example)

    def note(self, reason: Skip, **example: Any) -> None:
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES_KEPT:
            kept.append({name: value for name, value in example.items() if value is not None})

    def unreadable(self, error: RecordError) -> None:
        """Counts a record that is no conversation: what `read_conversations` may be given for such."""
        self.read += 1
        self.skip(Skip.UNREADABLE, where=error.where, what=error.what)

    def as_dict(self) -> dict[str, Any]:
        return {
            "conversations_read": self.read,
            "conversations_written": self.written,
            "conversations_skipped": {reason.value: self.skipped[reason] for reason in Skip if reason in self.skipped},
            "conversations_shortened": self.shortened,
            "conversations_ended_early": self.ended_early,
            "pairs_written": self.pairs_written,
            "pairs_dropped": self.pairs_dropped,
            "messages_passed_over": self.messages_passed_over,
            "examples": {reason.value: self.examples[reason] for reason in Skip if reason in self.examples},
        }


def clean(text: str | None, *, line_based: bool) -> str:
    r"""Text as it stands in a transcript: null is empty, one kind of line end, plain spaces, no white space at the end.

    `line_based`: new lines become the two characters \n, before the end is trimmed, so that new lines there stay.
    """
    if text is None:
        return ""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")
    return (text.replace("\n", "\\n") if line_based else text).rstrip()


def generate(
    conversations: Iterable[Conversation],
    *,
    count_tokens: CountTokens,
    context_len: int,
    line_based: bool = False,
    on_error: Literal["skip", "raise"] = "skip",
    counts: GeneratorCounts | None = None,
) -> Iterator[str]:
    """Transcripts, in order, of the conversations that have one. `counts` is kept up while they are taken.

    A conversation with a control string in any of its texts would forge spans: it is skipped and counted, or with
    `on_error="raise"` a ChatError that names it.
    """
    if context_len < 1:
        raise ChatError(f"the context must have at least one token, got {context_len}")
    if on_error not in ("skip", "raise"):
        raise ChatError(f"on_error is 'skip' or 'raise', not {on_error!r}")
    counts = GeneratorCounts() if counts is None else counts
    return _generated(iter(conversations), count_tokens, context_len, line_based, on_error == "raise", counts)


def _generated(
    conversations: Iterator[Conversation],
    count_tokens: CountTokens,
    context_len: int,
    line_based: bool,
    raising: bool,
    counts: GeneratorCounts,
) -> Iterator[str]:
    while batch := list(islice(conversations, BATCH)):
        walked = [_walk(conversation, line_based, raising, counts) for conversation in batch]
        # All pairs of the batch at once: tokenizers are at their best on many texts.
        lengths = iter(count_tokens([pair for pairs in walked for pair in pairs]))
        for conversation, pairs in zip(batch, walked, strict=True):
            sizes = list(islice(lengths, len(pairs)))
            fit = next((number for number, size in enumerate(sizes) if size > context_len), len(pairs))
            named = {"where": conversation.where or None, "id": conversation.id}
            if not pairs:
                continue
            if fit == 0:
                counts.skip(Skip.FIRST_PAIR_TOO_LONG, **named, tokens=sizes[0])
                continue
            if fit < len(pairs):
                counts.shortened += 1
                counts.pairs_dropped += len(pairs) - fit
                counts.note(Skip.LATER_PAIR_TOO_LONG, **named, pair=fit, tokens=sizes[fit])
            counts.written += 1
            counts.pairs_written += fit
            yield "".join(pairs[:fit])


def _walk(conversation: Conversation, line_based: bool, raising: bool, counts: GeneratorCounts) -> list[str]:
    """The pairs of a conversation, the first one with the system span before it; none where it is skipped."""
    counts.read += 1
    messages = conversation.messages
    named = {"where": conversation.where or None, "id": conversation.id}
    if (forged := _control_string(messages)) is not None:
        number, control = forged
        if raising:
            place = f"{conversation.where or f'conversation {counts.read - 1}'}, message {number}"
            raise ChatError(
                f"a text holds the control string {control}, which would be read as structure",
                where=place + (f", id {conversation.id}" if conversation.id is not None else ""),
                remedy="take it out of the text, or skip and count such conversations with --on-error skip",
            )
        counts.skip(Skip.CONTROL_STRING, **named, message=number, found=control)
        return []
    pairs: list[str] = []
    system: str | None = None
    number = used = 0
    while number < len(messages):
        message = messages[number]
        role = _role(message)
        if role == SYSTEM and not pairs:
            system = message.text
        if role != USER:
            number += 1
            continue
        if number + 1 == len(messages) or _role(messages[number + 1]) != ASSISTANT:
            if pairs:  # what comes after is lost with it
                counts.ended_early += 1
                after = messages[number + 1].role if number + 1 < len(messages) else None
                counts.note(Skip.UNANSWERED_USER, **named, message=number, followed_by=after)
            break
        answer = messages[number + 1]
        pair = _span(USER, message.text, line_based) + _span(ASSISTANT, answer.text, line_based)
        if not pairs and system:  # an empty one says nothing
            pair = _span(SYSTEM, system, line_based) + pair
            used += 1
        pairs.append(pair)
        used += 2
        number += 2
    if not pairs:
        counts.skip(Skip.NO_PAIR, **named)
        return []
    counts.messages_passed_over += len(messages) - used
    return pairs


def _role(message: Message) -> str | None:
    return _SAME.get(message.role, message.role) if message.role is not None else None


def _span(role: str, text: str | None, line_based: bool) -> str:
    return f"{_MARKERS[role]}{clean(text, line_based=line_based)}{END_STRING}"


def _control_string(messages: Sequence[Message]) -> tuple[int, str] | None:
    """The first control string in a text: number of the message, and which."""
    for number, message in enumerate(messages):
        if message.text is not None and "<|" in message.text:
            for control in CONTROL_STRINGS:
                if control in message.text:
                    return number, control
    return None
