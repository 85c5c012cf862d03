"""A row of `conversations_v1` → the Harmony messages that it must become: the rules of docs/format.md, written again.

In: `messages_json` of a row. Out: the JSON that a row of `harmony_conversations_v1` would have, which the rest of the
validation reads. Shares no code with the conversion to conversations or to Harmony messages. The messages of a refusal
are equal on purpose: they are compared with those in the rejects.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from spanloom.families.harmony.verify.rules import Judgement, RowRefused, parsed_json

_OF_ROLE = {
    "system": "role content",
    "developer": "role content",
    "user": "role content name",
    "assistant": "role content reasoning tool_calls channel trained truncated",
    "tool": "role content tool_call_id name",
}
_SETTINGS = ("model_identity", "reasoning_effort", "conversation_start_date", "knowledge_cutoff")
_CHANNELS = ["analysis", "commentary", "final"]


def harmony_json(messages_json: bytes | None) -> bytes:
    """The JSON of `harmony_conversation`. Raises RowRefused."""
    return json.dumps(harmony_conversation(messages_json)).encode()


def harmony_conversation(messages_json: bytes | None) -> dict[str, Any]:
    """`{"messages": [...]}` of Harmony, with `trained`, `truncated` and `weight` where the row has them.

    Raises RowRefused.
    """
    if messages_json is None:
        raise RowRefused("messages_json_missing", "messages_json is null")
    whole = parsed_json(messages_json, "messages_json")
    if type(whole) is not dict or type(whole.get("messages")) is not list:
        raise RowRefused("no_messages_list", 'messages_json must be an object with a list under "messages"')
    listed = whole["messages"]
    if listed == []:
        raise RowRefused("no_messages", "the list of messages is empty")
    _only(whole, "messages tools settings chat_template_kwargs weight", "messages_json")
    for at, message in enumerate(listed):
        _check_message(message, f"message {at}")
    answers = [message for message in listed if message["role"] == "assistant"]
    if answers == []:
        raise RowRefused("no_assistant", "no message is from the assistant: nothing would be trained")
    if all(message.get("trained") is False for message in answers):
        raise RowRefused("nothing_trained", "no message of the assistant is trained")
    if type(whole.get("chat_template_kwargs", {})) not in (dict, type(None)):
        raise _wrong("chat_template_kwargs", "an object")
    weight = whole.get("weight")
    if weight is not None and not (type(weight) in (int, float) and 0 < weight <= sys.float_info.max):
        raise _wrong("weight", "a number greater than 0")
    tools = _tools(whole.get("tools"))
    messages = [_system(whole.get("settings")), *_messages(listed, tools)]
    return {"messages": messages, **({} if weight is None else {"weight": weight})}


def harmony_or_refusal(messages_json: bytes | None) -> tuple[bytes | None, Judgement | None]:
    """The result of `harmony_json`, or why it refuses the row."""
    try:
        return harmony_json(messages_json), None
    except RowRefused as refused:
        return None, Judgement(id=None, reason=refused.reason, detail=refused.detail)


def _wrong(name: str, wanted: str) -> RowRefused:
    return RowRefused("field_invalid", f"{name} must be {wanted}")


def _only(keys: dict[str, Any], known: str, where: str) -> None:
    if others := [key for key in keys if key not in known.split()]:
        named = ", ".join(map(repr, others))
        raise RowRefused("key_unknown", f"{where} has the keys {named}, which the format does not have")


def _check_message(message: Any, where: str) -> None:
    if type(message) is not dict:
        raise RowRefused("message_not_object", f"{where} is not an object")
    role = message.get("role")
    if type(role) is not str or role not in _OF_ROLE:
        raise RowRefused("role_unknown", f"{where} has role {role!r}, not one of {', '.join(_OF_ROLE)}")
    _only(message, _OF_ROLE[role], where)
    _parts(message.get("content"), f"content of {where}")
    if message.get("channel") not in (None, "commentary", "final"):
        raise _wrong(f"channel of {where}", "commentary or final")
    for mark in ("trained", "truncated"):
        if type(message.get(mark, True)) is not bool:
            raise _wrong(f"{mark} of {where}", "true or false")
    _parts(message.get("reasoning"), f"reasoning of {where}")
    calls = message.get("tool_calls")
    if calls is not None and type(calls) is not list:
        raise _wrong(f"tool_calls of {where}", "a list")
    for number, call in enumerate(calls or []):
        name = f"call {number} of {where}"
        if type(call) is not dict or [type(call.get(key)) for key in ("name", "arguments")] != [str, str]:
            raise _wrong(name, "an object with texts under name and arguments")
        _only(call, "id name arguments", name)
        _check_text(call.get("id"), f"id of {name}")
    _check_text(message.get("tool_call_id"), f"tool_call_id of {where}")
    _check_text(message.get("name"), f"name of {where}")


def _check_text(value: Any, name: str) -> None:
    if not (value is None or type(value) is str):
        raise _wrong(name, "text")


def _parts(value: Any, name: str) -> list[dict[str, str]]:
    """Text, texts or null as parts of a content; empty ones are left out."""
    texts = {type(None): [], str: [value]}.get(type(value), value)
    if type(texts) is not list or any(type(text) is not str for text in texts):
        raise _wrong(name, "text, a list of texts or null")
    return [{"type": "text", "text": text} for text in texts if text != ""]


def _tools(tools: Any) -> list[dict[str, Any]]:
    if type(tools) not in (list, type(None)):
        raise _wrong("tools", "a list")
    described = []
    for number, tool in enumerate(tools or []):
        if type(tool) is not dict or type(tool.get("name")) is not str:
            raise _wrong(f"tool {number}", "an object with text under name")
        _only(tool, "name description parameters", f"tool {number}")
        _check_text(tool.get("description"), f"description of tool {number}")
        if type(tool.get("parameters")) not in (dict, type(None)):
            raise _wrong(f"parameters of tool {number}", "an object")
        kept = {"parameters": tool["parameters"]} if tool.get("parameters") is not None else {}
        described.append({"name": tool["name"], "description": tool.get("description") or "", **kept})
    return described


def _system(settings: Any) -> dict[str, Any]:
    if type(settings) not in (dict, type(None)):
        raise _wrong("settings", "an object")
    values = settings or {}
    _only(values, " ".join(_SETTINGS), "settings")
    for name, value in values.items():
        _check_text(value, f"{name} of settings")
    content = {"type": "system_content", **{name: values.get(name) for name in _SETTINGS}}
    if (effort := content["reasoning_effort"]) is not None:
        content["reasoning_effort"] = effort[:1].upper() + effort[1:].lower()
        if content["reasoning_effort"] not in ("Low", "Medium", "High"):
            raise RowRefused("effort_unknown", f"there is no reasoning effort {effort!r}")
    content["channel_config"] = {"valid_channels": _CHANNELS, "channel_required": True}
    return {"role": "system", "content": [content]}


def _messages(rest: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The developer message, and the messages of user, assistant and tools."""
    turns = next((at for at, message in enumerate(rest) if message["role"] not in ("system", "developer")), len(rest))
    instructions = ["".join(part["text"] for part in _parts(message.get("content"), "")) for message in rest[:turns]]
    instructions = [text for text in instructions if text != ""]
    if len(instructions) > 1:
        raise RowRefused("system_twice", "there are two texts of instructions; Harmony has one developer message")
    content: dict[str, Any] = {"instructions": instructions[0]} if instructions else {}
    if tools:
        content["tools"] = {"functions": {"name": "functions", "tools": tools}}
    developer = [{"role": "developer", "content": [{"type": "developer_content", **content}]}] if content else []
    spoken: list[dict[str, Any]] = []
    call: dict[str, Any] | None = None
    for at, message in enumerate(rest[turns:], start=turns):
        where, role = f"message {at}", message["role"]
        if role in ("system", "developer"):
            raise RowRefused("system_not_first", f"{where} is a {role} message that is not the first")
        if role == "user":
            _check_ended(spoken, where)
            call = None
            spoken.append(_of_user(message))
        elif role == "tool":
            spoken.append(_of_tool(message, call, where))
            call = None
        else:
            spoken += _of_assistant(message, spoken, call, where)
            call = (message.get("tool_calls") or [None])[0]
    _check_ended(spoken, "the end")
    yield from developer
    for message in spoken:
        message["content"] = message["content"] or [{"type": "text", "text": ""}]
        yield message


