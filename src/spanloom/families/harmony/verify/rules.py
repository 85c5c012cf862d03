"""Which rows must be rejected, and why: a second implementation of docs/format.md, to check the rejects of a build.

In: the texts of one row. Out: `Judgement`. Shares no code with the parsing, cutting and rendering of a build, so that
it finds wrong rejections there. Its messages equal those of the build on purpose: the two are compared.
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from openai_harmony import HarmonyEncoding

from spanloom.families.harmony.verify.reference import ShownDocument, rendered_tokens, shown_documents, span_of


@dataclass(frozen=True, kw_only=True)
class _Format:
    """What the rows of a family may contain. `headers`: unknown keys and headers that cannot be parsed are refused."""

    id: str
    roles: tuple[str, ...]
    channels: tuple[str, ...]
    headers: bool
    cut: bool


_FORMATS = {
    "synth_kd": _Format(
        id="synth_id",
        roles=("system", "developer", "user", "assistant"),
        channels=("analysis", "final"),
        headers=False,
        cut=False,
    ),
    "harmony_chat": _Format(
        id="id",
        roles=("system", "developer", "user", "assistant", "tool"),
        channels=("analysis", "final", "commentary"),
        headers=True,
        cut=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`id`: None if unknown. `reason`: why the row is refused, None if it is valid."""

    id: str | None
    reason: str | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class AcceptedRow:
    """A row that no rule refuses: its id, messages, documents and weight.

    `untrained`, `truncated`: the indices of messages that are marked as such.
    """

    id: str
    messages: list[dict[str, Any]]
    untrained: frozenset[int]
    truncated: frozenset[int]
    documents: list[ShownDocument]
    weight: float


