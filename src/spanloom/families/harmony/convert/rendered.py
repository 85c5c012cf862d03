"""Rendered Harmony text → messages in openai-harmony's JSON form.

In: a text that begins with `<|start|>`. Out: its messages, parsed by openai-harmony. A text is accepted only if
openai-harmony renders the messages to the same tokens again, also the end of the last one: otherwise parts that its
types lack would be lost.

    # Valid channels, Knowledge cutoff, Current date, Reasoning    fields of the system message
    # Instructions                                                 instructions of the developer message
    # Tools, in TypeScript                                         refused: a schema cannot be read back from it
"""

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from spanloom.conversations.turns import RecordRefusedError, Refusal
from spanloom.families.harmony import tokenizer
from spanloom.tokenizers.o200k.asset import locate_asset

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

INSTRUCTIONS = "# Instructions\n\n"
_LINES = {
    "knowledge_cutoff": re.compile(r"^Knowledge cutoff: (.*)$", re.MULTILINE),
    "conversation_start_date": re.compile(r"^Current date: (.*)$", re.MULTILINE),
    "reasoning_effort": re.compile(r"^Reasoning: (.*)$", re.MULTILINE),
    "valid_channels": re.compile(
        r"^# Valid channels: ([^.]*)\. Channel must be included for every message\.$", re.MULTILINE
    ),
}


@cache
def _encoding() -> "HarmonyEncoding":
    return tokenizer.load_encoding(locate_asset(None))


def rendered_messages(text: str) -> list[dict[str, Any]]:
    """The messages of a rendered text. Raises RecordRefusedError if it is invalid, or if messages would lose parts."""
    from openai_harmony import Conversation, HarmonyError, Message, RenderConversationConfig

    # An answer may end as in the history or as the model ends its turn: `<|end|>` or `<|return|>`.
    encoding = _encoding()
    tokens = encoding.encode(text, allowed_special="all")
    try:
        parsed = encoding.parse_messages_from_completion_tokens(tokens, strict=True)
        messages = [_typed(json.loads(message.to_json())) for message in parsed]
        conversation = Conversation.from_messages([Message.from_dict(message) for message in messages])
        config = RenderConversationConfig(auto_drop_analysis=False)
        again = encoding.render_conversation(conversation, config)
    except (HarmonyError, ValueError) as fault:
        raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, f"the text is not a rendered conversation: {fault}") from None
    if again != [tokenizer.END if token == tokenizer.RETURN else token for token in tokens]:
        raise RecordRefusedError(
            Refusal.MARKUP_UNCLEAR,
            "the text is not what openai-harmony renders of its messages: a header in another order, white space, no "
            "end of a message",
        )
    return messages


def _typed(message: dict[str, Any]) -> dict[str, Any]:
    """A system or developer message with its text parsed back into the fields it was rendered from."""
    kept = {key: value for key, value in message.items() if value is not None}
    if message["role"] not in ("system", "developer"):
        return kept
    text = "".join(part["text"] for part in message["content"])
    if message["role"] == "developer":
        if not text.startswith(INSTRUCTIONS) or "\n# Tools\n" in text:
            raise RecordRefusedError(
                Refusal.TOOLS_INVALID, "the developer message defines tools: a schema cannot be read back from its text"
            )
        return {
            "role": "developer",
            "content": [{"type": "developer_content", "instructions": text[len(INSTRUCTIONS) :]}],
        }
    return {"role": "system", "content": [{"type": "system_content", **_fields(text)}]}


def _fields(text: str) -> dict[str, Any]:
    values = {name: match[1] for name, pattern in _LINES.items() if (match := pattern.search(text))}
    begins = [match.start() for pattern in _LINES.values() if (match := pattern.search(text))]
    identity = text[: min(begins, default=len(text))].strip()
    fields: dict[str, Any] = {
        "model_identity": identity or None,
        "knowledge_cutoff": values.get("knowledge_cutoff"),
        "conversation_start_date": values.get("conversation_start_date"),
        "reasoning_effort": values["reasoning_effort"].capitalize() if "reasoning_effort" in values else None,
        "channel_config": None,
    }
    if "valid_channels" in values:
        names = values["valid_channels"].split(", ")
        fields["channel_config"] = {"valid_channels": names, "channel_required": True}
    return fields
