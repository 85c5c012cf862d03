"""A conversation as a record of a trainer that applies the chat template itself.

In: a `Conversation` and the name of a trainer. Out: a record in its dialect, and what of the conversation it does not
say; or a refusal, if the trainer would train something else than the conversation says. Read in the sources of the
versions named here:

    trl 1.16.0             OpenAI messages. No flag for a message: the assistant's are all trained
    axolotl 0.19.0         OpenAI messages and tools as JSON texts, `train` of each answer (message_field_training)
    ms-swift 4.6.0         role and content, `loss` of each answer, calls as messages `tool_call`, reasoning in <think>
    automodel 02513fb8     OpenAI messages and tools as lists; its ChatDataset reads lines of JSON. No flag
    llama-factory 0.9.5    from and value in turn, calls as `function_call`, reasoning in <think>. No flag

Arguments of calls stay the text that they are. `datasets` would give calls of other tools null arguments; TRL has no
text for them, so conversations with calls are refused for it.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

from spanloom.conversations.conversation import Conversation
from spanloom.conversations.turns import Message

Trainer = Literal["trl", "axolotl", "ms-swift", "llama-factory", "automodel"]

_FLAGS = {"axolotl": "train", "ms-swift": "loss"}
"""The key of a message that says whether it is trained."""


class UnsayableError(Exception):
    """A conversation that the dialect cannot say: `reason`, a word to count it by."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def as_record(conversation: Conversation, trainer: Trainer) -> tuple[dict[str, Any], list[str]]:
    """The record, and names of what it leaves out: `weight`. Raises UnsayableError."""
    if reason := next(_refused(conversation, trainer), None):
        raise UnsayableError(reason)
    left_out = ["weight"] if conversation.weight is not None else []
    tools = [{"type": "function", "function": dict(tool)} for tool in conversation.tools]
    if trainer == "llama-factory":
        return _sharegpt(conversation), left_out
    messages = [each for message in conversation.messages for each in _messages(message, trainer)]
    record: dict[str, Any] = {"messages": _text(messages) if trainer == "axolotl" else messages}
    if tools:
        record["tools"] = tools if trainer == "automodel" else _text(tools)
    if conversation.chat_template_kwargs:
        record["chat_template_kwargs"] = dict(conversation.chat_template_kwargs)
    return record, left_out


def _refused(conversation: Conversation, trainer: Trainer) -> Iterator[str]:
    """Reasons for which the trainer would show or train something else."""
    messages = conversation.messages
    roles = [message.role for message in messages]
    if conversation.settings.as_dict():
        yield "settings"
    if conversation.chat_template_kwargs and trainer != "trl":
        yield "chat_template_kwargs"
    if trainer not in _FLAGS and any(message.role == "assistant" and not message.trained for message in messages):
        yield "untrained_answer"
    if any(message.truncated for message in messages):
        yield "truncated_answer"
    if any(message.channel is not None for message in messages):
        yield "channel"
    if any(len(message.texts) > 1 or len(message.reasoning) > 1 for message in messages):
        yield "several_parts"
    if any(message.role == "user" and message.name is not None for message in messages):
        yield "name_of_user"
    if trainer != "trl" and "developer" in roles:
        yield "developer"
    if trainer == "trl" and (conversation.tools or any(message.calls for message in messages)):
        yield "tools"
    if "system" in roles[1:]:
        yield "system_not_first"
    if trainer == "llama-factory":
        yield from _refused_in_turns(messages)


def _refused_in_turns(messages: tuple[Message, ...]) -> Iterator[str]:
    """LLaMA-Factory takes a question or result and an answer or call in turn; a call is the whole message."""
    turns = messages[1:] if messages[0].role == "system" else messages
    if any(message.calls and message.texts for message in turns):
        yield "text_beside_calls"
    if any((message.role == "assistant") != bool(number % 2) for number, message in enumerate(turns)) or len(turns) % 2:
        yield "not_in_turn"


def _messages(message: Message, trainer: Trainer) -> Iterator[dict[str, Any]]:
    """One message as messages of OpenAI, or of ms-swift, which gives each call a message of its own."""
    flag = {_FLAGS[trainer]: message.trained} if trainer in _FLAGS and message.role == "assistant" else {}
    text = "".join(message.texts)
    if trainer == "ms-swift":
        content = _thinking(message) + text
        if content or not message.calls:
            yield {"role": message.role, "content": content, **flag}
        for call in message.calls:
            yield {"role": "tool_call", "content": _call(call.name, call.arguments), **flag}
        return
    made: dict[str, Any] = {"role": message.role, "content": text, **flag}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning[0]
    if message.calls:
        made["tool_calls"] = [
            {
                **({"id": call.id} if call.id is not None else {}),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    made |= {key: value for key, value in (("tool_call_id", message.call_id), ("name", message.name)) if value}
    yield made


def _sharegpt(conversation: Conversation) -> dict[str, Any]:
    names = {"user": "human", "tool": "observation", "assistant": "gpt", "system": "system"}
    turns = []
    for message in conversation.messages:
        if message.calls:
            calls = [_call(call.name, call.arguments) for call in message.calls]
            value = _thinking(message) + (calls[0] if len(calls) == 1 else f"[{', '.join(calls)}]")
            turns.append({"from": "function_call", "value": value})
        else:
            turns.append({"from": names[message.role], "value": _thinking(message) + "".join(message.texts)})
    return {"conversations": turns, "tools": _text(list(conversation.tools)) if conversation.tools else ""}


def _thinking(message: Message) -> str:
    return f"<think>\n{message.reasoning[0]}\n</think>\n\n" if message.reasoning else ""


def _call(name: str, arguments: str) -> str:
    """`{"name": …, "arguments": …}`, the arguments as they are written."""
    return f'{{"name": {_text(name)}, "arguments": {arguments}}}'


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
