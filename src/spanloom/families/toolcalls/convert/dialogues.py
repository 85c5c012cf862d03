"""Records of chat data, as `spanloom.conversations` reads them → messages of a sample, and the texts of its answers.

In: a record of any form, or a list of messages; the options. Out: a `Dialogue`. Calls are written into the text in
Llama 3.1's format, so that every template renders them:

    Let me look.<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|>

A sample holds role, text and calls. Reasoning, names and other keys of messages are left out and counted. What cannot
be left out leaves out the record, under the name of the refusal.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from spanloom.conversations.arranged import joined_turns
from spanloom.conversations.forms import Form, ReadingOptions, read_record
from spanloom.conversations.forms.message_lists import OPENAI
from spanloom.conversations.reading.flags import SET_ASIDE
from spanloom.conversations.reading.markup import without_think_tags
from spanloom.conversations.reading.tools import ARGUMENTS
from spanloom.conversations.turns import (
    ChatRecord,
    Dropping,
    Reading,
    RecordLeftOutError,
    RecordRefusedError,
    Refusal,
    Turn,
)
from spanloom.errors import SourceError
from spanloom.families.toolcalls.convert.drafts import Options, UnusableError
from spanloom.families.toolcalls.format.control import END_TOKENS, EOM, PYTHON_TAG

REASONING = "reasoning"
"""The name under which thoughts that are left out are counted."""
TRUNCATED, IN_A_ROW = "truncated", "assistant_in_a_row"
"""Reasons to leave out an answer, besides those of `Refusal`."""
ENCRYPTED = frozenset({"part:redacted_thinking"})
"""Thoughts without a text, which are left out and counted too."""

OWN_MARKS = (PYTHON_TAG, *END_TOKENS)
"""What an answer may hold that is written in the format of samples already."""

_ROLES = {"developer": "system"}
"""Roles that samples do not have → theirs."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """The messages of a record as a sample holds them, and the turn that each was made of.

    Messages without a text are left out, except the assistant's that had only a thought: such a turn has no answer.
    `in_a_row`: the numbers of the assistant's messages beside another one. `dropped`: what was left out.
    """

    messages: Sequence[dict[str, str]]
    turns: Sequence[Turn]
    in_a_row: frozenset[int]
    dropped: Dropping


def read_messages(
    messages: Any, options: Options, *, metadata: frozenset[str] = frozenset(), think_tags: bool | None = None
) -> Dialogue:
    """Reads a list of messages. `metadata`: keys that the source has besides; `think_tags`: if no option says it.

    Raises UnusableError.
    """
    if not isinstance(messages, list) or not any(message is not None for message in messages):
        raise UnusableError("no messages")
    form = _form_of_lists(options.reading)
    chat, dropping = read_chat({form.keys.names["messages"][0]: messages}, form, options, metadata, think_tags)
    return dialogue_of(chat, dropping, options)


def read_chat(
    record: Mapping[str, Any],
    form: Form,
    options: Options,
    metadata: frozenset[str] = frozenset(),
    think_tags: bool | None = None,
) -> tuple[ChatRecord, Dropping]:
    """Reads a record of a form, and what options left out of it. Raises UnusableError."""
    dropping = Dropping(names=frozenset(options.reading.drop))
    if _may_be_encrypted(record):
        dropping.names |= ENCRYPTED
    try:
        return read_record(record, form, _reading(options.reading, metadata, think_tags), dropping), dropping
    except RecordRefusedError as refused:
        raise unusable(refused) from None
    except RecordLeftOutError as own:
        raise UnusableError(own.reason.value) from None


@lru_cache(maxsize=8)
def _form_of_lists(options: ReadingOptions) -> Form:
    return Form(kind=OPENAI, keys=options.keys.of_form(OPENAI.names))


@lru_cache(maxsize=8)
def _reading(options: ReadingOptions, metadata: frozenset[str], think_tags: bool | None) -> Reading:
    reading = replace(options.reading(), own_marks=OWN_MARKS)
    if think_tags is not None and reading.think_tags is None and "think" not in options.drop:
        reading = replace(reading, think_tags=think_tags)
    return replace(reading, metadata=reading.metadata | metadata) if metadata else reading


def _may_be_encrypted(record: Mapping[str, Any]) -> bool:
    """Whether a message has parts. Others are read faster without names to leave out."""
    for messages in record.values():
        for message in messages if isinstance(messages, list) else ():
            if type(message) is dict and type(message.get("content")) is list:
                return True
    return False


def as_called(calls: Any, *bookkeeping: str) -> Any:
    """The calls of a run without these keys; objects of arguments become JSON text, whose nulls the model wrote.

    In an object they may be padding of Arrow, but runs are published as JSON. Anything else is unchanged.
    """
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return calls
    return [_with_text({key: value for key, value in call.items() if key not in bookkeeping}) for call in calls]


def _with_text(call: dict[str, Any]) -> dict[str, Any]:
    if isinstance(call.get("function"), dict):
        return {**call, "function": _with_text(call["function"])}
    texts = {key: json.dumps(call[key], ensure_ascii=False) for key in ARGUMENTS if isinstance(call.get(key), dict)}
    return {**call, **texts}


def unusable(refused: RecordRefusedError | SourceError) -> UnusableError:
    """A refusal of the reader as the reason to leave the record out."""
    if isinstance(refused, SourceError):
        detail = refused.what.replace("the first record", "the record")  # here each record has its own form
        return UnusableError("no messages", detail=detail, remedy=refused.remedy)
    remedy = (refused.remedy or "").replace(SET_ASIDE, "").strip(" ,;:")  # here such records are always set aside
    return UnusableError(refused.reason.value, detail=refused.detail, remedy=remedy or None)


def dialogue_of(chat: ChatRecord, dropping: Dropping, options: Options) -> Dialogue:
    """The messages of a record that was read."""
    turns = list(joined_turns(chat.turns)) if options.join_consecutive else chat.turns
    messages: list[dict[str, str]] = []
    kept: list[Turn] = []
    in_a_row: set[int] = set()
    before: int | None = None  # the number of the assistant's message directly before this turn
    for number, turn in enumerate(turns):
        if turn.reasoning or turn.metadata or turn.name is not None:
            _count_left_out(turn, dropping)
        text = turn_text(turn)
        blank = not text or text.isspace()
        if turn.role != "assistant":
            before = None
        elif not blank:
            in_a_row |= {before, len(messages)} if before is not None else set()
            before = len(messages)
        if blank:
            following = turns[number + 1].role if number + 1 < len(turns) else None
            if not turn.reasoning or following == "assistant":
                continue
            text = ""
        messages.append({"role": _ROLES.get(turn.role, turn.role), "content": text})
        kept.append(turn)
    return Dialogue(messages=messages, turns=kept, in_a_row=frozenset(in_a_row), dropped=dropping)


def _count_left_out(turn: Turn, dropping: Dropping) -> None:
    if turn.reasoning:
        dropping.count(REASONING, "".join(turn.reasoning))
    if turn.role == "user" and turn.name is not None:
        dropping.count("message.name", turn.name)
    for key, value in turn.metadata.items():
        dropping.count(f"message.{key}", value)


def turn_text(turn: Turn) -> str:
    """The text of a turn: its parts on lines of their own, then each call, after the tag and before an end token."""
    text = turn.texts[0] if len(turn.texts) == 1 else "\n".join(turn.texts)
    for call in turn.calls:
        written = {"name": call.name, "parameters": json.loads(call.arguments)}
        text += f"{PYTHON_TAG}{json.dumps(written, ensure_ascii=False)}{EOM}"
    return text


def without_thoughts(text: str, options: Options) -> tuple[str, Dropping]:
    """The text of a completion without its thought in tags, and what was left out. Raises UnusableError."""
    dropping = Dropping(names=frozenset(options.reading.drop))
    try:
        thought, texts = without_think_tags(
            (text,), "the completion", _reading(options.reading, frozenset(), None), dropping
        )
    except RecordRefusedError as refused:
        raise unusable(refused) from None
    if thought:
        dropping.count(REASONING, "".join(thought))
    if not texts:
        raise UnusableError(Refusal.ANSWER_MISSING.value)
    return "".join(texts), dropping


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """An answer, and the messages before it."""

    messages: Sequence[dict[str, str]]
    answer: str
    dropped: Dropping


def exchanges(dialogue: Dialogue, options: Options, *, calling: bool = False) -> Iterator[Exchange | UnusableError]:
    """The last answer of a dialogue, or each with `turns="all"`; for one that gives no sample, the reason.

    `calling`: of the answers, the last that calls a tool, if there is one. A turn that is marked as untrained is only
    context, and a turn at position 0 answers nothing. Raises UnusableError if there are no answers.
    """
    turns = dialogue.turns
    answers = [number for number, turn in enumerate(turns) if turn.role == "assistant" and number]
    if not answers:
        raise UnusableError("no assistant turn")
    answers = [number for number in answers if turns[number].trained]
    if not answers:
        raise UnusableError(Refusal.NOTHING_TRAINED.value, detail="all answers are marked as not to be trained")
    if options.turns == "last":
        called = [number for number in answers if turns[number].calls] if calling else []
        answers = (called or answers)[-1:]
    for number in answers:
        if (fault := answer_fault(turns[number])) is not None:
            yield fault
        elif number in dialogue.in_a_row:
            yield UnusableError(
                IN_A_ROW,
                detail=f"message {turns[number].number} is beside another message of the assistant: a stop would be "
                "trained between the two",
                remedy="--join-consecutive makes one message of both",
            )
        else:
            yield Exchange(
                messages=[message for message in dialogue.messages[:number] if message["content"]],
                answer=dialogue.messages[number]["content"],
                dropped=dialogue.dropped,
            )


def answer_fault(turn: Turn) -> UnusableError | None:
    """Why a turn is no answer that can be trained to its end; None if it is one."""
    where = f"message {turn.number}"
    if not turn.trained:
        return UnusableError(Refusal.NOTHING_TRAINED.value, detail=f"{where} is marked as not to be trained")
    if turn.truncated:
        return UnusableError(
            TRUNCATED, detail=f"{where} was cut off by a limit of tokens, and a sample trains an answer with its end"
        )
    if not (turn.texts or turn.calls):
        return UnusableError(Refusal.ANSWER_MISSING.value, detail=f"{where} has reasoning without an answer or a call")
    return None
