"""What a chat record holds, whatever form it came in; why one makes no conversation; what options leave out of it.

In: what the modules that read forms found. Out: `ChatRecord`, `RecordRefusedError`, counts of what was dropped.
`Reading` holds the options that say how texts and keys are read.

Nothing of a record is dropped silently: each key and role is used, or travels on as metadata, or refuses the record,
or is left out because an option says so, and counted.
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
    """Every reason for which a record makes no conversation."""

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
    """A record that makes no conversation: `reason`, what is wrong with which message, and the option that helps.

    `key`: the key that has no place, where there is one.
    """

    def __init__(self, reason: Refusal, detail: str, remedy: str | None = None, key: str | None = None) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.remedy, self.key = reason, detail, remedy, key


class LeftOut(StrEnum):
    """Every reason for which a record is left out without a fault in it. No limit of refusals counts these."""

    NOT_PREFERRED = "not_preferred"


class RecordLeftOutError(Exception):
    """A record that is left out by what it says of itself."""

    def __init__(self, reason: LeftOut) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options of reading.

    think_tags   reasoning in tags: True makes analysis of it, False keeps it as text, None refuses it
    call_tags    the style in which texts write calls (`spanloom.conversations.markup.CALL_STYLES`); None refuses them
    text_as_is   markup that no option reads stays text
    metadata     keys of records and messages that travel as metadata, whatever they look like
    roles        names of roles that data sets do not share → the role that they stand for
    trained_if   keys of messages that are true where the message is trained
    masked_if    keys of messages that are true where it is not
    rendered     parser of rendered Harmony text → messages as openai-harmony's JSON has them
    """

    think_tags: bool | None = None
    call_tags: str | None = None
    text_as_is: bool = False
    metadata: frozenset[str] = frozenset()
    roles: Mapping[str, Role] = field(default_factory=dict)
    trained_if: tuple[str, ...] = ()
    masked_if: tuple[str, ...] = ()
    rendered: Callable[[str], list[dict[str, Any]]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a function. `arguments`: the text of a JSON object, as it was in the record."""

    id: str | None
    name: str
    arguments: str


@dataclass(kw_only=True, slots=True)
class Message:
    """One message, not to be changed. Frozen, it would take three times as long to make.

    texts      its content, part by part; none of them is empty
    reasoning  of an assistant, before the texts, part by part
    calls      of an assistant, after the texts, all of them at once
    call_id    of a tool: the id of the call that it answers, where it has one
    name       of a user, or of the function that a tool answers for, where the record says it
    channel    of the texts of an assistant, where the record says it
    trained    false: an assistant's message that is context alone
    """

    role: Role
    texts: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    name: str | None = None
    channel: Channel | None = None
    trained: bool = True


@dataclass(kw_only=True, slots=True)
class Turn(Message):
    """One message of a record. `number`: its place in the record, from 0. `metadata`: keys of the message that are no
    part of the conversation."""

    number: int
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRecord:
    """A record as it was read.

    turns                 all messages; a system text of the record itself is the first
    tools                 `{"name", "description", "parameters"}` of each function; the last two where there are any
    rest                  what else the record held
    settings              what the record says of the model and the moment (`conversation.SETTINGS`); None leaves a line
                          out of the render, whatever options say
    chat_template_kwargs  arguments of a chat template
    weight                how much the conversation counts in a loss
    message_metadata      of each message that has some: `{"message": its number, KEY: value, …}`
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
    """What options leave out (`names`), and how often and how many characters of it there were."""

    names: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)

    def drops(self, name: str, value: Any) -> bool:
        """Whether `name` is to be left out; if so, `value` is counted."""
        if name not in self.names:
            return False
        self.count(name, value)
        return True

    def count(self, name: str, value: Any) -> None:
        self.counts[name] += 1
        self.characters[name] += len(value) if isinstance(value, str) else len(json.dumps(value, ensure_ascii=False))


def says_nothing(value: Any) -> bool:
    """Null, and text, lists and objects that are empty: as if the key were not there."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def kind(value: Any) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
