"""Conversations → transcripts, with the length filter.

In: conversations, a token counter. Out: one transcript per conversation that fits, and `GeneratorCounts` of the others.

    system   <|SYSTEM|>text<|END|>
    pair     <|USER|>text<|END|><|ASSISTANT|>text<|END|>

The first pair must fit into the context together with the system span, each later pair without it: a block holds no
more. The transcript ends before the first later pair that does not fit; if the first does not fit, there is none.

Nothing is dropped silently (`left_out`): what a transcript cannot hold (other keys, other roles, `<think>` tags) is
refused, or left out and counted if `GeneratorRules` allow it. Each message is written, or counted under one reason.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from spanloom.conversations.reading.markup import may_hold_markup, template_mark
from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import (
    ASSISTANT_STRING,
    CONTROL_STRINGS,
    END_STRING,
    SYSTEM_STRING,
    USER_STRING,
)
from spanloom.families.chat.transcripts.left_out import NO_ROLE, GeneratorCounts, GeneratorRules, LeftOut, Skip, Think
from spanloom.families.chat.transcripts.source import ASSISTANT, DEVELOPER, SYSTEM, USER, Conversation, Message

BATCH = 256

_MARKERS = {SYSTEM: SYSTEM_STRING, USER: USER_STRING, ASSISTANT: ASSISTANT_STRING}
_THINK_TAG = re.compile(r"</?think>", re.IGNORECASE)
_THINK_BLOCK = re.compile(r"<think>.*?</think>\s*", re.IGNORECASE | re.DOTALL)

CountTokens = Callable[[Sequence[str]], Sequence[int]]
"""Number of tokens of each text; a control string counts as one."""


def clean(text: str | None, *, line_based: bool) -> str:
    r"""Text for a transcript: null becomes "", line ends LF, spaces plain; white space at the end is trimmed.

    `line_based`: new lines become the two characters \n before the trimming, so that new lines at the end stay.
    """
    if text is None:
        return ""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")
    return (text.replace("\n", "\\n") if line_based else text).rstrip()


def generate(
    conversations: Iterable[Conversation],
    rules: GeneratorRules,
    *,
    count_tokens: CountTokens,
    line_based: bool = False,
    counts: GeneratorCounts | None = None,
) -> Iterator[str]:
    """Yields the transcripts, in order, of the conversations that have one. Updates `counts` meanwhile.

    A control string in a text would forge a span; a key, role or think tag that the rules do not name would be lost.
    Such a conversation is skipped and counted, or raises a ChatError that names it.
    """
    counts = GeneratorCounts() if counts is None else counts
    conversations = iter(conversations)
    while batch := list(islice(conversations, BATCH)):
        walked = [_judged(conversation, rules, line_based, counts) for conversation in batch]
        # All pairs of the batch at once: tokenizers are fastest on many texts.
        lengths = iter(count_tokens([pair for walk in walked if walk for pair in walk.pairs]))
        for conversation, walk in zip(batch, walked, strict=True):
            if walk is None:
                continue
            sizes = list(islice(lengths, len(walk.pairs)))
            fit = next((number for number, size in enumerate(sizes) if size > rules.context_len), len(sizes))
            named = _named(conversation)
            if fit == 0:
                counts.skip(Skip.FIRST_PAIR_TOO_LONG, len(conversation.messages), **named, tokens=sizes[0])
                continue
            if fit < len(sizes):
                counts.conversations_shortened += 1
                counts.pairs_dropped += len(sizes) - fit
                counts.messages_left_out[LeftOut.LATER_PAIR_TOO_LONG] += sum(walk.used[fit:])
                counts.note(LeftOut.LATER_PAIR_TOO_LONG, **named, pair=fit, tokens=sizes[fit])
            counts.conversations_written += 1
            counts.pairs_written += fit
            counts.messages_written += sum(walk.used[:fit])
            counts.messages_left_out.update(walk.left_out)
            if walk.ended is not None:
                reason, number, after = walk.ended
                counts.conversations_ended_early += 1
                counts.note(reason, **named, message=number, followed_by=after)
            counts.keys_dropped.update(walk.keys)
            counts.roles_dropped.update(walk.roles)
            if rules.think == "keep":
                counts.think_blocks_kept += walk.think_blocks
            else:
                counts.think_blocks_dropped += walk.think_blocks
            yield "".join(walk.pairs[:fit])


@dataclass(kw_only=True)
class _Walk:
    """A conversation with its pairs, the first including the system span, and the messages that are in no pair.

    used   messages in each pair
    ended  if the conversation ends before its last message: the reason, the message, the role after it
    """

    pairs: list[str] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    ended: tuple[LeftOut, int, str | None] | None = None
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)
    think_blocks: int = 0


def _judged(
    conversation: Conversation, rules: GeneratorRules, line_based: bool, counts: GeneratorCounts
) -> _Walk | None:
    """The pairs of a conversation; None if it is skipped. Raises ChatError if it is refused."""
    counts.conversations_read += 1
    if DEVELOPER not in rules.drop and any(message.role == DEVELOPER for message in conversation.messages):
        conversation = replace(conversation, messages=tuple(map(_instructing, conversation.messages)))
    messages = conversation.messages
    counts.messages_read += len(messages)
    if not conversation.preferred:
        counts.skip(Skip.NOT_PREFERRED, len(messages), **_named(conversation))
        return None
    fault = _control_string(messages, rules) or _without_a_place(conversation, rules)
    if fault is not None:
        if rules.on_error == "raise" or (rules.on_error is None and fault.reason is not Skip.CONTROL_STRING):
            place = conversation.where or f"conversation {counts.conversations_read - 1}"
            place += f", message {fault.message}" if fault.message is not None else ""
            place += f", id {conversation.id}" if conversation.id is not None else ""
            raise ChatError(fault.what, where=place, remedy=fault.remedy)
        counts.skip(
            fault.reason, len(messages), **_named(conversation), message=fault.message, found=", ".join(fault.found)
        )
        return None
    walk = _walk(conversation, rules, line_based)
    if not walk.pairs:
        empty = walk.ended is not None and walk.ended[0] is LeftOut.EMPTY_ANSWER
        counts.skip(Skip.EMPTY_ANSWER if empty else Skip.NO_PAIR, len(messages), **_named(conversation))
        return None
    return walk


def _instructing(message: Message) -> Message:
    """A developer's message as a system message, of which a transcript has one."""
    return replace(message, role=SYSTEM) if message.role == DEVELOPER else message


