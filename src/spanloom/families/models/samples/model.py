"""A small model's folder and conversations for it, to try the family without a download.

In: a place. Out: `chat.jsonl`, the conversations of `sample` in the OpenAI message format, and `model/`, a chat
template with a byte-level tokenizer. The files are the same each time.
"""

import json
from pathlib import Path
from typing import Any

from spanloom.families.models.conversation import Conversation, Message
from spanloom.families.models.samples.conversations import sample_conversations
from spanloom.provenance import readable_json
from spanloom.storage import write_atomically
from spanloom.storage.scratch import scratch_for
from spanloom.tokenizers.byte_level import byte_level_tokenizer

CHAT_NAME, MODEL_NAME = "chat.jsonl", "model"
CONTROL_STRINGS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML with reasoning, tools and calls. It leaves nothing of a conversation out."""

_HOSTILE = {"control tokens", "thinking tag", "names of roles", "assistant begins"}
"""Conversations that `convert` or a proof refuses on purpose."""


def files() -> dict[str, bytes]:
    """Name below the place → its bytes."""
    conversations = (conversation for _, conversation in sample_conversations())
    records = [_record(each) for each in conversations if each.id.partition(": ")[2] not in _HOSTILE]
    model = {
        "tokenizer.json": readable_json(byte_level_tokenizer(CONTROL_STRINGS)),
        "tokenizer_config.json": readable_json({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
        "chat_template.jinja": TEMPLATE.encode(),
        "generation_config.json": readable_json({"eos_token_id": [2, 0]}),
    }
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    return {CHAT_NAME: lines, **{f"{MODEL_NAME}/{name}": data for name, data in model.items()}}


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
    made = files()
    with scratch_for("model-sample", [out], scratch) as staging:
        folder = staging.path(out)
        for name, data in made.items():
            write_atomically(folder / name, data)
        staging.publish_folder(out, last=CHAT_NAME)
    return list(made)
