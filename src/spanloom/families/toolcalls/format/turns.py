"""Messages in the formats of other programs → messages of a sample, and the text of an assistant turn.

In: a list of messages with `role`, `content` (text, or a list of parts), and `tool_calls` in one of three forms. Out:
messages of role and text. Calls are written into the text in Llama 3.1's format, so that every template renders them.

    {"name": "f", "arguments": {…}}                                TAU2
    {"function": "f", "args": {…}}                                 AgentDojo
    {"function": {"name": "f", "arguments": {…} or JSON text}}     OpenAI
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.families.toolcalls.format.control import EOM, PYTHON_TAG

Turn = dict[str, str]


class UnusableError(Exception):
    """Raised for a record that cannot become a sample. Its text is a short reason, by which such records are counted.

    told: the record's own label; empty if the source has none.
    """

    def __init__(self, reason: str, *, told: str = "") -> None:
        super().__init__(reason)
        self.told = told


def plain_text(content: Any) -> str:
    """The text of a content; the texts of several parts are joined by line breaks. Raises UnusableError otherwise."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(_part, content) if text)
    raise UnusableError("a content is no text")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if part.get("type") == "redacted_thinking":
            return ""  # AgentDojo also stores encrypted thinking
        for key in ("text", "content"):
            if isinstance(part.get(key), str):
                return str(part[key])
        if "content" in part and part["content"] is None:
            return ""  # AgentDojo has such blocks
    raise UnusableError("a part of a content is no text")


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message as `{"name": …, "parameters": …}`. Raises UnusableError for an invalid call."""
    stored = message.get("tool_calls")
    if not stored:
        return []
    if not isinstance(stored, list):
        raise UnusableError("tool_calls is no list")
    return [_call(call) for call in stored]


def _call(call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise UnusableError("a tool call is no object")
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else inner.get("name")
    arguments = next((inner[key] for key in ("arguments", "args", "parameters") if key in inner), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise UnusableError("the arguments of a tool call are no JSON") from None
    if not isinstance(name, str) or not name:
        raise UnusableError("a tool call has no name")
    if not isinstance(arguments, dict):
        raise UnusableError("the arguments of a tool call are no object")
    return {"name": name, "parameters": arguments}


def turn_text(message: Mapping[str, Any]) -> str:
    """The text of an assistant turn: its content, then each call, preceded by the tag and followed by an end token."""
    calls = calls_of(message)
    written = "".join(f"{PYTHON_TAG}{json.dumps(call, ensure_ascii=False)}{EOM}" for call in calls)
    return plain_text(message.get("content")) + written


def turns(messages: Any) -> list[Turn]:
    """All messages as role and text, without those whose text is blank. Raises UnusableError for an invalid message."""
    if not isinstance(messages, list) or not messages:
        raise UnusableError("no messages")
    kept = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise UnusableError("a message without a role")
        role = message["role"]
        text = turn_text(message) if role == "assistant" else plain_text(message.get("content"))
        if text.strip():
            kept.append({"role": role, "content": text})
    return kept


def answers_of(messages: Sequence[Turn]) -> list[int]:
    """The positions of the assistant turns, except at position 0. Raises UnusableError if there are none."""
    answers = [number for number, message in enumerate(messages) if message["role"] == "assistant" and number]
    if not answers:
        raise UnusableError("no assistant turn")
    return answers


def with_system(messages: Sequence[Turn], system: str | None) -> tuple[list[Turn], bool]:
    """Adds the system message unless the messages have one. Returns the messages, and whether it was added."""
    if system is None or any(message["role"] == "system" for message in messages):
        return list(messages), False
    return [{"role": "system", "content": system}, *messages], True
