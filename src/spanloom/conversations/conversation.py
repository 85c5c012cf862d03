"""A whole conversation, for any model: `messages_json` of the format `conversations_v1`.

In: one row's `messages_json`, or a `Conversation`. Out: a `Conversation`, or its JSON. Nothing is adapted to the format
of one model: parallel calls, several system texts and the names of keys stay as in the record.

    {"messages": [
       {"role": "system", "content": "Be brief."},
       {"role": "user", "content": "Weather in Oslo?", "name": "Ada"},
       {"role": "assistant", "content": null, "reasoning": "Look it up.",
        "tool_calls": [{"id": "c1", "name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}]},
       {"role": "tool", "content": "4", "tool_call_id": "c1"},
       {"role": "assistant", "content": "4 °C.", "trained": false, "truncated": true}],
     "tools": [{"name": "get_weather", "description": "…", "parameters": {…}}],
     "settings": {"reasoning_effort": "low"}, "chat_template_kwargs": {"enable_thinking": false}, "weight": 0.5}

`content` and `reasoning` are text, or a list of texts if the record had several parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from json import dumps
from typing import Any, get_args

import orjson

from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import is_weight, messages_of
from spanloom.conversations.turns import Call, Channel, Message

CHANNELS = frozenset(get_args(Channel))


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Facts in a system message about the model and the date. None: the line is left out."""

    reasoning_effort: str | None = None
    model_identity: str | None = None
    conversation_start_date: str | None = None
    knowledge_cutoff: str | None = None

    def as_dict(self) -> dict[str, str]:
        """The settings that are not None, by name."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}


SETTINGS = tuple(setting.name for setting in fields(Settings))


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """Messages in order, and what applies to all of them.

    tools                 function definitions: `name`, optionally `description` and `parameters` (a JSON Schema)
    chat_template_kwargs  arguments of a chat template, if the record has some
    weight                the weight of its documents in a loss, if the record has one; greater than 0
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    settings: Settings = field(default_factory=Settings)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    weight: float | None = None


def messages_json(conversation: Conversation) -> bytes:
    """The JSON of a conversation, UTF-8. `parse_conversation` is the inverse."""
    whole: dict[str, Any] = {"messages": [_message_dict(message) for message in conversation.messages]}
    if conversation.tools:
        whole["tools"] = list(conversation.tools)
    if settings := conversation.settings.as_dict():
        whole["settings"] = settings
    if conversation.chat_template_kwargs:
        whole["chat_template_kwargs"] = conversation.chat_template_kwargs
    if conversation.weight is not None:
        whole["weight"] = conversation.weight
    try:
        return orjson.dumps(whole)
    except TypeError:  # an integer of more than 64 bits in a schema
        return dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _message_dict(message: Message) -> dict[str, Any]:
    texts = message.texts
    keys: dict[str, Any] = {"role": message.role, "content": _joined(texts) if texts else None}
    if message.reasoning:
        keys["reasoning"] = _joined(message.reasoning)
    if message.calls:
        keys["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            if call.id is not None
            else {"name": call.name, "arguments": call.arguments}
            for call in message.calls
        ]
    if message.call_id is not None:
        keys["tool_call_id"] = message.call_id
    if message.name is not None:
        keys["name"] = message.name
    if message.channel is not None:
        keys["channel"] = message.channel
    if not message.trained:
        keys["trained"] = False
    if message.truncated:
        keys["truncated"] = True
    return keys