def _named(conversation: Conversation) -> dict[str, str | None]:
    return {"where": conversation.where or None, "id": conversation.id}


def _walk(conversation: Conversation, rules: GeneratorRules, line_based: bool) -> _Walk:
    messages = conversation.messages
    walk = _Walk()
    walk.keys.update(conversation.unused)
    for message in messages:
        walk.keys.update(message.unused)
    system: str | None = None
    systems = number = 0
    while number < len(messages):
        message = messages[number]
        if message.role == USER:
            answered = number + 1 < len(messages) and messages[number + 1].role == ASSISTANT
            answer = _answer(messages[number + 1], rules, walk) if answered else ""
            if not answered or not (answer.strip() or rules.empty_answers):
                reason = LeftOut.EMPTY_ANSWER if answered else LeftOut.UNANSWERED_USER
                after = messages[number + 1].role if number + 1 < len(messages) else None
                gone = 2 if answered else 1
                walk.ended = (reason, number, after)
                walk.left_out[reason] += gone
                walk.left_out[LeftOut.AFTER_THE_END] += len(messages) - number - gone
                break
            pair = _span(USER, message.text, line_based) + _span(ASSISTANT, answer, line_based)
            if not walk.pairs:
                if with_system := bool(system and clean(system, line_based=False)):
                    pair = _span(SYSTEM, system, line_based) + pair
                walk.left_out[LeftOut.SYSTEM_REPLACED] += max(0, systems - 1)
                walk.left_out[LeftOut.SYSTEM_EMPTY] += 1 if systems and not with_system else 0
                walk.used.append(3 if with_system else 2)
            else:
                walk.used.append(2)
            walk.pairs.append(pair)
            number += 2
            continue
        if message.role == SYSTEM and not walk.pairs:
            system, systems = message.text, systems + 1
        elif message.role == SYSTEM:
            walk.left_out[LeftOut.SYSTEM_LATE] += 1
        elif message.role == ASSISTANT:
            walk.left_out[LeftOut.ANSWER_WITHOUT_QUESTION] += 1
        else:
            walk.left_out[LeftOut.DROPPED_ROLE] += 1
        number += 1
    walk.roles.update(name for message in messages if (name := _unknown(message)) is not None)
    return walk


def _answer(message: Message, rules: GeneratorRules, walk: _Walk) -> str:
    """The text of an answer, without its think blocks if the rules drop them."""
    text = message.text or ""
    if not _THINK_TAG.search(text):
        return text
    walk.think_blocks += len(_THINK_BLOCK.findall(text))
    return _THINK_BLOCK.sub("", text) if rules.think == "drop" else text


