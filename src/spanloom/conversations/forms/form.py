"""The definition of a form of chat data, and readers of its columns.

In: a record as a JSON object. Out: `Taken`, the part that the form uses; `Draft`, the messages made from it, in
OpenAI's form. `spanloom.conversations.reading.messages` turns these into turns.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spanloom.conversations.forms.beside import labels
from spanloom.conversations.forms.keys import BESIDE, KeyMap
from spanloom.conversations.reading.markup import rendered_mark
from spanloom.conversations.reading.messages import ROLE_KEYS, ROLES, TEXT_KEYS
from spanloom.conversations.reading.tools import python_value
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal, kind, says_nothing
from spanloom.records.json_lines import unique_keys


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The part of a record that a form uses: `values` and `keys` of each meaning, in the order of the keys.

    `left`: the unused keys. They become metadata unless the form removes them.
    """

    values: dict[str, list[Any]]
    keys: dict[str, tuple[str, ...]]
    left: dict[str, Any]
    names: KeyMap
    reading: Reading
    dropping: Dropping

    def one(self, meaning: str) -> Any:
        """The value of a meaning; None if the record lacks it."""
        return self.values[meaning][0] if self.values.get(meaning) else None


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Messages in OpenAI's form, or `Part`s; and instructions, tools and system fields that the form read."""

    messages: list[Any]
    system: list[Any] = field(default_factory=list)
    tools: Any = None
    settings: dict[str, str | None] = field(default_factory=dict)


Recognises = Callable[[Mapping[str, Any], KeyMap], bool]


@dataclass(frozen=True, kw_only=True)
class FormKind:
    """A form of chat data.

    name        in manifests
    title       for the user
    meanings    the used meanings, of `keys.KNOWN_NAMES` or its own
    names       the keys of a meaning, if the form has its own
    recognises  whether a record has this form
    draft       a record → messages; raises RecordRefusedError
    """

    name: str
    title: str
    meanings: tuple[str, ...]
    recognises: Recognises
    draft: Callable[[Taken], Draft]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def taken(self) -> tuple[str, ...]:
        """The meanings that are searched in a record: the form's own, and those that any record may have."""
        return tuple(dict.fromkeys((*self.meanings, "id", "system", "tools")))


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form of a run's records. `name` is in the manifest; `keys` maps meanings to keys."""

    kind: FormKind
    keys: KeyMap

    @property
    def name(self) -> str:
        return self.kind.name

    def _labels(self, record: Mapping[str, Any]) -> list[str]:
        try:
            return list(labels(record, self.keys))
        except RecordRefusedError:
            return []

    def described(self, record: Any) -> list[str]:
        """Lines for the user: the form, and what happens to each key of this record."""
        if not isinstance(record, dict):
            return [f"form: {self.kind.title}; each record is a list of them"]
        meanings = dict.fromkeys((*self.kind.meanings, *BESIDE))
        used = {meaning: self.keys.found(meaning, record) for meaning in meanings}
        taken = {key for keys in used.values() for key in keys}
        rest = [key for key, value in record.items() if key not in taken and not says_nothing(value)]
        lines = [f"form: {self.kind.title}"]
        if (left := self._left(record)) is not None:  # a form may use keys besides those of its meanings
            whole = [key for key, value in record.items() if key in left and left[key] == value]
            used = {meaning: tuple(key for key in keys if key not in whole) for meaning, keys in used.items()}
            if read := [key for key in rest if key not in whole]:
                used["messages"] = (*used.get("messages", ()), *read)
            rest = [key for key in whole if not says_nothing(record[key])]
        lines += [f"  {meaning} ← {' + '.join(keys)}" for meaning, keys in used.items() if keys]
        lines += [f"  {key} ← false leaves a record out (not_preferred)" for key in self._labels(record)]
        if rest:
            lines.append(f"  metadata, not trained on: {', '.join(rest)}")
        return lines

    def _left(self, record: Mapping[str, Any]) -> dict[str, Any] | None:
        """The keys of a record that become metadata; None for a record that the form refuses."""
        keys = dict(record)
        found: dict[str, tuple[str, ...]] = {}
        values: dict[str, list[Any]] = {}
        for meaning in dict.fromkeys((*self.kind.taken, *BESIDE)):
            found[meaning] = self.keys.found(meaning, keys)
            values[meaning] = [keys.pop(key) for key in found[meaning]]
        reading = Reading(rendered=lambda _: [])  # the form decides which keys it reads before it parses a text
        try:
            self.kind.draft(
                Taken(values=values, keys=found, left=keys, names=self.keys, reading=reading, dropping=Dropping())
            )
        except RecordRefusedError:
            return None
        return keys


