"""What a chat record holds, whatever form it came in; why one makes no conversation; what options leave out of it.

In: what the modules that read forms found. Out: `ChatRecord`, `RecordRefusedError`, counts of what was dropped.
`Reading` holds the options that say how texts and keys are read.

Nothing of a record goes without a word: each key and role is used, or travels on as metadata, or refuses the record,
or is left out because an option says so, and counted.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


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
    REASONING_TWICE = "reasoning_twice"
    REASONING_AFTER_ANSWER = "reasoning_after_answer"
    THINK_TAGS = "think_tags"
    THINK_TAGS_UNCLEAR = "think_tags_unclear"
    MARKUP = "markup"
    MARKUP_UNCLEAR = "markup_unclear"
    SYSTEM_TWICE = "system_twice"
    SYSTEM_NOT_FIRST = "system_not_first"
    TOOLS_INVALID = "tools_invalid"
    TOOL_CALL_INVALID = "tool_call_invalid"
    TOOL_CALLS_PARALLEL = "tool_calls_parallel"
    TOOL_RESULT_UNMATCHED = "tool_result_unmatched"
    ASSISTANT_EMPTY = "assistant_empty"
    ASSISTANT_FIRST = "assistant_first"
    ASSISTANT_AFTER_ANSWER = "assistant_after_answer"
    ANSWER_MISSING = "answer_missing"
    NO_ASSISTANT = "no_assistant"
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
    rendered     parser of rendered Harmony text → messages as openai-harmony's JSON has them
    """

    think_tags: bool | None = None
    call_tags: str | None = None
    text_as_is: bool = False
    metadata: frozenset[str] = frozenset()
    rendered: Callable[[str], list[dict[str, Any]]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a function. `arguments`: the text of a JSON object, as it stood in the record."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One message. `number`: its place in the record, from 0. `texts` and `reasoning`: parts, none of them empty.

    `name`: of a user, or of the function that a tool's result is of, where it was said; `call_id`: of such a result.
    `channel`: of the texts of an assistant, where the record says it. `metadata`: keys of the message that are no part
    of the conversation.
    """

    number: int
    role: Role
    texts: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    name: str | None = None
    channel: Literal["commentary", "final"] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRecord:
    """A record as it was read.

    tools             openai-harmony's tool descriptions
    rest              what else the record held
    settings          fields of the system message that the record brings itself, by openai-harmony's names
    message_metadata  of each message that has some: `{"message": its number, KEY: value, …}`
    """

    id: str | None
    turns: tuple[Turn, ...]
    instructions: str | None
    tools: tuple[dict[str, Any], ...]
    rest: dict[str, Any]
    settings: dict[str, str | None] = field(default_factory=dict)
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
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