def _joined(texts: tuple[str, ...]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else list(texts)


WHOLE_KEYS = frozenset({"messages", "tools", "settings", "chat_template_kwargs", "weight"})
KEYS = {
    "system": frozenset({"role", "content"}),
    "developer": frozenset({"role", "content"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "reasoning", "tool_calls", "channel", "trained", "truncated"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
"""The allowed keys of a message, by role."""
CALL_KEYS = frozenset({"id", "name", "arguments"})
TOOL_KEYS = frozenset({"name", "description", "parameters"})


def parse_conversation(text: str | bytes | None, quotes: int | None = None) -> Conversation:
    """The conversation of one row. `quotes`: see `strict_json.loads`.

    Raises RowRefusedError: no text, not UTF-8, not JSON, duplicate or unknown key or role, a value of the wrong type,
    no assistant message, no trained message.
    """
    whole, messages = messages_of(text, quotes)
    _refuse_unknown(whole, WHOLE_KEYS, "messages_json")
    parsed = tuple([_message(message, index) for index, message in enumerate(messages)])
    answers = [message for message in parsed if message.role == "assistant"]
    if not answers:
        raise RowRefusedError(Reason.NO_ASSISTANT, "no message is from the assistant: nothing would be trained")
    if not any(message.trained for message in answers):
        raise RowRefusedError(Reason.NOTHING_TRAINED, "no message of the assistant is trained")
    kwargs, weight = whole.get("chat_template_kwargs"), whole.get("weight")
    if not isinstance(kwargs, dict | None):
        raise _invalid("chat_template_kwargs", "an object")
    if weight is not None and not is_weight(weight):
        raise _invalid("weight", "a number greater than 0")
    return Conversation(
        messages=parsed,
        tools=_tools(whole.get("tools")),
        settings=_settings(whole.get("settings")),
        chat_template_kwargs=kwargs or {},
        weight=None if weight is None else float(weight),
    )


def _message(value: Any, index: int) -> Message:
    """Message `number` of a conversation. Error texts are made only when needed: most messages are valid, and there are
    many."""
    if type(value) is not dict:
        raise RowRefusedError(Reason.MESSAGE_NOT_OBJECT, f"message {index} is not an object")
    role = value.get("role")
    if type(role) is not str or role not in KEYS:
        roles = ", ".join(KEYS)
        raise RowRefusedError(Reason.ROLE_UNKNOWN, f"message {index} has role {role!r}, not one of {roles}")
    if not KEYS[role].issuperset(value):
        _refuse_unknown(value, KEYS[role], f"message {index}")
    content = value.get("content")
    texts = (content,) if type(content) is str and content else _texts(content, "content", index)
    if len(value) == 2:
        return Message(role=role, texts=texts)  # type: ignore[arg-type]  # one of KEYS
    channel, trained, truncated = value.get("channel"), value.get("trained", True), value.get("truncated", False)
    if channel is not None and (type(channel) is not str or channel not in CHANNELS):
        raise _invalid(f"channel of message {index}", "commentary or final")
    if type(trained) is not bool:
        raise _invalid(f"trained of message {index}", "true or false")
    if type(truncated) is not bool:
        raise _invalid(f"truncated of message {index}", "true or false")
    return Message(
        role=role,  # type: ignore[arg-type]  # one of KEYS
        texts=texts,
        reasoning=_texts(value.get("reasoning"), "reasoning", index),
        calls=_calls(value.get("tool_calls"), index),
        call_id=_text(value.get("tool_call_id"), "tool_call_id of message", index),
        name=_text(value.get("name"), "name of message", index),
        channel=channel,  # type: ignore[arg-type]  # one of CHANNELS
        trained=trained,
        truncated=truncated,
    )


def _texts(value: Any, name: str, index: int) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if type(value) is str:
        return (value,)
    if type(value) is not list or not all(type(text) is str for text in value):
        raise _invalid(f"{name} of message {index}", "text, a list of texts or null")
    return tuple(text for text in value if text)


def _text(value: Any, name: str, where: object) -> str | None:
    if value is not None and type(value) is not str:
        raise _invalid(f"{name} {where}", "text")
    return value


def _calls(value: Any, index: int) -> tuple[Call, ...]:
    if value is None:
        return ()
    if type(value) is not list:
        raise _invalid(f"tool_calls of message {index}", "a list")
    calls = []
    for number, call in enumerate(value):
        name = f"call {number} of message {index}"
        if type(call) is not dict or type(call.get("name")) is not str or type(call.get("arguments")) is not str:
            raise _invalid(name, "an object with texts under name and arguments")
        _refuse_unknown(call, CALL_KEYS, name)
        calls.append(Call(id=_text(call.get("id"), "id of", name), name=call["name"], arguments=call["arguments"]))
    return tuple(calls)


def _tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if type(value) is not list:
        raise _invalid("tools", "a list")
    for number, tool in enumerate(value):
        name = f"tool {number}"
        if type(tool) is not dict or type(tool.get("name")) is not str:
            raise _invalid(name, "an object with text under name")
        _refuse_unknown(tool, TOOL_KEYS, name)
        _text(tool.get("description"), "description of", name)
        if not isinstance(tool.get("parameters"), dict | None):
            raise _invalid(f"parameters of {name}", "an object")
    return tuple(value)


def _settings(value: Any) -> Settings:
    if value is None:
        return Settings()
    if type(value) is not dict:
        raise _invalid("settings", "an object")
    _refuse_unknown(value, frozenset(SETTINGS), "settings")
    return Settings(**{name: _text(setting, name, "of settings") for name, setting in value.items()})


def _refuse_unknown(keys: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if not known.issuperset(keys):
        unknown = ", ".join(repr(key) for key in keys if key not in known)
        raise RowRefusedError(Reason.KEY_UNKNOWN, f"{where} has the keys {unknown}, which the format does not have")


def _invalid(name: str, wanted: str) -> RowRefusedError:
    return RowRefusedError(Reason.FIELD_INVALID, f"{name} must be {wanted}")
