"""The context of a run: the texts of earlier messages and of the tools must be in F.

In: the marks of F, F, the fields of all messages, the conversation, the place of the run. Out: how many texts of
earlier runs F leaves out. A template that rewrites history forgets them; they are trained in other documents.
Raises RefusedError: `text_dropped` for other required texts of earlier messages and texts of tool definitions.

Tools are not traced. Their texts are searched for in the parts of F that are not texts of messages.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import NAME, REASONING
from spanloom.families.models.prove.fields import Field
from spanloom.families.models.prove.refusals import CALLS_DROPPED, REMEDIES, TEXT_DROPPED
from spanloom.families.models.prove.traced import shown
from spanloom.tokenizers.traced_text import Mark


def forgotten_texts(marks: Sequence[Mark], fields: Sequence[Field], conversation: Conversation, run: int) -> int:
    """How many texts of earlier runs, and earlier reasoning, are not in F. Raises RefusedError for any other text."""
    pieces: dict[int, list[Mark]] = {}
    for mark in marks:
        pieces.setdefault(mark[2], []).append(mark)
    forgotten = 0
    runs = set(conversation.runs())
    for number, field in enumerate(fields):
        if field.message >= run:
            break
        if not field.required or _is_written(pieces.get(number, ()), field.text):
            continue
        if field.message in runs or field.kind == REASONING:
            forgotten += 1
            continue
        role = conversation.messages[field.message]["role"]
        what = "a part of " if number in pieces else ""
        raise RefusedError(
            TEXT_DROPPED,
            f"the template drops {what}{shown(field)} of message {field.message} ({role})",
            REMEDIES[TEXT_DROPPED],
        )
    return forgotten


def dropped_names(marks: Sequence[Mark], fields: Sequence[Field], run: int) -> int:
    """How many names of users in messages before the run are not in F."""
    written = {mark[2] for mark in marks}
    names = [number for number, field in enumerate(fields) if field.kind == NAME and field.message < run]
    return sum(number not in written for number in names)


def _is_written(pieces: Sequence[Mark], text: str) -> bool:
    """Whether the pieces cover a text except white space. A text that was changed as a whole counts as written."""
    if any(not mark[5] for mark in pieces):
        return True
    end = 0
    for first, last in sorted((mark[3], mark[4]) for mark in pieces):
        if first > end and text[end:first].strip():
            return False
        end = max(end, last)
    return not text[end:].strip()


def check_tools(marks: Sequence[Mark], whole: str, prompt: int, tools: Sequence[tuple[str, str]]) -> None:
    """Raises RefusedError (`text_dropped`) for a text of `tools` that is not in the first `prompt` characters of F."""
    if not tools:
        return
    frame: list[str] = []
    end = 0
    for mark in marks:
        if mark[0] >= prompt:
            break
        frame.append(whole[end : mark[0]])
        end = max(end, mark[1])
    frame.append(whole[end:prompt])
    held = "\0".join(frame)
    for kind, text in tools:
        if not _holds(held, text):
            short = text if len(text) <= 40 else text[:37] + "…"
            raise RefusedError(TEXT_DROPPED, f"the template drops the {kind} {short!r}", CALLS_DROPPED)


def tool_texts(tools: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, str]]:
    """What a template must write of tools: names and descriptions of functions and parameters, and choices."""
    texts: list[tuple[str, str]] = []
    for tool in tools or ():
        function = tool.get("function", tool)
        texts.append(("name of a tool", str(function.get("name", ""))))
        if function.get("description"):
            texts.append(("description of a tool", str(function["description"])))
        texts += _schema_texts(function.get("parameters"))
    return list(dict.fromkeys((kind, text) for kind, text in texts if text.strip()))


def _schema_texts(schema: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inside in properties.items():
            yield "parameter", name
            yield from _schema_texts(inside)
    if isinstance(schema.get("description"), str):
        yield "description of a parameter", schema["description"]
    if isinstance(schema.get("enum"), list):
        yield from (("choice of a parameter", value) for value in schema["enum"] if isinstance(value, str))
    yield from _schema_texts(schema.get("items"))
    for key in ("anyOf", "oneOf", "allOf"):
        for inside in schema.get(key) or ():
            yield from _schema_texts(inside)


def _holds(held: str, text: str) -> bool:
    """Whether `held` contains a text: as it is, trimmed, as JSON, as Python, or line by line."""
    if text in held or text.strip() in held:
        return True
    spellings = (json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1], repr(text)[1:-1])
    if any(spelling in held for spelling in spellings):
        return True
    lines = [line.strip() for line in text.splitlines()]
    return len(lines) > 1 and all(line in held for line in lines)
