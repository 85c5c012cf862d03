"""JSONL, JSON and Parquet in many layouts → conversations with role and text.

In: a file or a folder. Out: a stream of `Conversation`, each with its place.

The names that datasets commonly use are recognised: a conversation is a list of messages, by itself or under one of
`CONVERSATION_KEYS`; a message has its role under one of `ROLE_KEYS`, its text under one of `TEXT_KEYS`. Nothing is
refused or lost here: an unknown role stays as it is, and each key with a value that was not read is in `unused`. The
generator decides how to handle them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.errors import ChatError, SourceError
from spanloom.records.files import OnUnreadable, find_files, stop
from spanloom.records.json_array import is_json_lines, json_array
from spanloom.records.json_lines import json_lines, unique_keys
from spanloom.records.parquet import parquet_rows, parquet_schema

_DATA = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
_JSON = (".json", ".json.gz", ".json.zst")
SUFFIXES = (*_DATA, *_JSON)
CONVERSATION_KEYS = ("messages", "conversations", "conversation", "turns")
ROLE_KEYS = ("role", "from", "speaker")
TEXT_KEYS = ("content", "text", "value")
ID_KEYS = ("id", "conversation_id", "uuid")

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLE_NAMES = {
    "system": SYSTEM,
    "user": USER,
    "prompter": USER,
    "human": USER,
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "bot": ASSISTANT,
    "model": ASSISTANT,
}
"""Names of the three roles in datasets. Any other name is an unknown role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """`role` as in `ROLE_NAMES`, else the original value; None if there was none. `text` is None if it was null.

    `unused`: keys of the message with a value, other than its role and text.
    """

    role: str | None
    text: str | None
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """Messages in order, with the place of the record for error messages, and its id if it has one.

    `unused`: keys of the record with a value, other than its messages and id.
    """

    messages: tuple[Message, ...]
    where: str = ""
    id: str | None = None
    unused: tuple[str, ...] = ()


def read_conversations(source: Path, unreadable: OnUnreadable = stop) -> Iterator[Conversation]:
    """All conversations of a file or a folder, streamed, in the order of files and lines.

    Raises SourceError for files that are missing or cannot be opened. Other records go to `unreadable`.
    """
    for path in conversation_files(source):
        if path.suffix == ".parquet":
            rows = _parquet(path, unreadable)
        elif path.name.endswith(_JSON) and not is_json_lines(path):
            rows = json_array(path, unreadable)
        else:
            rows = json_lines(path, unreadable, repeated_keys="refuse")
        for where, row in rows:
            try:
                yield conversation_of(row, where)
            except ChatError as error:
                unreadable(error)


def conversation_files(source: Path) -> list[Path]:
    """The file, or the files of a folder. `.json` is read only if there is no other: beside data it is a description.

    Raises SourceError if there are none.
    """
    if source.is_dir():
        try:
            return find_files(source, _DATA)
        except SourceError:
            pass  # the error below names the files that exist
    return find_files(source, SUFFIXES)


def conversation_of(row: Any, where: str = "") -> Conversation:
    """A conversation from a JSON value: a list of messages, or an object with such a list. Raises ChatError."""
    messages, identity = row, None
    unused: tuple[str, ...] = ()
    if isinstance(row, dict):
        # Tests for null, not for presence: Parquet gives every row all columns.
        key = _key(row, CONVERSATION_KEYS) or next((key for key in CONVERSATION_KEYS if key in row), None)
        if key is None:
            raise ChatError(f"the record has none of {', '.join(CONVERSATION_KEYS)}", where=where, remedy=_SHAPE)
        messages = row[key]
        ids = [name for name in ID_KEYS if isinstance(row.get(name), str | int)]
        identity = next((row[name] for name in ids), None)
        unused = _unused(row, {key, *ids})
        if isinstance(messages, str):
            messages = _parsed(messages, where)
    if messages is None:
        messages = []
    if not isinstance(messages, list):
        raise ChatError(f"the conversation is no list of messages but {_kind(messages)}", where=where, remedy=_SHAPE)
    return Conversation(
        messages=tuple(_message(message, where, number) for number, message in enumerate(messages)),
        where=where,
        id=None if identity is None else str(identity),
        unused=unused,
    )


_SHAPE = 'give records such as {"messages": [{"role": "user", "content": "…"}, …]}'


def _message(message: Any, where: str, number: int) -> Message:
    place = f"{where}, message {number}"
    if not isinstance(message, dict):
        raise ChatError(f"the message is no object but {_kind(message)}", where=place, remedy=_SHAPE)
    role_key, text_key = _key(message, ROLE_KEYS), _key(message, TEXT_KEYS)
    role = message[role_key] if role_key else None
    if role is not None and not isinstance(role, str):
        raise ChatError(f"the role is no text but {_kind(role)}", where=place, remedy=_SHAPE)
    if role is not None:
        role = ROLE_NAMES.get(role.strip().lower(), role)
    text, parts = _text(message[text_key] if text_key else None, place)
    # A second key with the same value, such as `from` beside `role`, adds nothing.
    read = {key for keys, chosen in ((ROLE_KEYS, role_key), (TEXT_KEYS, text_key)) if chosen for key in keys
            if message.get(key) == message[chosen]}  # fmt: skip
    return Message(role=role, text=text, unused=(*_unused(message, read), *parts))


def _key(value: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of `keys` with a value other than null."""
    return next((key for key in keys if value.get(key) is not None), None)


def _unused(value: dict[str, Any], read: set[str]) -> tuple[str, ...]:
    """The other keys that have a value."""
    return tuple(key for key, content in value.items() if key not in read and _says_something(content))


def _says_something(value: Any) -> bool:
    """Whether a value is more than null, "" and containers of these: Parquet fills structs with nulls."""
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_says_something, value))
    return value is not None and value != ""


def _text(value: Any, place: str) -> tuple[str | None, tuple[str, ...]]:
    """Text, or the concatenated text parts; and the keys of parts that are not text."""
    unused: tuple[str, ...] = ()
    if isinstance(value, list):
        parts: list[Any] = [part.get("text") if isinstance(part, dict) else part for part in value]
        kinds = {str(part.get("type") or "text") for part in value if isinstance(part, dict)}
        if not kinds <= {"text"} or not all(isinstance(part, str) for part in parts):
            others = ", ".join(sorted(kinds - {"text"}))
            raise ChatError(
                f"the message holds something else than text{others and ': ' + others}",
                where=place,
                remedy="give text alone",
            )
        unused = tuple(key for part in value if isinstance(part, dict) for key in _unused(part, {"type", "text"}))
        value = "".join(parts)
    if value is not None and not isinstance(value, str):
        raise ChatError(f"the text of the message is {_kind(value)}", where=place, remedy="give text alone")
    return value, unused


def _parquet(path: Path, unreadable: OnUnreadable) -> Iterator[tuple[str, Any]]:
    names = parquet_schema(path).names
    if not set(CONVERSATION_KEYS) & set(names):
        raise SourceError(
            f"no column is named {', '.join(CONVERSATION_KEYS)}; there are {', '.join(names)}",
            where=str(path),
            remedy="name the column of messages so",
        )
    for where, values in parquet_rows(path, names, unreadable):
        yield where, dict(zip(names, values, strict=True))


def _parsed(text: str, where: str) -> Any:
    try:
        return unique_keys(text.encode())
    except (ValueError, RecursionError) as fault:
        raise ChatError(f"the conversation is text that is not JSON: {fault}", where=where, remedy=_SHAPE) from None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
