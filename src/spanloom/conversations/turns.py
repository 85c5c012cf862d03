"""The content of a chat record, independent of its form; the reasons to refuse one; what options leave out.

In: what the readers of forms found. Out: `ChatRecord`, `RecordRefusedError`, counts of dropped keys. `Reading` holds
the options that say how texts and keys are read.

Nothing in a record is dropped silently. Each key and role is used, or kept as metadata, or refuses the record, or is
left out by an option and counted.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]
Channel = Literal["commentary", "final"]


class Refusal(StrEnum):
    """All reasons to refuse a record."""

    UNREADABLE = "unreadable"
    NO_MESSAGES = "no_messages"
    ID_INVALID = "id_invalid"
    ID_REPEATED = "id_repeated"
    MESSAGE_NOT_OBJECT = "message_not_object"
    ROLE_UNKNOWN = "role_unknown"
    KEY_UNKNOWN = "key_unknown"
    PART_UNKNOWN = "part_unknown"
    CONTENT_NOT_TEXT = "content_not_text"
    CONTENT_MISSING = "content_missing"
    WEIGHT_ZERO = "weight_zero"
    MEDIA = "media"
    INPUT_BESIDE = "input_beside"
    ANSWER_BESIDE = "answer_beside"
    LABEL_UNCLEAR = "label_unclear"
    SETTING_INVALID = "setting_invalid"
    WEIGHT_INVALID = "weight_invalid"
    REASONING_TWICE = "reasoning_twice"
    REASONING_AFTER_ANSWER = "reasoning_after_answer"
    THINK_TAGS = "think_tags"
    THINK_TAGS_UNCLEAR = "think_tags_unclear"
    MARKUP = "markup"
    MARKUP_UNCLEAR = "markup_unclear"
    SYSTEM_TWICE = "system_twice"
    SYSTEM_NOT_FIRST = "system_not_first"
    EFFORT_UNKNOWN = "effort_unknown"
    TOOLS_INVALID = "tools_invalid"
    TOOL_CALL_INVALID = "tool_call_invalid"
    TOOL_CALLS_PARALLEL = "tool_calls_parallel"
    TOOL_RESULT_UNMATCHED = "tool_result_unmatched"
    ASSISTANT_EMPTY = "assistant_empty"
    ASSISTANT_FIRST = "assistant_first"
    ASSISTANT_AFTER_ANSWER = "assistant_after_answer"
    ANSWER_MISSING = "answer_missing"
    NO_ASSISTANT = "no_assistant"
    NOTHING_TRAINED = "nothing_trained"
    UNANSWERED = "unanswered"


class RecordRefusedError(Exception):
    """A record that cannot become a conversation: `reason`, what is wrong with which message, and a remedy.

    `key`: the unsupported key, if that is the reason.
    """

    def __init__(self, reason: Refusal, detail: str, remedy: str | None = None, key: str | None = None) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.remedy, self.key = reason, detail, remedy, key


class LeftOut(StrEnum):
    """All reasons to leave out a valid record. These do not count towards `--max-rejects`."""

    NOT_PREFERRED = "not_preferred"
    DUPLICATE_CONTENT = "duplicate_content"


class RecordLeftOutError(Exception):
    """A record that is left out: because of its own flag, or because an earlier one has its content."""

    def __init__(self, reason: LeftOut) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options that say how records are read.

    think_tags   reasoning in tags: True reads it as reasoning, False keeps it as text, None refuses it
    call_tags    the style of calls in texts (`spanloom.conversations.reading.markup.CALL_STYLES`); None refuses them
    text_as_is   unread markup stays text
    metadata     keys of records and messages that are kept as metadata, whatever their value
    roles        unusual names of roles → role
    trained_if   keys of messages that are true if the message is trained
    masked_if    keys of messages that are true if the message is not trained
    rendered     parser: rendered Harmony text → messages as in openai-harmony's JSON
    own_marks    marks that belong to the texts of the format that is written; they are no markup
    """

    think_tags: bool | None = None
    call_tags: str | None = None
    text_as_is: bool = False
    metadata: frozenset[str] = frozenset()
    roles: Mapping[str, Role] = field(default_factory=dict)
    trained_if: tuple[str, ...] = ()
    masked_if: tuple[str, ...] = ()
    rendered: Callable[[str], list[dict[str, Any]]] | None = None
    own_marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A function call. `arguments`: the text of a JSON object, as in the record."""

    id: str | None
    name: str
    arguments: str
    nulls: bool = field(default=False, compare=False)
    """The arguments were an object with nulls, which may be padding."""


@dataclass(kw_only=True, slots=True)
class Message:
    """One message. Treat it as immutable; a frozen class would take three times as long to create.

    texts      its content, part by part; no part is empty
    reasoning  of an assistant: comes before the texts, part by part
    calls      of an assistant: come after the texts, all in parallel
    call_id    of a tool: the id of the answered call, if known
    name       of a user, or of the function whose result a tool message holds; if the record has one
    channel    of an assistant's texts, if the record has one
    trained    false: an assistant message that is only context
    truncated  true: an assistant message that a limit of tokens cut off; its end is not the model's
    """

    role: Role
    texts: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    name: str | None = None
    channel: Channel | None = None
    trained: bool = True
    truncated: bool = False


@dataclass(kw_only=True, slots=True)
class Turn(Message):
    """One message of a record. `number`: its position in the record, from 0. `metadata`: keys of the message that are
    not part of the conversation. `is_part`: a part of an assistant message that the record's form writes as several."""

    number: int
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    is_part: bool = False


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRecord:
    """A record as read.

    turns                 all messages; a system text of the record itself comes first
    tools                 `{"name", "description", "parameters"}` of each function; the last two only if present
    rest                  all other keys of the record
    settings              the record's facts about the model and the date (`conversation.SETTINGS`); None leaves a line
                          out of the render, whatever options say
    chat_template_kwargs  arguments of a chat template
    weight                the weight of the conversation in a loss
    message_metadata      for each message with metadata: `{"message": its number, KEY: value, …}`
    """

    id: str | None
    turns: tuple[Turn, ...]
    tools: tuple[dict[str, Any], ...]
    rest: dict[str, Any]
    settings: dict[str, str | None] = field(default_factory=dict)
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    weight: float | None = None
    message_metadata: tuple[dict[str, Any], ...] = ()


@dataclass(kw_only=True)
class Dropping:
    """The names that options leave out; for each, how often it occurred and how many characters it had.

    `read_as`: what was read otherwise than it is written, by name: `RENDERED`, `PADDING`.
    """

    names: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)
    read_as: dict[str, int] = field(default_factory=dict)

    def drops(self, name: str, value: Any) -> bool:
        """Whether `name` is left out; if so, counts `value`."""
        if name not in self.names:
            return False
        self.count(name, value)
        return True

    def note(self, name: str, times: int = 1) -> None:
        """Counts something that is read otherwise than it is written."""
        self.read_as[name] = self.read_as.get(name, 0) + times

    def count(self, name: str, value: Any) -> None:
        self.counts[name] += 1
        self.characters[name] += len(value) if isinstance(value, str) else len(json.dumps(value, ensure_ascii=False))


RENDERED = "rendered_harmony"
"""An answer that is rendered text of Harmony, read as its messages."""
PADDING = "null_padding"
"""A null that Arrow wrote for an absent key, removed."""


def says_nothing(value: Any) -> bool:
    """True for null, and for empty text, lists and objects: the same as a missing key."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def kind(value: Any) -> str:
    """JSON's name for the type of a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
