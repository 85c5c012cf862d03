"""The form in which a template takes messages: where reasoning goes, how arguments and missing content are given.

In: a message, a `Form`, and a function for each text (`Texts`). Out: the message for the template.

Proving shapes each conversation three times: unchanged, traced, and with its texts replaced.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from spanloom.families.models.conversation import Message, arguments_object, arguments_text

CONTENT, REASONING, CALL_NAME, CALL_KEY, CALL_TEXT, CALL_ID, NAME = (
    "content",
    "reasoning",
    "call name",
    "argument name",
    "arguments",
    "call id",
    "name",
)
"""The kinds of texts in a message. Argument values and arguments written as one text are both `arguments`."""

THINKING_VARIABLES = ("enable_thinking", "thinking")
"""Variables of templates that switch thinking on and off."""

GIVEN, FUNCTIONS, NINE = "given", "functions", "nine"
"""The ids of calls that a template takes: any; `functions.NAME:N` with the number of the call, which it writes in place
of the name; nine letters and digits."""

TEXT, PARTS = "text", "parts"
"""How a template takes content: as text, or as a list of parts with a type."""

INLINE = "inline"
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
OPENING, CLOSING = "<think>\n", "\n</think>\n\n"
"""The text around reasoning that is written into the content."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a template takes messages.

    reasoning     the field that it reads, or `inline`: in `<think>` tags within the content
    arguments     `object` or `text`
    beside_calls  the content of a message with calls and no text: `empty` or `null`
    call_ids      `given`, `functions` or `nine`
    content       `text` or `parts`
    """

    reasoning: str = REASONING_FIELDS[0]
    arguments: str = "object"
    beside_calls: str = "empty"
    call_ids: str = GIVEN
    content: str = TEXT

    def as_dict(self) -> dict[str, str]:
        """The form in a manifest, which lacks what earlier versions did not have where it is as it was."""
        added = {"call_ids": GIVEN, "content": TEXT}
        return {name: value for name, value in asdict(self).items() if added.get(name) != value}


class Texts(Protocol):
    """Maps the texts of a message, and its numbers, booleans and nulls, to what the template receives."""

    def text(self, kind: str, value: str) -> str: ...

    def number(self, value: float | None) -> float | None: ...


class AsGiven:
    """Returns texts and values unchanged."""

    def text(self, kind: str, value: str) -> str:  # noqa: ARG002  # as the protocol has it
        return value

    def number(self, value: float | None) -> float | None:
        return value


def shaped(message: Message, form: Form, texts: Texts) -> dict[str, Any]:
    """A message as the template takes it. The keys are in the order that transformers gives them."""
    content = message.get("content")
    calls = message.get("tool_calls")
    reasoning = message.get("reasoning")
    written: dict[str, Any] = {"role": message["role"]}
    if calls and not content:
        content = "" if form.beside_calls == "empty" else None
    if reasoning:
        reasoning = texts.text(REASONING, reasoning)
    if content:
        content = texts.text(CONTENT, content)
    if reasoning and form.reasoning == INLINE:
        content = OPENING + reasoning + CLOSING + (content or "")
    written["content"] = content
    if form.content == PARTS and content is not None:
        written["content"] = [{"type": "text", "text": content}]
    if reasoning and form.reasoning != INLINE:
        # As transformers passes it on: under every name that templates read.
        written = {"thinking": reasoning, **written, form.reasoning: reasoning, "reasoning_content": reasoning}
    if calls:
        written["tool_calls"] = [_call(call, form, texts) for call in calls]
    for key in ("tool_call_id", "name"):
        if message.get(key) is not None:
            written[key] = message[key]
    if written.get("name") and message["role"] == "user":
        written["name"] = texts.text(NAME, written["name"])
    return written


def _call(call: Mapping[str, Any], form: Form, texts: Texts) -> dict[str, Any]:
    # Where the id holds the name, a template writes the id alone.
    of_name, of_id = (CALL_ID, CALL_NAME) if form.call_ids == FUNCTIONS else (CALL_NAME, CALL_ID)
    function: dict[str, Any] = {"name": texts.text(of_name, call["name"])}
    if form.arguments == "text":
        function["arguments"] = texts.text(CALL_TEXT, arguments_text(call["arguments"]))
    else:
        function["arguments"] = _value(arguments_object(call["arguments"]), texts)
    identity = {} if call.get("id") is None else {"id": texts.text(of_id, call["id"])}
    return {**identity, "type": "function", "function": function}


def _value(value: Any, texts: Texts) -> Any:
    if isinstance(value, str):
        return texts.text(CALL_TEXT, value)
    if isinstance(value, Mapping):
        return {texts.text(CALL_KEY, key): _value(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_value(item, texts) for item in value]
    return texts.number(value)


def written_number(value: float | None) -> tuple[str, ...]:
    """How a template may write a number, a boolean or null: as JSON or as Python."""
    return tuple(dict.fromkeys((json.dumps(value), str(value))))
