"""One row's JSON → a checked conversation and the span of each of its messages.

In: `messages_json`, `metadata_json` and the id column of a row. Out: the row's id and its `LabelledConversation`.
Structure is checked, content is trusted, nothing is repaired: a fault raises `RowRefusedError` with its reason.

A `strict` format refuses unknown keys, which openai-harmony would silently ignore, and headers that do not read back
unchanged: a channel on a user message, an invalid tool or recipient.
"""

import re
import sys
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from spanloom.conversations.source.format import SourceFormat
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.records import strict_json
from spanloom.records.scalars import is_number
from spanloom.supervision import SPAN_CONTEXT, Flags
from spanloom.text import is_utf8

ANY_KEYS = frozenset({"role", "name", "recipient", "channel", "content_type", "content"})
"""Keys of a message that openai-harmony reads. It ignores all others."""
_PLAIN_KEYS = frozenset({"role", "channel", "content"})
"""The keys of most messages. Without a name, a recipient and a content type, only the channel needs a check."""
TOOL = re.compile(r"functions\.[A-Za-z0-9_.-]+|python|browser\.[a-z_]+")
"""Authors of tool messages and recipients of calls: functions, and the two tools that Harmony itself defines."""
CONTENT_TYPE = re.compile(r"(<\|constrain\|>)?[A-Za-z0-9_.+/-]+")
NAME = re.compile(r"[A-Za-z0-9_.-]+")
TOOL_CHANNELS = ("commentary", "analysis")
CONVERSATION_KEYS = frozenset({"messages", "weight"})
PART_KEYS = {
    "text": frozenset({"type", "text"}),
    "system_content": frozenset(
        {
            "type", "model_identity", "reasoning_effort", "conversation_start_date", "knowledge_cutoff",
            "channel_config", "tools",
        }
    ),
    "developer_content": frozenset({"type", "instructions", "tools"}),
}  # fmt: skip
"""Keys of content parts that openai-harmony reads, by type."""


@dataclass(frozen=True, kw_only=True)
class LabelledConversation:
    """Harmony message dicts, and `labels` uint8 [messages]: the span that each message's tokens belong to.

    weight     of the conversation in the loss
    untrained  assistant messages that the source marks as untrained; their label is that of context
    truncated  places of trained messages that a limit of tokens cut off; the token that ends them is not trained
    """

    messages: list[dict[str, Any]]
    labels: Flags
    weight: float = 1.0
    untrained: int = 0
    truncated: tuple[int, ...] = ()


def row_id(value: str | None, metadata_json: str | None, column: str) -> str:
    """The row's id, from its id column or from `metadata_json`; if both exist they must be equal."""
    inner = _metadata(metadata_json).get(column) if metadata_json is not None else None
    if inner is not None and not isinstance(inner, str):
        reason = Reason(f"{column}_not_string")
        raise RowRefusedError(reason, f"{column} in metadata_json is {_kind(inner)}, not a string")
    if value is not None and inner is not None and value != inner:
        raise RowRefusedError(
            Reason(f"{column}_mismatch"), f"column {column} is {value!r}, metadata_json says {inner!r}"
        )
    identity = value if value is not None else inner
    if not identity:
        fault = "empty" if identity == "" else "neither in its column nor in metadata_json"
        raise RowRefusedError(Reason(f"{column}_missing"), f"{column} is {fault}")
    if not is_utf8(identity):
        raise RowRefusedError(Reason.NOT_UTF8, f"{column} {identity!r} holds a lone surrogate")
    return identity