def _check_ended(spoken: list[dict[str, Any]], where: str) -> None:
    """An assistant that reasoned, or spoke before a call, has gone on to an answer or a call."""
    last = spoken[-1] if spoken else {}
    if last.get("role") == "assistant" and "recipient" not in last and last["channel"] != "final":
        does = {"analysis": "only reasons", "commentary": "only speaks before a call"}[last["channel"]]
        raise RowRefused("answer_missing", f"before {where}, the assistant {does}: there is no answer and no call")


def _of_user(message: dict[str, Any]) -> dict[str, Any]:
    named = {} if message.get("name") is None else {"name": message["name"]}
    return {"role": "user", **named, "content": _parts(message.get("content"), "")}


def _of_tool(message: dict[str, Any], call: dict[str, Any] | None, where: str) -> dict[str, Any]:
    named = {key: message[key] for key in ("tool_call_id", "name") if message.get(key) is not None}
    wanted = {} if call is None else {"tool_call_id": call.get("id"), "name": call["name"]}
    fits = call is not None and all(wanted[key] in (None, value) for key, value in named.items())
    if call is None or not fits:
        shown = ", ".join(f"{key} {value!r}" for key, value in named.items()) or "no name"
        raise RowRefused("tool_result_unmatched", f"{where} (tool; {shown}) belongs to no one call before it")
    header = {"channel": "commentary", "recipient": "assistant"}
    return {
        "role": "tool",
        "name": f"functions.{call['name']}",
        "content": _parts(message.get("content"), ""),
        **header,
    }


def _of_assistant(
    message: dict[str, Any], spoken: list[dict[str, Any]], call: dict[str, Any] | None, where: str
) -> list[dict[str, Any]]:
    if spoken and (spoken[-1]["role"], spoken[-1].get("channel")) == ("assistant", "final"):
        raise RowRefused("assistant_after_answer", f"{where} (assistant) follows an answer of the assistant")
    if call is not None:
        detail = f"{where} (assistant) comes before the result of the call of {call['name']}"
        raise RowRefused("tool_calls_parallel", detail)
    calls = message.get("tool_calls") or []
    if len(calls) > 1:
        detail = f"{where} makes {len(calls)} calls at once; Harmony has one at a time"
        raise RowRefused("tool_calls_parallel", detail)
    trained = {} if message.get("trained", True) else {"trained": False}
    named = "commentary" if calls else message.get("channel") or "final"
    written: list[dict[str, Any]] = []
    for key, channel in (("reasoning", "analysis"), ("content", named)):
        if parts := _parts(message.get(key), ""):
            written.append({"role": "assistant", "channel": channel, "content": parts, **trained})
    written += [
        {
            "role": "assistant",
            "channel": "commentary",
            "recipient": f"functions.{made['name']}",
            "content_type": "<|constrain|>json",
            "content": [{"type": "text", "text": made["arguments"]}],
            **trained,
        }
        for made in calls
    ]
    if message.get("truncated") and written:
        written[-1]["truncated"] = True
    return written
