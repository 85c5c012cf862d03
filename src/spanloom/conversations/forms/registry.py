"""All forms, in the order in which they are tried. Recognises the form of a record; a record → a `ChatRecord`.

In: records as JSON values. Out: the `Form` of the first, and each record as a `ChatRecord`. Next to the conversation a
record may hold its id, a `system` text, `tools` or `functions`. All other keys are metadata: they are kept in
`metadata_json`, and named with the form.

A new form is a module with a `FormKind`, and a line in `FORMS`.
"""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from spanloom.conversations.conversation import SETTINGS
from spanloom.conversations.forms.beside import (
    labels,
    refuse_beside,
    refuse_calls_in,
    refuse_media_in,
    refuse_tools_beside,
)
from spanloom.conversations.forms.beside_messages import (
    refuse_beside_messages,
    refuse_shown_beside,
    refuse_system_beside,
)
from spanloom.conversations.forms.columns import COLUMNS
from spanloom.conversations.forms.form import Form, FormKind, Taken, joined
from spanloom.conversations.forms.keys import BESIDE, KNOWN_NAMES, OF_MESSAGES, OF_RECORDS, KeyMap
from spanloom.conversations.forms.message_lists import OPENAI, SHAREGPT
from spanloom.conversations.forms.preference import PREFERENCE
from spanloom.conversations.forms.published.gemini import GEMINI
from spanloom.conversations.forms.published.glaive import GLAIVE
from spanloom.conversations.forms.published.harmony import HARMONY
from spanloom.conversations.forms.published.harmony_text import HARMONY_TEXT
from spanloom.conversations.forms.published.named import DOLLY, NEMOTRON, OPEN_THOUGHTS, S1K, VERIFIERS
from spanloom.conversations.forms.published.pairs import ALTERNATING, PAIRS
from spanloom.conversations.forms.published.responses import RESPONSES
from spanloom.conversations.forms.published.trajectories import TRAJECTORIES
from spanloom.conversations.forms.published.xlam import XLAM
from spanloom.conversations.forms.unknown import listed_records, remedy, span_remedy
from spanloom.conversations.reading.call_tags import written_tools
from spanloom.conversations.reading.flags import SET_ASIDE, is_truncated
from spanloom.conversations.reading.messages import ROLE_KEYS, plain_turn, turns_of
from spanloom.conversations.reading.parts import joined_parts
from spanloom.conversations.reading.schemas import without_absent
from spanloom.conversations.reading.tools import parsed_json, tool_descriptions
from spanloom.conversations.source.structure import is_weight
from spanloom.conversations.turns import (
    PADDING,
    ChatRecord,
    Dropping,
    LeftOut,
    Reading,
    RecordLeftOutError,
    RecordRefusedError,
    Refusal,
    Turn,
    kind,
    says_nothing,
)
from spanloom.errors import SourceError
from spanloom.records.scalars import is_number

FORMS: tuple[FormKind, ...] = (
    HARMONY,
    HARMONY_TEXT,
    RESPONSES,
    GEMINI,
    PREFERENCE,
    XLAM,
    GLAIVE,
    TRAJECTORIES,
    ALTERNATING,
    PAIRS,
    SHAREGPT,
    OPENAI,
    DOLLY,
    S1K,
    OPEN_THOUGHTS,
    NEMOTRON,
    VERIFIERS,
    COLUMNS,
)
"""Special forms first: later ones would also accept their records."""


def recognise(record: Any, keys: KeyMap, where: str) -> Form:
    """The form of the first record, which all others must have. Raises SourceError if the form is unknown."""
    if isinstance(record, list) and record and not any(map(_speaks, record)):
        path = where.rpartition(", ")[0] or "FILE"
        raise SourceError(
            "the record is a list of records, not of messages: an array on one line",
            where=where,
            remedy=f"cp {shlex.quote(path)} records.json makes a file of it that is read as an array",
        )
    if keys.mapped.isdisjoint(("query", "answer", "messages")) and (spans := span_remedy(record)):
        fault = "each record is a span of a trace, and not each span is a question and the answer of a model"
        raise SourceError(fault, where=where, remedy=spans)
    if isinstance(record, list) and record and not any(isinstance(item, dict) for item in record):
        raise SourceError(
            "no known form of chat data: the record is a list without objects", where=where, remedy=remedy(record)
        )
    held = {keys.names["messages"][0]: record} if isinstance(record, list) else record
    if isinstance(held, dict):
        for key in keys.found("messages", held):
            if records := listed_records(held, key):
                fault = f"{key!r} is a list of records, not of messages"
                raise SourceError(fault, where=where, remedy=records)
        for form in FORMS:
            names = keys.of_form(form.names)
            meanings = {*form.meanings, "id", "system", "tools", *BESIDE, *OF_MESSAGES, *OF_RECORDS}
            if keys.mapped <= meanings and form.recognises(held, names):
                return Form(kind=form, keys=names)
        if isinstance(record, list):
            return Form(kind=OPENAI, keys=keys)
    raise SourceError(f"no known form of chat data: {_described(record)}", where=where, remedy=remedy(record))