def listed(value: Any) -> Any:
    """Decodes a list in a column: JSON or Python text; columns, as Arrow stores a sequence of objects, `{"role":
    ["user"], "content": ["Q"]}`; or a list of JSON texts. Any other value is unchanged.

    Raises RecordRefusedError for a text that begins like a list and is not one.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _parsed(value)
    if isinstance(value, dict):
        return _rows(value)
    if isinstance(value, list) and value and all(isinstance(item, str) and item[:1] == "{" for item in value):
        try:
            return [unique_keys(item.encode()) for item in value]
        except (ValueError, RecursionError):
            return value
    return value


def _parsed(text: str) -> Any:
    try:
        return unique_keys(text.encode())
    except (ValueError, RecursionError) as fault:
        if (value := python_value(text)) is None:
            raise RecordRefusedError(
                Refusal.NO_MESSAGES,
                f"the messages are text that is not JSON: {fault}",
                "write the lists as JSON, such as by json.dumps",
            ) from None
    return value


def _rows(columns: dict[str, Any]) -> Any:
    """Columns of messages as a list of messages; any other object unchanged."""
    lengths = {len(column) if isinstance(column, list) else -1 for column in columns.values() if column is not None}
    if len(lengths) != 1 or -1 in lengths or columns.keys().isdisjoint(ROLE_KEYS):
        return columns
    return [
        {key: column[number] for key, column in columns.items() if column is not None and column[number] is not None}
        for number in range(lengths.pop())
    ]


_LIKE_MESSAGES = re.compile(r"\s*\[\s*\{\s*['\"](role|content|from|value)['\"]\s*:")


def listed_or_text(value: Any) -> Any:
    """The same for a column that may hold plain text: `[1, 2]` and `[Note] …` are texts, not messages. The JSON text of
    one message is a list of it.

    Raises RecordRefusedError for a text that begins like a list of messages and is not one.
    """
    message = written_object(value)
    if says_role(message) and not message.keys().isdisjoint((*TEXT_KEYS, "tool_calls")):
        return [message]
    try:
        values = listed(value)
    except RecordRefusedError:
        if _LIKE_MESSAGES.match(value):
            raise
        return value
    return values if are_messages(values) else value


def written_object(value: Any) -> dict[str, Any]:
    """The object of a JSON text; empty for any other value."""
    parsed = written_json(value)
    return parsed if isinstance(parsed, dict) else {}


def written_json(value: Any) -> Any:
    """The object or list of a JSON text; None for any other value."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return None
    try:
        return unique_keys(value.encode())
    except (ValueError, RecursionError):
        return None


def says_role(message: Mapping[str, Any]) -> bool:
    """Whether a role of an object is one that is known."""
    return any(isinstance(name := message.get(key), str) and name.strip().lower() in ROLES for key in ROLE_KEYS)


def are_messages(value: Any) -> bool:
    """Whether a value is a list of messages."""
    keys = [set(item) if isinstance(item, dict) else set() for item in value] if isinstance(value, list) else []
    return all(names & set(ROLE_KEYS) for names in keys) and any(names & set(TEXT_KEYS) for names in keys)


def jq_path(key: str) -> str:
    """A key in jq's syntax."""
    return f".{key}" if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) else f'.["{key}"]'


def number_as_text(path: str) -> str:
    """The remedy for a number, true or false that should be a text. `path`: in jq's syntax."""
    return f"jq -c '({path} | numbers, booleans) |= tostring' FILE > records.jsonl writes it as text"


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a list, or in the JSON text of a list; empty for any other value."""
    try:
        value = listed(value)
    except RecordRefusedError:
        return
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def parts(message: Mapping[str, Any], key: str = "content") -> Iterator[dict[str, Any]]:
    """The parts of a message's content that are objects; others are left out."""
    content = message.get(key)
    if isinstance(content, list):
        yield from (part for part in content if isinstance(part, dict))


