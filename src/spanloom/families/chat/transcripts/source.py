"""Files of chat data of any form → conversations with role and text.

In: a file or a folder. Out: a stream of `Conversation`, each with its place.

Records are read as `spanloom convert` reads them (`spanloom.conversations`): the same files, forms, roles, flags. A
transcript holds less than such a conversation: what it cannot hold, such as reasoning, calls, tools and other keys, is
named in `unused`, and so are unknown roles. The generator decides how to handle them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from spanloom.conversations.forms import Form, KeyMap, key_map, read_record, recognise, used_keys
from spanloom.conversations.forms.beside import flags_record
from spanloom.conversations.forms.keys import KNOWN_NAMES
from spanloom.conversations.forms.message_lists import OPENAI, SHAREGPT
from spanloom.conversations.outcomes import in_file
from spanloom.conversations.reading.flags import ENDS, NOT_DROPPED, OF_ENDS, like_flag
from spanloom.conversations.reading.harmony import Part
from spanloom.conversations.reading.messages import (
    CALL_ROLES,
    REASONING_KEYS,
    REASONING_ROLES,
    ROLE_KEYS,
    ROLES,
    TEXT_KEYS,
    turns_of,
)
from spanloom.conversations.reading.verdicts import is_doubtful
from spanloom.conversations.turns import (
    Dropping,
    Reading,
    RecordLeftOutError,
    RecordRefusedError,
    Refusal,
    Role,
    Turn,
    kind,
)
from spanloom.errors import ChatError, SourceError
from spanloom.records.files import OnUnreadable, stop
from spanloom.records.record_files import RecordFile, find_record_files, read_records

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
DEVELOPER = "developer"
_IDS = KNOWN_NAMES["id"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """`role` is system, developer, user or assistant, else the original value; None if there was none. `text` is None
    if it was null.

    `unused`: what the message holds besides role and text, by the names that `--drop` takes. `flags`: those of them
    that may say whether it is trained. `trained`: false if a flag says that it is only context. `truncated`: a limit of
    tokens cut it off.
    """

    role: str | None
    text: str | None
    unused: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    trained: bool = True
    truncated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """Messages in order, with the place of the record for error messages, and its id if it has one.

    `unused`: keys of the record with a value, other than its messages, system text and id. `preferred`: false if a
    label rejects the answer.
    """

    messages: tuple[Message, ...]
    where: str = ""
    id: str | None = None
    unused: tuple[str, ...] = ()
    preferred: bool = True


def read_conversations(
    source: Path, unreadable: OnUnreadable = stop, keys: KeyMap | None = None
) -> Iterator[Conversation]:
    """All conversations of a file or a folder, streamed, in the order of files and records.

    `keys`: the meaning of the records' keys. Raises SourceError for files that are missing or cannot be opened. Other
    records go to `unreadable`.
    """
    form: Form | None = None
    keys = keys or key_map(())
    needed = used_keys(keys) | keys.metadata
    left_out: list[str] = []
    for file in conversation_files(source):
        for where, record in read_records(file, unreadable, needed=needed, left_out=left_out.extend):
            more = tuple(left_out)
            left_out.clear()
            try:
                form = form or _form(record, where, keys)
                conversation = conversation_of(record, where, form)
            except ChatError as error:
                unreadable(error)
            else:
                yield replace(conversation, unused=(*conversation.unused, *more)) if more else conversation


def conversation_files(source: Path) -> list[RecordFile]:
    """The file, or the files of a folder, in the order in which they are read. Raises SourceError if there are none."""
    return find_record_files([source])


def _form(record: Any, where: str, keys: KeyMap) -> Form:
    try:
        return recognise(record, keys, where)
    except SourceError as fault:
        if isinstance(record, dict) and any(name in record for name in keys.names["messages"]):
            return Form(kind=OPENAI, keys=keys.of_form(OPENAI.names))  # a list without messages
        raise ChatError(fault.what, where=where, remedy=in_file(fault.remedy, where)) from None
    except RecordRefusedError as refused:
        raise ChatError(refused.detail, where=where, remedy=in_file(refused.remedy, where)) from None


def conversation_of(record: Any, where: str = "", form: Form | None = None) -> Conversation:
    """A conversation from a JSON value of this form; without one, of its own form. Raises ChatError."""
    form = form or _form(record, where, key_map(()))
    held = {form.keys.names["messages"][0]: record} if isinstance(record, list) else record
    if not isinstance(held, dict):
        raise ChatError(f"the record is {kind(record)}, not an object", where=where, remedy=_SHAPE)
    if form.kind in _LISTS:
        read, unused = _parted(held, form)
        if not form.keys.found("messages", read) and any(name in held for name in form.keys.names["messages"]):
            return Conversation(messages=(), where=where, id=_id(held), unused=unused)
    else:
        read, unused = held, ()
    unplaced = _Unplaced()
    try:
        chat = read_record(read, form, _READING, unplaced, unplaced.turns_of)
    except RecordLeftOutError:
        return Conversation(messages=(), where=where, id=_id(held), preferred=False)
    except RecordRefusedError as refused:
        raise ChatError(refused.detail, where=where, remedy=in_file(refused.remedy, where) or _SHAPE) from None
    if form.kind not in _LISTS:
        unused = tuple(key for key in held if key in chat.rest)
    more = ("tools",) if chat.tools and not set(form.keys.names["tools"]) & {*unused} else ()
    return Conversation(
        messages=tuple(map(unplaced.message, chat.turns)),
        where=where,
        id=chat.id if chat.id is not None else _id(held),
        unused=(*unused, *more),
    )


_LISTS = (OPENAI, SHAREGPT)
_TEXTS = ("part:text", "part:input_text", "part:output_text")
_READING = Reading(think_tags=False, text_as_is=True)
_SHAPE = 'give records such as {"messages": [{"role": "user", "content": "…"}, …]}'


def _parted(record: dict[str, Any], form: Form) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys of a record with lists of messages that are read, and the names of its other keys with a value."""
    found = (*form.keys.found("messages", record), *form.keys.found("system", record))
    kept: dict[str, Any] = {}
    unused: list[str] = []
    for key, value in record.items():
        if key in found or key in NOT_DROPPED or key in OF_ENDS or flags_record(key) or is_doubtful(key, value):
            kept[key] = value
        elif key in _IDS and isinstance(value, str | int):
            continue
        elif key not in form.keys.metadata and _says_something(value):
            unused.append(key)
    return kept, tuple(unused)