def parse_conversation(
    messages_json: str | bytes | None, source_format: SourceFormat, quotes: int | None = None
) -> LabelledConversation:
    """`{"messages": [...]}` → a conversation whose structure the format allows.

    A strict format may mark an assistant message with `"trained": false`, and with `"truncated": true`; these keys are
    removed from the message. It may also have a number above 0 under "weight" next to "messages".

    `quotes`: see `strict_json.loads`.

    Raises RowRefusedError: no text, not UTF-8, not JSON, a duplicate key, no list, an empty list, a message that is no
    object, an unknown role, an assistant message on another channel than the format's, no assistant message; and what a
    strict format refuses.
    """
    whole, messages = messages_of(messages_json, quotes)
    weight = None
    if source_format.strict and len(whole) > 1:
        if not CONVERSATION_KEYS.issuperset(whole):
            raise RowRefusedError(Reason.KEY_UNKNOWN, f"messages_json has the keys {', '.join(map(repr, whole))}")
        weight = whole["weight"]
        if weight is not None and not is_weight(weight):
            raise RowRefusedError(Reason.HEADER_INVALID, f"weight is {weight!r}, not a number above 0")
    conversation = labelled(messages, source_format, weight)
    if not conversation.labels.any() and not conversation.untrained:
        raise RowRefusedError(Reason.NO_ASSISTANT, "no message is from the assistant: nothing would be trained")
    return conversation


def messages_of(messages_json: str | bytes | None, quotes: int | None = None) -> tuple[dict[str, Any], list[Any]]:
    """The object of a row, and its messages, at least one; the messages are not checked. `quotes`: see
    `strict_json.loads`. Raises RowRefusedError."""
    if messages_json is None:
        raise RowRefusedError(Reason.MESSAGES_JSON_MISSING, "messages_json is null")
    whole = _parsed(messages_json, Reason.MESSAGES_JSON_INVALID, "messages_json", quotes)
    messages = whole.get("messages") if isinstance(whole, dict) else None
    if not isinstance(messages, list):
        raise RowRefusedError(Reason.NO_MESSAGES_LIST, 'messages_json must be an object with a list under "messages"')
    if not messages:
        raise RowRefusedError(Reason.NO_MESSAGES, "the list of messages is empty")
    return whole, messages


def is_weight(value: object) -> TypeGuard[float]:
    """Whether a value is a valid weight of a conversation: a number above 0 that a float holds."""
    return is_number(value) and 0 < value <= sys.float_info.max


def labelled(
    messages: list[Any], source_format: SourceFormat, weight: float | None = None, *, made: bool = False
) -> LabelledConversation:
    """Harmony messages, checked by the rules of a format: see `parse_conversation`; without one of the assistant too.

    `made`: they are made of another format, so that only a name or a recipient can be wrong; the other checks are left
    out, since they take as long as the rest. Raises RowRefusedError.
    """
    untrained: list[int] = []
    truncated: list[int] = []
    labels = bytearray(
        [_label(index, message, source_format, untrained, truncated, made) for index, message in enumerate(messages)]
    )
    for index in untrained:
        labels[index] = SPAN_CONTEXT
    return LabelledConversation(
        messages=messages,
        labels=np.frombuffer(labels, dtype=np.uint8),
        weight=1.0 if weight is None else float(weight),
        untrained=len(untrained),
        truncated=tuple([index for index in truncated if labels[index] != SPAN_CONTEXT]),
    )


def _label(
    index: int,
    message: object,
    source_format: SourceFormat,
    untrained: list[int],
    truncated: list[int],
    made: bool,
) -> int:
    """The span of a message. `untrained`, `truncated`: the messages that are marked so are added."""
    if not isinstance(message, dict):
        raise RowRefusedError(Reason.MESSAGE_NOT_OBJECT, f"message {index} is {_kind(message)}, not an object")
    role = message.get("role")
    if role not in source_format.roles:
        roles = ", ".join(source_format.roles)
        raise RowRefusedError(Reason.ROLE_UNKNOWN, f"message {index} has role {role!r}, not one of {roles}")
    if source_format.strict:
        if "trained" in message and _is_marked(index, message, "trained", False):
            untrained.append(index)
        if "truncated" in message and _is_marked(index, message, "truncated", True):
            truncated.append(index)
        if not made or "name" in message or "recipient" in message:
            check_message(index, message)
    if role != "assistant":
        return SPAN_CONTEXT
    channel = message.get("channel")
    if not isinstance(channel, str) or channel not in source_format.span_of_channel:
        *others, last = source_format.channels
        channels = f"{', '.join(others)} or {last}"
        raise RowRefusedError(
            Reason.CHANNEL_UNKNOWN, f"message {index} (assistant) has channel {channel!r}, not {channels}"
        )
    return source_format.span_of_channel[channel]


