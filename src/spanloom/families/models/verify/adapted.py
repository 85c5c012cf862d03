"""A conversation of the source as the build adapted it, made a second time from the manifest's options.

In: `PlainConversation`, the manifest's `config`. Out: the conversation that was proven: with other ids of calls, with
texts apart from their calls, or with tools, calls and results as text.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from spanloom.families.models.verify.messages import PlainConversation, PlainMessage

_TOOLS = {
    "hermes": (
        "You may call functions. Their definitions:\n<tools>\n",
        '\n</tools>\nWrite a call as\n<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>',
    ),
    "json": (
        "You may call functions. Their definitions, a line each:\n",
        '\nWrite a call as a line\n{"name": NAME, "arguments": ARGUMENTS}',
    ),
}


def as_proven(conversation: PlainConversation, config: Mapping[str, Any], *, system: bool) -> PlainConversation:
    """The conversation that was proven. `system`: whether the template takes a system message."""
    ids, style = config["form"].get("call_ids", "given"), config.get("inline_calls")
    messages = _with_ids(conversation.messages, ids) if ids != "given" else conversation.messages
    if config.get("text_beside_calls") == "split":
        messages = [part for message in messages for part in _halves(message)]
    if style is None:
        return replace(conversation, messages=messages)
    messages = _spelled(messages, style)
    if conversation.tools:
        tools = [json.dumps({"type": "function", "function": tool}, ensure_ascii=False) for tool in conversation.tools]
        _tell(messages, _TOOLS[style][0] + "\n".join(tools) + _TOOLS[style][1], system=system)
    return replace(conversation, messages=messages, tools=[])


def _with_ids(messages: list[PlainMessage], ids: str) -> list[PlainMessage]:
    made: list[PlainMessage] = []
    seen: dict[str, str] = {}
    open_calls: list[str] = []
    count = 0
    for message in messages:
        if message.calls:
            calls, open_calls = [], []
            for call in message.calls:
                given = call["id"] or ""
                if ids == "nine":
                    fits = len(given) == 9 and given.isascii() and given.isalnum()
                    new = given if fits else sha256((given or str(count)).encode()).hexdigest()[:9]
                else:
                    number = given.removeprefix(f"functions.{call['name']}:")
                    fits = number != given and re.fullmatch(r"\d+", number) is not None
                    new = given if fits else f"functions.{call['name']}:{count}"
                calls.append({**call, "id": new})
                open_calls.append(new)
                count += 1
                if call["id"] is not None:
                    seen[given] = new
            message = replace(message, calls=calls)
        elif message.role == "tool":
            old = message.names.get("tool_call_id")
            found = open_calls[0] if old is None and open_calls else None if old is None else seen.get(old)
            if found is not None:
                message = replace(message, names={**message.names, "tool_call_id": found})
                open_calls = [each for each in open_calls if each != found]
        made.append(message)
    return made


def _halves(message: PlainMessage) -> list[PlainMessage]:
    if not (message.calls and message.text.strip()):
        return [message]
    return [
        replace(message, calls=[], spoken=True, truncated=False),
        replace(message, text="", reasoning=[]),
    ]


def _spelled(messages: list[PlainMessage], style: str) -> list[PlainMessage]:
    made: list[PlainMessage] = []
    after_result = False
    for message in messages:
        is_result = message.role == "tool"
        if is_result:
            told = json.dumps({"result": message.text}, ensure_ascii=False)
            text = told if style == "json" else "<tool_response>\n" + message.text + "\n</tool_response>"
            if after_result:
                made[-1].text += "\n" + text
            else:
                made.append(PlainMessage(role="user", text=text))
        elif message.calls:
            lines = [message.text] if message.text else []
            for call in message.calls:
                said = {"name": call["name"], "arguments": _object(call["arguments"])}
                line = json.dumps(said, ensure_ascii=False)
                lines.append(line if style == "json" else f"<tool_call>\n{line}\n</tool_call>")
            made.append(replace(message, text="\n".join(lines), calls=[], spoken=True))
        else:
            made.append(replace(message))
        after_result = is_result
    return made


def _object(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _tell(messages: list[PlainMessage], text: str, *, system: bool) -> None:
    users = [message for message in messages if message.role == "user"]
    if users and not system:
        users[0].text = text + "\n\n" + users[0].text
    elif messages[0].role in ("system", "developer"):
        messages[0].text += "\n\n" + text
    else:
        if messages[0].role == "assistant":
            messages[0].trained = False
        messages.insert(0, PlainMessage(role="system", text=text))