def used_keys(keys: KeyMap) -> frozenset[str]:
    """All keys that a record of any form may use."""
    names = chain(KNOWN_NAMES.values(), keys.names.values(), *(form.names.values() for form in FORMS))
    return frozenset(key for each in names for name in each for key in (name, *name.split("+"))) - keys.metadata


def _speaks(item: Any) -> bool:
    """Whether an item of a list may be a message: it has a role, or no value that is a text or a list."""
    if not isinstance(item, dict) or any(key in item for key in ROLE_KEYS):
        return True
    return not any(isinstance(value, str | list) for value in item.values())


_SHOWN = 30
"""Keys in an error."""


def _described(record: Any) -> str:
    if not isinstance(record, dict):
        return f"the first record is {kind(record)}"
    empty = next((key for key, value in record.items() if isinstance(value, list) and not value), None)
    if empty is not None and len(record) == 1:
        return f"the list {empty!r} of the first record is empty"
    keys = ", ".join(map(repr, islice(record, _SHOWN))) + (f", … ({len(record):,})" if len(record) > _SHOWN else "")
    return f"the first record has {f'the keys {keys}' if keys else 'no keys'}"


TurnsOf = Callable[[Any, int, Reading, Dropping, str], list[Turn]]


def read_record(
    record: Any, form: Form, reading: Reading, dropping: Dropping, of_message: TurnsOf = turns_of
) -> ChatRecord:
    """Reads a record of this form. `of_message`: makes the turns of each message.

    Raises RecordRefusedError; RecordLeftOutError for a record not to be trained.
    """
    if isinstance(record, list) and "messages" in form.kind.meanings:
        record = {form.keys.names["messages"][0]: record}
    if not isinstance(record, dict):
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the record is {kind(record)}, not an object")
    if not all(labels(record, form.keys).values()):
        raise RecordLeftOutError(LeftOut.NOT_PREFERRED)
    keys = dict(record)
    truncated = is_truncated(keys, reading.metadata)
    for key in dropping.names.intersection(keys):
        # `--drop id` is for messages: without an id a record is called by its line.
        if not says_nothing(keys[key]) and key not in form.keys.found("id", record):
            dropping.count(key, keys.pop(key))
    keys_of, values = _taken(keys, form)
    refuse_beside(keys, reading, form.keys)
    taken = Taken(values=values, keys=keys_of, left=keys, names=form.keys, reading=reading, dropping=dropping)
    beside = {} if form.keys.beside.isdisjoint(keys) else _taken_beside(keys, form.keys)
    draft = form.kind.draft(taken)
    if keys and draft.tools is None and says_nothing(next(iter(values["tools"]), None)):
        refuse_tools_beside(keys, form.keys)
        refuse_system_beside(keys, form.keys, draft.messages)
    if "messages" in form.kind.meanings:
        refuse_beside_messages(draft.messages, keys, form.keys, record)
    elif not _HOLD_MESSAGES.isdisjoint(form.kind.meanings):
        refuse_shown_beside(draft.messages, keys, form.keys, record)
    system = draft.system or values["system"]
    tools = draft.tools if draft.tools is not None else next(iter(values["tools"]), None)
    written: str | None = None
    turns: list[Turn] = []
    in_parts = False
    own = of_message is not turns_of
    plainly = not (
        own or dropping.names or reading.call_tags or reading.roles or reading.trained_if or reading.masked_if
    )
    for number, message in enumerate(draft.messages):
        if plainly and (plain := plain_turn(message, number, dropping)) is not None:
            turns.append(plain)
        elif message is not None:
            if type(message) is dict and isinstance(message.get("content"), list):
                message = _with_tools(message)
            if type(message) is dict and ("tools" in message or "functions" in message):
                message, tools = _without_tools(message, number, tools)
            if written is None:
                stated = tools if isinstance(tools, str) else json.dumps(tools)
                written = f"{_system_text(draft.messages, record, form)}\n{stated}"
            for turn in of_message(message, number, reading, dropping, written):
                turns.append(turn)
                in_parts = in_parts or turn.is_part
    if not reading.text_as_is:
        refuse_media_in(turns)
    if in_parts:
        turns = joined_parts(turns)
    if truncated and turns and turns[-1].role == "assistant":
        turns[-1] = replace(turns[-1], truncated=True)
    if (instructions := _instructions(system)) and not _begins_with(turns, instructions):
        turns = [Turn(number=0, role="system", texts=(instructions,)), *turns]
    if says_nothing(tools) and reading.call_tags is not None:
        tools = written_tools(_system_text(draft.messages, record, form), reading.call_tags)
    described = () if says_nothing(tools) else tuple(tool_descriptions(tools, dropping))
    if not reading.text_as_is:
        refuse_calls_in(turns, described)
    if any(call.nulls for turn in turns if turn.calls for call in turn.calls):
        turns = _without_padding(turns, described, dropping)
    return ChatRecord(
        id=_id(values["id"]),
        turns=tuple(turns),
        tools=described,
        rest={key: value for key, value in keys.items() if not says_nothing(value)},
        settings=_settings(beside, draft.settings) if beside else draft.settings,
        chat_template_kwargs=beside.get("chat_template_kwargs", {}),
        weight=_weight(beside.get("weight"), form.keys),
        message_metadata=tuple([{"message": turn.number, **turn.metadata} for turn in turns if turn.metadata]),
    )