def _id(record: Mapping[str, Any]) -> str | None:
    return next((str(record[key]) for key in _IDS if isinstance(record.get(key), str | int)), None)


def _says_something(value: Any) -> bool:
    """Whether a value is more than null, "" and containers of these: Parquet fills structs with nulls."""
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_says_something, value))
    return value is not None and value != ""


@dataclass(kw_only=True)
class _Unplaced(Dropping):
    """Leaves out everything that a transcript cannot hold, and remembers its names."""

    found: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    def drops(self, name: str, value: Any) -> bool:
        """As for `Dropping`, but every name is left out; roles are for the generator."""
        if name.startswith("role:") or name in _TEXTS or name in ENDS:
            return False
        if like_flag([name], {name: value}) is not None:
            self.flags.append(name)
        if _says_something(value):
            self.found.append(name)
        return True

    def turns_of(self, message: Any, number: int, reading: Reading, dropping: Dropping, system: str = "") -> list[Turn]:
        """`messages.turns_of`, also for a message without text, and for one of an unknown role."""
        if type(message) is dict and len(message) == 2:
            role, text = message.get("role"), message.get("content")
            if type(text) is str and text and type(role) is str and role in (SYSTEM, USER, ASSISTANT):
                return [Turn(number=number, role=cast(Role, role), texts=(text,))]
        keys = message.message if isinstance(message, Part) else message
        name = _first(keys, ROLE_KEYS) if isinstance(keys, dict) else None
        if isinstance(keys, dict) and (name is None or (isinstance(name, str) and name.strip().lower() not in ROLES)):
            text = _first(keys, TEXT_KEYS)
            texts = (text,) if isinstance(text, str) else ()
            others = [key for key, value in keys.items() if value not in (name, text) and _says_something(value)]
            return [Turn(number=number, role=cast(Role, name), texts=texts, metadata={"unused": tuple(others)})]
        self.found, self.flags = [], []
        try:
            turns = turns_of(message, number, reading, dropping, system)
        except RecordRefusedError as refused:
            if refused.reason not in (Refusal.ASSISTANT_EMPTY, Refusal.CONTENT_MISSING):
                raise
            role = str(name).strip().lower()
            parted = isinstance(message, Part) or role in (*CALL_ROLES, *REASONING_ROLES)
            turns = [] if parted and self.found else [Turn(number=number, role=ROLES[role])]
            if isinstance(keys, dict):  # it was refused before all of its keys were read
                read = {*ROLE_KEYS, *TEXT_KEYS, *ENDS, *self.found}
                self.found += [key for key, value in keys.items() if key not in read and _says_something(value)]
        repeated = {key for key in (*ROLE_KEYS, *TEXT_KEYS) if keys.get(key) in (name, _first(keys, TEXT_KEYS))}
        names = tuple(dict.fromkeys(name for name in self.found if name not in repeated))
        if turns and names:
            turns[0] = replace(turns[0], metadata={"unused": names, "flags": tuple(self.flags)})
        if ROLES.get(str(name).strip().lower()) == "tool":  # a result is named as its role is written
            turns = [replace(turn, metadata={**turn.metadata, "role": name}) for turn in turns]
        return turns

    def message(self, turn: Turn) -> Message:
        """A message of a transcript."""
        if turn.texts and not (turn.metadata or turn.reasoning or turn.calls or turn.call_id or turn.name):
            return Message(role=turn.role, text="".join(turn.texts), trained=turn.trained, truncated=turn.truncated)
        names = list(turn.metadata.get("unused", ()))
        names += [REASONING_KEYS[0]] if turn.reasoning else []
        names += ["tool_calls"] if turn.calls else []
        names += ["tool_call_id"] if turn.call_id is not None else []
        names += ["name"] if turn.name is not None else []
        return Message(
            role=turn.metadata.get("role") or turn.role,
            text="".join(turn.texts) if turn.texts else None,
            unused=tuple(names),
            flags=turn.metadata.get("flags", ()),
            trained=turn.trained,
            truncated=turn.truncated,
        )


def _first(keys: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first value of these names that is not null."""
    return next((keys[name] for name in names if keys.get(name) is not None), None)