class RowRefused(Exception):
    """A row breaks a rule. Holds the reason, and the detail as it must appear in the rejects."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def judge_row(
    family: str,
    config: Mapping[str, Any],
    *,
    given_id: str | None,
    metadata_json: str | None,
    messages_json: bytes | None,
    undecodable: bool,
    encoding: HarmonyEncoding | None,
    converted: bool = False,
) -> Judgement:
    """Decides whether a row must be refused.

    `config`: of the dataset. `undecodable`: a column other than the conversation is not UTF-8. `encoding`: also render
    with openai-harmony; the detail of its refusal is empty. `converted`: from a conversation for any model, of which an
    empty message of the assistant is no message of Harmony.
    """
    row_id = given_id
    try:
        if undecodable:
            raise RowRefused("not_utf8", "a column of this row is not UTF-8")
        row_id = judged_id(family, given_id, metadata_json)
        accepted = accepted_row(family, config, parsed_messages(messages_json), row_id=row_id, converted=converted)
        if encoding is not None and any(
            rendered_tokens(document.messages, encoding) is None for document in accepted.documents
        ):
            raise RowRefused("renderer_refused", "")
    except RowRefused as refused:
        return Judgement(id=row_id, reason=refused.reason, detail=refused.detail)
    return Judgement(id=row_id)


def parsed_messages(messages_json: bytes | None) -> Any:
    """The value of the column of messages. Raises RowRefused."""
    if messages_json is None:
        raise RowRefused("messages_json_missing", "messages_json is null")
    return parsed_json(messages_json, "messages_json")


def accepted_row(family: str, config: Mapping[str, Any], value: Any, *, row_id: str, converted: bool) -> AcceptedRow:
    """A row with its documents, as the rules say. `value`: of its messages, as JSON has it; it is changed. Other
    arguments: see `judge_row`. Raises RowRefused."""
    form = _FORMATS[family]
    messages, untrained, truncated, weight = _messages(value, form)
    if not converted and all(message["role"] != "assistant" for message in messages):
        raise RowRefused("no_assistant", "no message is from the assistant: nothing would be trained")
    if form.cut:
        documents = [*shown_documents((messages, set(untrained)), config, truncated)]
        if not documents:
            raise RowRefused("nothing_trained", "no message of it is of a span that is trained")
    else:
        spans = [span_of(message) for message in messages]
        documents = [ShownDocument(cut=0, runs=[], messages=messages, spans=spans, places=[*range(len(messages))])]
    return AcceptedRow(
        id=row_id, messages=messages, untrained=untrained, truncated=truncated, documents=documents, weight=weight
    )


def refused_id(family: str, column_id: str | None, metadata_json: str | None) -> Judgement:
    """The id of a row, or the reason why it has none."""
    try:
        return Judgement(id=judged_id(family, column_id, metadata_json))
    except RowRefused as refused:
        return Judgement(id=column_id, reason=refused.reason, detail=refused.detail)


def judged_id(family: str, column_id: str | None, metadata_json: str | None) -> str:
    """The id from its column, otherwise from the metadata; the two must agree. Raises RowRefused."""
    key = _FORMATS[family].id
    other = None
    if metadata_json is not None:
        metadata = _flat_object(metadata_json) or parsed_json(metadata_json, "metadata_json")
        if type(metadata) is not dict:
            raise RowRefused("metadata_json_invalid", f"metadata_json is {_a(metadata)}, not an object")
        other = metadata.get(key)
    if other is not None:
        if type(other) is not str:
            raise RowRefused(f"{key}_not_string", f"{key} in metadata_json is {_a(other)}, not a string")
        if column_id is not None and other != column_id:
            raise RowRefused(f"{key}_mismatch", f"column {key} is {column_id!r}, metadata_json says {other!r}")
    either = other if column_id is None else column_id
    if either is None:
        raise RowRefused(f"{key}_missing", f"{key} is neither in its column nor in metadata_json")
    if either == "":
        raise RowRefused(f"{key}_missing", f"{key} is empty")
    if not either.isascii() and any(0xD800 <= ord(character) <= 0xDFFF for character in either):
        raise RowRefused("not_utf8", f"{key} {either!r} holds a lone surrogate")
    return either


def _messages(value: Any, form: _Format) -> tuple[list[dict[str, Any]], frozenset[int], frozenset[int], float]:
    """The messages of a row, the indices of those marked as not trained and as truncated, the weight. Raises
    RowRefused."""
    if type(value) is not dict or type(value.get("messages")) is not list:
        raise RowRefused("no_messages_list", 'messages_json must be an object with a list under "messages"')
    messages: list[dict[str, Any]] = value["messages"]
    if messages == []:
        raise RowRefused("no_messages", "the list of messages is empty")
    if form.headers and [key for key in value if key not in ("messages", "weight")]:
        raise RowRefused("key_unknown", f"messages_json has the keys {', '.join(repr(key) for key in value)}")
    if form.headers and value.get("weight") is not None and not _is_weight(value["weight"]):
        raise RowRefused("header_invalid", f"weight is {value['weight']!r}, not a number above 0")
    marked: dict[str, set[int]] = {"untrained": set(), "truncated": set()}
    for at, message in enumerate(messages):
        for mark in _check_message(at, message, form):
            marked[mark].add(at)
    weight = value.get("weight") if form.headers else None
    untrained, truncated = map(frozenset, marked.values())
    return messages, untrained, truncated, 1.0 if weight is None else float(weight)


def _is_weight(value: object) -> bool:
    """A finite number above 0."""
    return type(value) in (int, float) and 0 < value < math.inf and value <= sys.float_info.max  # type: ignore[operator]


def _check_message(at: int, message: Any, form: _Format) -> list[str]:
    """Removes the keys `trained` and `truncated`; returns `untrained` and `truncated`, where the message is marked as
    such. Raises RowRefused."""
    if type(message) is not dict:
        raise RowRefused("message_not_object", f"message {at} is {_a(message)}, not an object")
    role, channel = message.get("role"), message.get("channel")
    if role not in form.roles:
        raise RowRefused("role_unknown", f"message {at} has role {role!r}, not one of {', '.join(form.roles)}")
    untrained = cut_off = False
    if form.headers and "trained" in message:
        mark = message.pop("trained")
        untrained = mark is False
        if mark is not None and not (untrained and role == "assistant"):
            detail = f"message {at} ({role}) has trained {mark!r}, not false on an assistant message"
            raise RowRefused("header_invalid", detail)
    if form.headers and "truncated" in message:
        mark = message.pop("truncated")
        cut_off = mark is True
        if mark is not None and not (mark is True and role == "assistant"):
            detail = f"message {at} ({role}) has truncated {mark!r}, not true on an assistant message"
            raise RowRefused("header_invalid", detail)
    if form.headers:
        for what in _unknown_keys(at, message):
            raise RowRefused("key_unknown", f"{what}, which no render would show")
        for what, value, wanted in _wrong_headers(message):
            raise RowRefused("header_invalid", f"message {at} ({role}) has {what} {value!r}, not {wanted}")
    if role == "assistant" and channel not in form.channels:
        channels = f"{', '.join(form.channels[:-1])} or {form.channels[-1]}"
        raise RowRefused("channel_unknown", f"message {at} (assistant) has channel {channel!r}, not {channels}")
    return [name for name, mark in (("untrained", untrained), ("truncated", cut_off)) if mark]


_MESSAGE = ("role", "name", "recipient", "channel", "content_type", "content")
_PARTS = {
    "text": ("type", "text"),
    "system_content": (
        "type",
        "model_identity",
        "reasoning_effort",
        "conversation_start_date",
        "knowledge_cutoff",
        "channel_config",
        "tools",
    ),
    "developer_content": ("type", "instructions", "tools"),
}


def _unknown_keys(at: int, message: dict[str, Any]) -> Iterator[str]:
    """Keys that openai-harmony would ignore, in the message and in the parts of its content."""
    if unknown := [key for key in message if key not in _MESSAGE]:
        yield f"message {at} has {', '.join(map(repr, unknown))}"
    content = message.get("content")
    for part in content if type(content) is list else ():
        kind = part.get("type") if type(part) is dict else None
        if type(kind) is str and kind in _PARTS and (unknown := [key for key in part if key not in _PARTS[kind]]):
            yield f"a part of message {at} has {', '.join(map(repr, unknown))}"


def _wrong_headers(message: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """`(field, its value, what is allowed)` of headers that openai-harmony would not parse to the same message."""
    role, name, recipient = message["role"], message.get("name"), message.get("recipient")
    channel, content_type = message.get("channel"), message.get("content_type")
    a_tool = "functions.NAME or a tool of Harmony's own"
    if role == "tool":
        if not _is_tool(name):
            yield "name", name, a_tool
        if recipient is not None and recipient != "assistant":
            yield "recipient", recipient, "assistant"
        if channel is not None and channel != "commentary" and channel != "analysis":
            yield "channel", channel, "commentary or analysis"
    elif name is not None and not _is_word(name, "_.-"):
        yield "name", name, "letters, digits, _, . and -"
    if role == "assistant":
        if recipient is not None and not _is_tool(recipient):
            yield "recipient", recipient, a_tool
        if recipient is not None and channel == "final":
            yield "recipient", recipient, "none: a final answer calls no tool"
    elif role in ("system", "developer", "user") and not (channel is None and recipient is None):
        yield "channel and recipient", (channel, recipient), "none"
    if content_type is not None:
        word = content_type.removeprefix("<|constrain|>") if type(content_type) is str else None
        if not _is_word(word, "_.+/-"):
            yield "content_type", content_type, "a word such as json, or <|constrain|> and one"


def _is_tool(name: object) -> bool:
    """`functions.NAME`, `python` or `browser.METHOD`."""
    if type(name) is not str:
        return False
    if name.startswith("functions."):
        return _is_word(name.removeprefix("functions."), "_.-")
    return name == "python" or (name.startswith("browser.") and re.fullmatch("[_a-z]+", name[8:]) is not None)


def _is_word(value: object, others: str) -> bool:
    """At least one character, each an ASCII letter, a digit or one of `others`."""
    return (
        type(value) is str
        and value != ""
        and all(character in others or (character.isascii() and character.isalnum()) for character in value)
    )


def _flat_object(text: str) -> dict[str, Any] | None:
    """An object of texts, numbers and nulls. None where that is not seen at once, as where a key is in it twice: its
    quotes are then more than those of the keys and texts that orjson keeps."""
    if "\\" in text:
        return None
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    if type(value) is not dict or any(isinstance(each, dict | list) for each in value.values()):
        return None
    return value if text.count('"') == 2 * (len(value) + sum(type(each) is str for each in value.values())) else None


def parsed_json(text: str | bytes, column: str) -> Any:
    """Parses JSON (RFC 8259) without duplicate keys. `column`: its name, for the refusal. Raises RowRefused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise RowRefused("duplicate_key", f"{column} holds the key {twice!r} twice in one object")
        return made

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(decoded, object_pairs_hook=unique, parse_constant=no_constant)
    except UnicodeDecodeError:
        raise RowRefused("not_utf8", f"{column} is not UTF-8") from None
    except (ValueError, RecursionError) as fault:
        raise RowRefused(f"{column}_invalid", f"{column} is not JSON: {fault}") from None


def _a(value: object) -> str:
    """The type of a JSON value, with its article."""
    if value is None:
        return "null"
    for kind, words in ((bool, "a boolean"), (str, "a string"), (list, "a list"), (dict, "an object")):
        if isinstance(value, kind):
            return words
    return "a number"