def _taken(keys: dict[str, Any], form: Form) -> tuple[dict[str, tuple[str, ...]], dict[str, list[Any]]]:
    """Keys and values of each meaning of a form, removed from `keys`. A key that two meanings know is the first's."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(form.kind.taken, ())
    values: dict[str, list[Any]] = dict.fromkeys(form.kind.taken, _NO_VALUES)
    known = form.keys.keys
    for meaning in found:
        if meaning in known and not known[meaning].isdisjoint(keys):  # most records lack most meanings
            found[meaning] = form.keys.found(meaning, keys)
            values[meaning] = [keys.pop(key) for key in found[meaning]]
    return found, values


_NO_VALUES: list[Any] = []


def _with_tools(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose content has a part with definitions of tools (LLaMA-Factory v1) with them as a key."""
    parts = message["content"]
    defined = [part for part in parts if isinstance(part, dict) and part.get("type") == "tools" and "value" in part]
    if len(defined) != 1 or "tools" in message:
        return message
    return {**message, "content": [part for part in parts if part is not defined[0]], "tools": defined[0]["value"]}


def _without_tools(message: dict[str, Any], number: int, tools: Any) -> tuple[dict[str, Any], Any]:
    """A message of the system or the user without definitions of tools that it has as a key (Olmo), and the tools.

    Raises RecordRefusedError if there are two different lists.
    """
    if message.get("role", message.get("from")) not in ("system", "developer", "user"):
        return message, tools
    bare = dict(message)
    for key in OF_TOOLS:
        value = bare.pop(key, None)
        if says_nothing(value):
            continue
        if not says_nothing(tools) and tools != value:
            detail = f"message {number} defines tools under {key!r}, and so does the record or another message"
            raise RecordRefusedError(Refusal.TOOLS_INVALID, detail, SET_ASIDE)
        tools = value
    return bare, tools


OF_TOOLS = ("functions", "tools")
_HOLD_MESSAGES = frozenset({"dialogue", "run", "data"})
"""Meanings of the messages of forms that have other names for them."""


def _without_padding(turns: list[Turn], tools: Sequence[Mapping[str, Any]], dropping: Dropping) -> list[Turn]:
    """The turns without arguments that are null only because Arrow gave them to every call of the column."""
    schemas = {tool["name"]: tool.get("parameters") for tool in tools}
    bare: list[Turn] = []
    for turn in turns:
        calls = list(turn.calls)
        for number, call in enumerate(calls):
            if call.nulls:
                arguments, removed = without_absent(json.loads(call.arguments), schemas.get(call.name))
                if removed:
                    dropping.note(PADDING, removed)
                    calls[number] = replace(call, arguments=json.dumps(arguments, ensure_ascii=False))
        bare.append(turn if tuple(calls) == turn.calls else replace(turn, calls=tuple(calls)))
    return bare


