"""The forms in which chat data is written: which one a record has, and what of it means what.

In: records as JSON values. Out: the `Form` of the first, and each record as a `ChatRecord`.

    openai_messages   a list of {"role", "content"}, by itself or under messages, conversations, conversation, turns
    sharegpt          the same with {"from", "value"}
    columns           a prompt and an answer, maybe with reasoning and a system text, as text or lists of messages

Beside the conversation a record may hold its id, a `system` text, `tools` or `functions`. All else is metadata: it
travels on in `metadata_json` and is named when the form is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spanloom.conversations.messages import ROLE_KEYS, TEXT_KEYS, turn_of
from spanloom.conversations.tools import tool_descriptions
from spanloom.conversations.turns import (
    ChatRecord,
    Dropping,
    RecordRefusedError,
    Refusal,
    Turn,
    kind,
    says_nothing,
)
from spanloom.errors import SourceError, SpanloomError
from spanloom.records.json_lines import unique_keys

FormName = Literal["openai_messages", "sharegpt", "columns"]

KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "conversation_id", "uuid", "synth_id"),
    "messages": ("messages", "conversations", "conversation", "turns"),
    "query": ("prompt", "query", "question", "instruction+input"),
    "reasoning": ("reasoning_content", "reasoning", "thinking", "synthetic_reasoning"),
    "answer": ("response", "answer", "completion", "output", "synthetic_answer"),
    "system": ("system", "system_prompt"),
    "tools": ("tools", "functions"),
}
"""What a record's keys mean, by what data sets call them; `--map` says it where they have other names. Alpaca's
`instruction` has an `input` that belongs to it: left to metadata, it would be missed."""

SHAPES = (
    '{"messages": [{"role": "user", "content": "…"}, …]}, {"conversations": [{"from": "human", "value": "…"}, …]} or '
    '{"prompt": "…", "response": "…"}'
)


@dataclass(frozen=True, kw_only=True)
class KeyMap:
    """Which keys of a record mean what: `names` of each meaning, the first that a record has counts.

    A meaning whose only name is empty is not looked for. Names joined by `+` are put together, a blank line between.
    """

    names: Mapping[str, tuple[str, ...]]

    def found(self, meaning: str, record: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys of the record that have this meaning; none where it lacks it."""
        for name in self.names[meaning]:
            keys = (name,) if name in record else tuple(name.split("+"))
            if name and not says_nothing(record.get(keys[0])):
                return tuple(key for key in keys if not says_nothing(record.get(key)))
        return ()


def key_map(pairs: Sequence[str]) -> KeyMap:
    """`["query=prompt", "answer=reply"]` over what is known anyway. Raises SpanloomError for what is no such pair."""
    names = dict(KNOWN_NAMES)
    for pair in pairs:
        meaning, sign, name = pair.partition("=")
        meaning = _SAME.get(meaning, meaning)
        if not sign or meaning not in names:
            raise SpanloomError(
                f"--map takes MEANING=KEY, not {pair!r}",
                remedy=f"name one of {', '.join(names)} first, then the key of your records: --map query=prompt",
            )
        if "+" in name and meaning in _ONE_KEY:
            raise SpanloomError(
                f"--map {pair} joins keys, but {meaning} is no text", remedy="name one key; the others are metadata"
            )
        names[meaning] = (name,)
    return KeyMap(names=names)


_SAME = {"prompt": "query", "response": "answer"}
_ONE_KEY = ("id", "messages", "tools")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the records of a run are. `name` is told in the manifest; `keys` says which keys mean what."""

    name: FormName
    keys: KeyMap

    def described(self, record: Any) -> list[str]:
        """Lines for a person: the form, and what becomes of each key of this record."""
        title = {
            "openai_messages": "messages with role and content (OpenAI)",
            "sharegpt": "messages with from and value (ShareGPT)",
            "columns": "a prompt and its answer",
        }[self.name]
        if not isinstance(record, dict):
            return [f"form: {title}; each record is a list of them"]
        used = {meaning: self.keys.found(meaning, record) for meaning in _MEANINGS[self.name]}
        lines = [f"form: {title}"]
        lines += [f"  {meaning} ← {' + '.join(keys)}" for meaning, keys in used.items() if keys]
        taken = {key for keys in used.values() for key in keys}
        if rest := [key for key, value in record.items() if key not in taken and not says_nothing(value)]:
            lines.append(f"  metadata, not trained on: {', '.join(rest)}")
        return lines


_MEANINGS: dict[FormName, tuple[str, ...]] = {
    "openai_messages": ("id", "messages", "system", "tools"),
    "sharegpt": ("id", "messages", "system", "tools"),
    "columns": ("id", "system", "query", "reasoning", "answer", "tools"),
}


def recognise(record: Any, keys: KeyMap, where: str) -> Form:
    """The form of the first record, which all others must have. Raises SourceError where it has none that is known."""
    if isinstance(record, list):
        return Form(name=_messages_form(record), keys=keys)
    if isinstance(record, dict):
        if names := keys.found("messages", record):
            return Form(name=_messages_form(_listed(record[names[0]])), keys=keys)
        if keys.found("query", record) and keys.found("answer", record):
            return Form(name="columns", keys=keys)
    has = f"has the keys {', '.join(map(repr, record))}" if isinstance(record, dict) else f"is {kind(record)}"
    raise SourceError(
        f"no known form of chat data: the first record {has}",
        where=where,
        remedy=f"give records such as {SHAPES}; --map query=KEY,answer=KEY,reasoning=KEY or --map messages=KEY says "
        "which key means what",
    )


def _messages_form(messages: Any) -> FormName:
    first = messages[0] if isinstance(messages, list) and messages else None
    role = next((key for key in ROLE_KEYS if key in first), None) if isinstance(first, dict) else None
    return "sharegpt" if role == "from" else "openai_messages"


def read_record(record: Any, form: Form, think_tags: bool | None, dropping: Dropping) -> ChatRecord:
    """A record of this form. Raises RecordRefusedError."""
    if isinstance(record, list) and form.name != "columns":
        record = {form.keys.names["messages"][0]: record}
    if not isinstance(record, dict):
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the record is {kind(record)}, not an object")
    identity = form.keys.found(
        "id", record
    )  # `--drop id` is for messages: without an id a record is called by its line
    keys = {
        key: value
        for key, value in record.items()
        if says_nothing(value) or key in identity or not dropping.drops(key, value)
    }
    taken = {meaning: form.keys.found(meaning, keys) for meaning in _MEANINGS[form.name]}
    values = {meaning: [keys.pop(key) for key in names] for meaning, names in taken.items()}
    messages = _columns(values, taken) if form.name == "columns" else _messages(values["messages"], form)
    turns = [turn_of(message, number, think_tags, dropping) for number, message in enumerate(messages)]
    instructions, spoken = _instructions(values["system"], [turn for turn in turns if turn is not None])
    return ChatRecord(
        id=_id(values["id"]),
        turns=tuple(spoken),
        instructions=instructions,
        tools=tuple(tool_descriptions(values["tools"][0], dropping)) if values["tools"] else (),
        rest={key: value for key, value in keys.items() if not says_nothing(value)},
    )


def _listed(value: Any) -> Any:
    """A list of messages that stands in its column as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return unique_keys(value.encode())
        except (ValueError, RecursionError) as fault:
            raise RecordRefusedError(Refusal.NO_MESSAGES, f"the messages are text that is not JSON: {fault}") from None
    return value


