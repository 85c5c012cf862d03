"""Conversations to be proven, as plain lists of messages.

In: a JSON object with `messages` and optional `tools`, `id` and `chat_template_kwargs`. Out: a `Conversation`.

A message has `role`, `content` (text, null, or a list of text parts), `reasoning`, `tool_calls` (a list of `id`,
`name`, `arguments`), `tool_call_id`, `name`, `trained`, false if an assistant's message is only context, and
`truncated`, true if a limit of tokens cut it off. The names of the OpenAI API are accepted too: `reasoning_content`,
`thinking`, calls nested in `function`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spanloom.errors import RecordError
from spanloom.tokenizers.chat_template import RESERVED

Message = Mapping[str, Any]
REASONING = ("reasoning", "reasoning_content", "thinking")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """`messages` as the module's docstring describes them; `tools` as functions of the OpenAI API, or None.

    `variables`: template variables of this conversation only (`chat_template_kwargs`).
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def runs(self) -> list[int]:
        """The places of the assistant's messages that are to be trained.

        The first message of a conversation is context: no prompt leads to it.
        """
        return list(self._runs)

    @cached_property
    def _runs(self) -> tuple[int, ...]:
        return tuple(
            place
            for place, message in enumerate(self.messages)
            if place and message["role"] == "assistant" and message.get("trained", True)
        )


def read_conversation(record: Mapping[str, Any], *, name: str) -> Conversation:
    """Reads a conversation. `name`: its id if the record has none. Raises RecordError for an invalid record."""
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RecordError("a conversation has no messages", where=name, remedy="give `messages`, a list")
    tools = record.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise RecordError("tools is not a list", where=name, remedy="give a list of functions, or null")
    variables = record.get("chat_template_kwargs") or {}
    if not isinstance(variables, Mapping):
        raise RecordError("chat_template_kwargs is not an object", where=name, remedy="give an object, or null")
    if taken := sorted(RESERVED & set(variables)):
        what = f"chat_template_kwargs sets {taken[0]}, which rendering gives the template"
        raise RecordError(what, where=name, remedy=f"give others; not {', '.join(sorted(RESERVED))}")
    return Conversation(
        id=str(record.get("id") or record.get("name") or name),
        messages=tuple(_message(message, f"{name}, message {place}") for place, message in enumerate(messages)),
        tools=tuple(_tool(tool, name) for tool in tools) if tools else None,
        variables=variables,
    )


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RecordError("a message has no role", where=where, remedy="give an object with `role`")
    read: dict[str, Any] = {"role": message["role"], "content": _content(message.get("content"), where)}
    reasoning = next((message[key] for key in REASONING if message.get(key)), None)
    if reasoning is not None:
        read["reasoning"] = reasoning
    if message.get("tool_calls"):
        read["tool_calls"] = [_call(call, where) for call in message["tool_calls"]]
    for key in ("tool_call_id", "name"):
        if message.get(key) is not None:
            read[key] = message[key]
    if message.get("trained") is False:
        read["trained"] = False
    if message.get("truncated") is True:
        read["truncated"] = True
    for key in ("content", "reasoning"):
        if not isinstance(read.get(key, ""), str | None):
            raise RecordError(f"{key} is not a text", where=where, remedy="give a text")
    return read


def _content(content: Any, where: str) -> Any:
    """The content as a text or null. Text parts are joined, since templates differ in how they write a list."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(parts):
        raise RecordError("a part of the content is not a text", where=where, remedy="leave such conversations out")
    return "".join(texts)


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RecordError("a call has no function name", where=where, remedy="give `name` and `arguments`")
    return {"id": call.get("id"), "name": function["name"], "arguments": function.get("arguments", {})}


def _tool(tool: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping):
        raise RecordError("a tool is not an object", where=where, remedy="give functions as JSON objects")
    return tool if "function" in tool else {"type": "function", "function": dict(tool)}


def arguments_object(arguments: Any) -> Any:
    """Arguments as an object; unchanged if their text is not a JSON object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def arguments_text(arguments: Any) -> str:
    """Arguments as JSON text; a text is returned unchanged."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def roles(messages: Sequence[Message]) -> list[str]:
    """The role of each message."""
    return [str(message["role"]) for message in messages]