def _is_marked(index: int, message: dict[str, Any], key: str, mark: bool) -> bool:
    """Whether a message has `mark` under a key. Removes the key. Raises RowRefusedError for another value, and for a
    message that is not from the assistant."""
    value, role = message.pop(key), message["role"]
    if value is not None and (value is not mark or role != "assistant"):
        wanted = str(mark).lower()
        detail = f"message {index} ({role}) has {key} {value!r}, not {wanted} on an assistant message"
        raise RowRefusedError(Reason.HEADER_INVALID, detail)
    return value is mark


def check_message(index: int, message: dict[str, Any]) -> None:
    """Checks a message by the rules of a strict format, except its role. A key whose value is null counts as missing.

    Raises RowRefusedError."""
    is_plain = _PLAIN_KEYS.issuperset(message)
    if not is_plain and not ANY_KEYS.issuperset(message):
        unknown = ", ".join(repr(key) for key in message if key not in ANY_KEYS)
        raise RowRefusedError(Reason.KEY_UNKNOWN, f"message {index} has {unknown}, which no render would show")
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if type(part) is dict and len(part) == 2 and "text" in part and part.get("type") == "text":
                continue  # true for most messages; the others are checked in detail
            known = PART_KEYS.get(part["type"]) if isinstance(part, dict) and type(part.get("type")) is str else None
            if known is not None and not known.issuperset(part):
                unknown = ", ".join(repr(key) for key in part if key not in known)
                message_part = f"a part of message {index}"
                raise RowRefusedError(Reason.KEY_UNKNOWN, f"{message_part} has {unknown}, which no render would show")
    role = message["role"]
    if is_plain and (role == "assistant" or (role != "tool" and message.get("channel") is None)):
        return
    channel, recipient = message.get("channel"), message.get("recipient")
    name, content_type = message.get("name"), message.get("content_type")

    def refuse(field: str, value: object, wanted: str) -> RowRefusedError:
        return RowRefusedError(Reason.HEADER_INVALID, f"message {index} ({role}) has {field} {value!r}, not {wanted}")

    if role == "tool":
        if not _matches(TOOL, name):
            raise refuse("name", name, "functions.NAME or a tool of Harmony's own")
        if recipient not in (None, "assistant"):
            raise refuse("recipient", recipient, "assistant")
        if channel not in (None, *TOOL_CHANNELS):
            raise refuse("channel", channel, " or ".join(TOOL_CHANNELS))
    elif name is not None and not _matches(NAME, name):
        raise refuse("name", name, "letters, digits, _, . and -")
    if role == "assistant":
        if recipient is not None and not _matches(TOOL, recipient):
            raise refuse("recipient", recipient, "functions.NAME or a tool of Harmony's own")
        if recipient is not None and channel == "final":
            raise refuse("recipient", recipient, "none: a final answer calls no tool")
    elif role != "tool" and (channel is not None or recipient is not None):
        raise refuse("channel and recipient", (channel, recipient), "none")
    if content_type is not None and not _matches(CONTENT_TYPE, content_type):
        raise refuse("content_type", content_type, "a word such as json, or <|constrain|> and one")


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _metadata(text: str) -> dict[str, Any]:
    value = _parsed(text, Reason.METADATA_JSON_INVALID, "metadata_json")
    if not isinstance(value, dict):
        raise RowRefusedError(Reason.METADATA_JSON_INVALID, f"metadata_json is {_kind(value)}, not an object")
    return value


def _parsed(text: str | bytes, invalid: Reason, column: str, quotes: int | None = None) -> Any:
    try:
        return strict_json.loads(text, quotes)
    except strict_json.RepeatedKeyError as fault:
        raise RowRefusedError(
            Reason.DUPLICATE_KEY, f"{column} holds the key {fault.key!r} twice in one object"
        ) from None
    except UnicodeDecodeError:
        raise RowRefusedError(Reason.NOT_UTF8, f"{column} is not UTF-8") from None
    except (ValueError, RecursionError) as fault:
        raise RowRefusedError(invalid, f"{column} is not JSON: {fault}") from None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