def _taken_beside(keys: dict[str, Any], names: KeyMap) -> dict[str, Any]:
    """Settings next to the conversation, by their names in a conversation; removed from `keys`.

    Raises RecordRefusedError for a setting that is not text, and template arguments that are not an object.
    """
    values: dict[str, Any] = {}
    for meaning, name in BESIDE.items():
        for key in names.found(meaning, keys):
            value = keys.pop(key)
            if name == "chat_template_kwargs" and isinstance(value, str):
                value = parsed_json(value, Refusal.SETTING_INVALID, f"the text of {key!r}")
            wanted, types = ("an object", dict) if name == "chat_template_kwargs" else ("text", str)
            if name != "weight" and not isinstance(value, types):
                raise RecordRefusedError(
                    Refusal.SETTING_INVALID,
                    f"{key!r} is {kind(value)}, not {wanted}",
                    f"--metadata {key} leaves it to the metadata",
                )
            values[name] = value
    return values


def _settings(beside: Mapping[str, Any], drafted: Mapping[str, str | None]) -> dict[str, str | None]:
    """The settings of a record, from its own keys, its template arguments, and its form.

    Raises RecordRefusedError if two of them differ.
    """
    settings = dict(drafted)
    for values in (beside.get("chat_template_kwargs", {}), beside):
        for name in SETTINGS:
            value = values.get(name)
            if value is None:
                continue
            if not isinstance(value, str) or settings.get(name, value) not in (value, None):
                raise RecordRefusedError(
                    Refusal.SETTING_INVALID,
                    f"the record says {name} twice, {settings.get(name)!r} and {value!r}"
                    if isinstance(value, str)
                    else f"{name} of chat_template_kwargs is {kind(value)}, not text",
                    "--drop chat_template_kwargs leaves these arguments out",
                )
            settings[name] = value
    return settings


def _weight(value: Any, names: KeyMap) -> float | None:
    """Of a CSV file a number is text."""
    if value is None:
        return None
    try:
        weight = float(value) if isinstance(value, str) or is_number(value) else math.nan
    except (ValueError, OverflowError):
        weight = math.nan
    if not is_weight(weight):
        raise RecordRefusedError(
            Refusal.WEIGHT_INVALID,
            f"the weight of the conversation is {value!r}, not a number greater than 0",
            SET_ASIDE
            if weight == 0
            else f"{SET_ASIDE}, --metadata {names.names['weight'][0]} trains it like those without a weight",
        )
    return weight


def _system_text(messages: list[Any], record: Mapping[str, Any], form: Form) -> str:
    """The system texts of a record, also those that options leave out: they may define its tools."""
    texts = [record[key] for key in form.keys.found("system", record)]
    first = messages[0] if messages else None
    if isinstance(first, dict) and first.get("role", first.get("from")) in ("system", "developer"):
        texts.append(first.get("content", first.get("value")))
    return "\n".join(text for text in texts if isinstance(text, str))


def _instructions(values: list[Any]) -> str | None:
    """The system text of the record itself; None if it has none."""
    text = joined(values) if values else ""
    if isinstance(text, list):  # Anthropic's and Bedrock's: blocks of text
        blocks = [block for block in text if isinstance(block, dict) and block.get("type", "text") == "text"]
        if len(blocks) == len(text) and all(isinstance(block.get("text"), str) for block in blocks):
            text = "".join(block["text"] for block in blocks)
    if not isinstance(text, str):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"the system text is {kind(text)}")
    return text if text.strip() else None


def _begins_with(turns: Sequence[Turn], instructions: str) -> bool:
    """Whether the first message is the system text that the record repeats beside the messages."""
    first = turns[0] if turns else None
    return first is not None and first.role == "system" and "".join(first.texts).strip() == instructions.strip()


def _id(values: list[Any]) -> str | None:
    if not values:
        return None
    if isinstance(values[0], bool) or not isinstance(values[0], str | int):
        raise RecordRefusedError(
            Refusal.ID_INVALID, f"the id is {kind(values[0])}, not text or a whole number", "--map id= (make ids)"
        )
    return str(values[0])