def _unknown(message: Message) -> str | None:
    """The name of a role without a marker; None for the three roles that have one."""
    if message.role in _MARKERS:
        return None
    return NO_ROLE if message.role is None else message.role


def _span(role: str, text: str | None, line_based: bool) -> str:
    return f"{_MARKERS[role]}{clean(text, line_based=line_based)}{END_STRING}"


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """Why a conversation is refused: the message, what was found, and the remedy."""

    reason: Skip
    what: str
    message: int | None
    found: tuple[str, ...]
    remedy: str


def _control_string(messages: Sequence[Message], rules: GeneratorRules) -> _Fault | None:
    """The first control string in a text, or in the rest of it after think blocks are dropped."""
    for number, message in enumerate(messages):
        text = message.text or ""
        if rules.think == "drop" and "think>" in text.lower():
            text += "\n" + _THINK_BLOCK.sub("", text)
        if "<|" in text:
            for control in CONTROL_STRINGS:
                if control in text:
                    return _Fault(
                        reason=Skip.CONTROL_STRING,
                        what=f"a text holds the control string {control}, which would be read as structure",
                        message=number,
                        found=(control,),
                        remedy="take it out of the text, or skip and count such conversations with --on-error skip",
                    )
    return None


def _without_a_place(conversation: Conversation, rules: GeneratorRules) -> _Fault | None:
    """What a transcript cannot hold and no option drops: all such keys, else all such roles, else a think tag."""
    numbered = [(None, conversation.unused), *((n, message.unused) for n, message in enumerate(conversation.messages))]
    keys = [(number, key) for number, unused in numbered for key in unused if key not in rules.drop]
    roles = [(n, name) for n, message in enumerate(conversation.messages) if (name := _unknown(message)) is not None]
    roles = [(number, name) for number, name in roles if name not in rules.drop]
    for reason, unplaced, called in ((Skip.UNUSED_KEY, keys, "key"), (Skip.UNKNOWN_ROLE, roles, "role")):
        if not unplaced:
            continue
        names = tuple(dict.fromkeys(name for _, name in unplaced))
        flags = [flag for message in conversation.messages for flag in message.flags if flag in names]
        return _Fault(
            reason=reason,
            what=f"a transcript has no place for the {called}{'s' if len(names) > 1 else ''} {', '.join(names)}",
            message=unplaced[0][0],
            found=names,
            remedy=f"if {flags[0]!r} says whether the message is trained, rename it to train (true: trained); "
            "--on-error skip skips and counts such conversations"
            if flags
            else f"leave out and count these with --drop {','.join(names)}, or skip and count such "
            "conversations with --on-error skip; a Harmony dataset can hold reasoning and tools",
        )
    for number, message in enumerate(conversation.messages):
        if message.role == ASSISTANT and (message.truncated or not message.trained):
            reason = Skip.UNTRAINED if not message.trained else Skip.TRUNCATED
            is_ = "is marked as not to be trained" if not message.trained else "was cut off by a limit of tokens"
            return _Fault(
                reason=reason,
                what=f"the answer {is_}, and a transcript trains each answer with its end",
                message=number,
                found=(reason.value,),
                remedy="skip and count such conversations with --on-error skip; a Harmony dataset can hold them",
            )
        text = message.text or ""
        if (
            message.role == ASSISTANT
            and not rules.text_as_is
            and may_hold_markup(text)
            and (mark := template_mark(text))
        ):
            return _Fault(
                reason=Skip.MARKUP,
                what=f"the answer holds {mark}, as chat templates write it, which would be trained as its text",
                message=number,
                found=(mark,),
                remedy="--text-as-is keeps it as text, or skip and count such conversations with --on-error skip",
            )
        if message.role == ASSISTANT and (tag := _stray_tag(message.text or "", rules.think)) is not None:
            half = rules.think == "drop"
            return _Fault(
                reason=Skip.THINK_TAG,
                what=f"the answer holds {tag}" + (" without the other half of its pair" if half else ""),
                message=number,
                found=(tag,),
                remedy=("fix it, " if half else "leave reasoning out and count it with --think drop, ")
                + "train it as a part of the answer with --think keep, or skip such conversations with --on-error skip",
            )
    return None


def _stray_tag(text: str, think: Think) -> str | None:
    """The first think tag that is refused: any, or with "drop" one outside of complete think blocks."""
    if think == "keep" or "think>" not in text.lower():
        return None
    match = _THINK_TAG.search(_THINK_BLOCK.sub("", text) if think == "drop" else text)
    return match[0] if match else None
