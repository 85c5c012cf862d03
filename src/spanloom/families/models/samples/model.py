"""A small model's folder and conversations for it, to try the family without a download.

In: a place. Out: `chat.jsonl`, the conversations of `sample` in the OpenAI message format, and `model/`, a chat
template with a byte-level tokenizer. The files are the same each time.
"""

import json
from importlib.resources import files as packaged
from pathlib import Path
from typing import Any

from spanloom.families.models.conversation import Conversation, Message
from spanloom.families.models.samples.conversations import sample_conversations
from spanloom.storage.scratch import write_files

_MODEL = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""Files beside this module: ChatML with reasoning, tools and calls, which leaves nothing of a conversation out, and a
tokenizer without merges, with a token for each byte and each control string."""

_HOSTILE = {"control tokens", "thinking tag", "names of roles", "assistant begins"}
"""Conversations that `convert` or a proof refuses on purpose."""


def files() -> dict[str, bytes]:
    """Name below the place → its bytes."""
    conversations = (conversation for _, conversation in sample_conversations())
    records = [_record(each) for each in conversations if each.id.partition(": ")[2] not in _HOSTILE]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    folder = packaged(__package__).joinpath("files/model")
    return {"chat.jsonl": lines, **{f"model/{name}": folder.joinpath(name).read_bytes() for name in _MODEL}}


def _record(conversation: Conversation) -> dict[str, Any]:
    tools = {"tools": list(conversation.tools)} if conversation.tools else {}
    return {"id": conversation.id, "messages": [_message(each) for each in conversation.messages], **tools}


def _message(message: Message) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if key not in ("reasoning", "tool_calls")}
    if message.get("reasoning"):
        kept["reasoning_content"] = message["reasoning"]
    if message.get("tool_calls"):
        kept["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": json.dumps(call["arguments"], ensure_ascii=False),
                },
            }
            for call in message["tool_calls"]
        ]
    return kept


def run(*, out: str, scratch: Path | None = None) -> list[str]:
    """Writes the files at a place, a folder or a URI; returns their names."""
    return write_files("model-sample", files(), out, scratch, last="chat.jsonl")