def _listed_or_text(value: Any) -> Any:
    """The same of a column that may hold plain text: `[1, 2]` and `[Note] …` are texts, and hold no messages."""
    try:
        listed = _listed(value)
    except RecordRefusedError:
        return value
    keys = [set(item) if isinstance(item, dict) else set() for item in listed] if isinstance(listed, list) else []
    are_messages = all(names & set(ROLE_KEYS) for names in keys) and any(names & set(TEXT_KEYS) for names in keys)
    return listed if are_messages else value


def _messages(values: list[Any], form: Form) -> list[Any]:
    messages = _listed(values[0]) if values else None
    if not isinstance(messages, list):
        names = ", ".join(form.keys.names["messages"])
        actual = kind(messages) if values else "nothing"
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"there must be a list of messages under {names}, not {actual}")
    return messages


def _columns(values: dict[str, list[Any]], keys: dict[str, tuple[str, ...]]) -> list[Any]:
    """A prompt and an answer as messages. Either may be a list of messages itself, as TRL has it."""
    messages: list[Any] = []
    for meaning in ("query", "answer"):
        parts = [_listed_or_text(value) for value in values[meaning]]
        if not parts:
            raise RecordRefusedError(Refusal.NO_MESSAGES, f"the record has no {meaning}")
        if isinstance(parts[0], list) and len(parts) == 1:
            messages += parts[0]
            continue
        if wrong := [kind(value) for value in parts if not isinstance(value, str)]:
            detail = f"{' + '.join(keys[meaning])} is {wrong[0]}, not text or a list of messages"
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, detail)
        role = "user" if meaning == "query" else "assistant"
        messages.append({"role": role, "content": _joined(parts)})
    if not values["reasoning"]:
        return messages
    last = messages[-1]
    if not isinstance(last, dict) or "reasoning" in last or not isinstance(values["answer"][0], str):
        raise RecordRefusedError(Refusal.REASONING_TWICE, "the reasoning belongs to no one answer")
    return [*messages[:-1], {**last, "reasoning": _joined(values["reasoning"])}]


def _joined(values: list[Any]) -> Any:
    """One value as it is; the texts of several keys with a blank line between."""
    if len(values) == 1:
        return values[0]
    if wrong := [kind(value) for value in values if not isinstance(value, str)]:
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"keys that are to be joined hold {wrong[0]}, not text")
    return "\n\n".join(values)


def _instructions(values: list[Any], turns: list[Turn]) -> tuple[str | None, list[Turn]]:
    """The one text of instructions, of the record or of its first message; and the turns without it."""
    text = _joined(values) if values else ""
    if not isinstance(text, str):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"the system text is {kind(text)}")
    texts = [text] if text.strip() else []
    while turns and turns[0].role == "system":
        texts += ["".join(turns[0].texts)] if turns[0].texts else []
        turns = turns[1:]
    if len(texts) > 1:
        raise RecordRefusedError(
            Refusal.SYSTEM_TWICE,
            "there are two texts of instructions; Harmony has one developer message",
            "--drop system or --drop role:developer leaves one out",
        )
    return texts[0] if texts else None, turns


def _id(values: list[Any]) -> str | None:
    if not values:
        return None
    if isinstance(values[0], bool) or not isinstance(values[0], str | int):
        raise RecordRefusedError(
            Refusal.ID_INVALID, f"the id is {kind(values[0])}, not text or a whole number", "--map id= (make ids)"
        )
    return str(values[0])