def joined(values: list[Any]) -> Any:
    """A single value unchanged; the texts of several keys joined by a blank line."""
    if len(values) == 1:
        return values[0]
    if wrong := [kind(value) for value in values if not isinstance(value, str)]:
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"keys that are to be joined hold {wrong[0]}, not text")
    return "\n\n".join(values)


def is_one_text(value: Any) -> bool:
    """Whether a value is a text, or a list of one text."""
    return isinstance(value, str) or (isinstance(value, list) and len(value) == 1 and isinstance(value[0], str))


def reasoned(taken: Taken) -> str:
    """The reasoning of a record: a text, texts joined by a blank line, or a list of one text.

    Raises RecordRefusedError for any other value.
    """
    value = joined(taken.values["reasoning"])
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        name = taken.keys["reasoning"][0]
        detail = f"{name!r} is {kind(value)}, not the one text of a reasoning"
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, detail, f"--metadata {name} leaves it out")
    return value


_TRANSCRIPT = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant): ?")
_LINES = re.compile(r"(?:\A\s*|\n)(Human|Assistant): ?")
"""The beginnings of turns, after a blank line as in HH-RLHF; where no turn has one, at the beginning of a line."""


def transcript(text: str, reading: Reading) -> list[dict[str, str]] | None:
    """`"\\n\\nHuman: Q\\n\\nAssistant: A"` → the messages, without empty ones; None for any other text.

    Raises RecordRefusedError for a turn that holds the beginning of another one.
    """
    marks = list(_TRANSCRIPT.finditer(text))
    if len(marks) == 1 and marks[0][1] == "Human":
        marks = list(_LINES.finditer(text))
    if not marks or marks[0].start():
        return None
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    roles = {"Human": "user", "Assistant": "assistant"}
    messages = [
        {"role": roles[mark[1]], "content": text[mark.end() : end].rstrip()}
        for mark, end in zip(marks, ends, strict=True)
        if text[mark.end() : end].strip()
    ]
    _refuse_turns_within([message["content"] for message in messages], reading)
    return messages


def _refuse_turns_within(texts: Iterable[str], reading: Reading) -> None:
    shown = next((mark[1] for text in texts for mark in _LINES.finditer(text) if mark.start()), None)
    if shown is not None and not reading.text_as_is:
        detail = f"a turn of the transcript holds a line that begins with '{shown}:', which may be another turn"
        raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, detail, "--text-as-is keeps it as text")


def exchange(question: Any, taken: Taken, answer: str | None = None) -> list[Any]:
    """The question and the answer as messages. A question may be a transcript that ends with `Assistant:`: its turns
    become separate messages, and the space after this word is not part of the answer.

    Raises RecordRefusedError for another question that a template rendered.
    """
    turns = None
    if isinstance(question, str) and question.rstrip().endswith("\nAssistant:"):
        turns = transcript(question, taken.reading)
        if turns is not None and answer is not None:
            _refuse_turns_within([answer], taken.reading)
    if turns is None and isinstance(question, str) and not taken.reading.text_as_is:
        _refuse_rendered(question, taken, answer or "")
    asked = turns or [{"role": "user", "content": question}]
    if answer is None:
        return asked
    return [*asked, {"role": "assistant", "content": answer.removeprefix(" ") if turns else answer}]


def _refuse_rendered(question: str, taken: Taken, answer: str) -> None:
    """Raises RecordRefusedError for a question that a template rendered: its marks would be the user's text."""
    if (mark := rendered_mark(question, answer)) is None:
        return
    bare = next(
        (key for key in ("instruction", "question", "query", "input") if _is_within(key, taken, question)), None
    )
    if bare == "instruction" and "input" in taken.left:
        bare = "instruction+input"
    shown = ",".join(taken.keys["query"])
    raise RecordRefusedError(
        Refusal.MARKUP,
        f"the question holds {mark!r}: a template rendered it, and its marks would be read as the user's text",
        (
            f"--map query={bare} --metadata {shown} reads what was rendered, "
            if bare
            else "give the messages that were rendered; "
        )
        + "--text-as-is keeps it as text",
    )


def _is_within(key: str, taken: Taken, question: str) -> bool:
    """Whether an unused key holds a text that the question contains."""
    value = taken.left.get(key)
    return isinstance(value, str) and bool(value.strip()) and value.strip() in question
