"""Blocks of a content that are messages of their own: Anthropic's calls and results, LLaMA-Factory's calls.

In: a message whose content is a list of blocks. Out: messages of OpenAI's form, in the order of the blocks, of which
`spanloom.conversations.messages` makes turns.

    tool_use {"id", "name", "input"}; tool_call, function_call {"value": the JSON of a call}    tool_calls
    tool_result {"tool_use_id", "content"}                                                      a message of a tool
    text, thinking, reasoning, …                                                                stay in the content
"""

import json
from collections.abc import Mapping
from typing import Any

from spanloom.conversations.turns import Dropping, RecordRefusedError, Refusal, kind
from spanloom.records.json_lines import unique_keys

CALLS = ("tool_use", "tool_call", "function_call")
RESULTS = ("tool_result",)
REASONING = ("thinking", "reasoning", "redacted_thinking")
PART_METADATA = frozenset({"signature", "cache_control", "citations", "annotations", "logprobs", "is_error"})
"""Keys of a part that are no text and change none; they travel as metadata."""


def messages_of(
    message: Mapping[str, Any], content_key: str, assistant: bool, where: str, dropping: Dropping
) -> list[dict[str, Any]]:
    """The messages that a message is. Texts of the assistant before a call in a later message are commentary.

    `content_key`: the key of its content. Raises RecordRefusedError.
    """
    content = message.get(content_key)
    if not isinstance(content, list) or not any(_type(part) in (*CALLS, *RESULTS) for part in content):
        return [dict(message)]
    groups: list[dict[str, Any]] = []
    for index, part in enumerate(content):
        name, place = _type(part), f"{where}, part {index}"
        if name in (*CALLS, *RESULTS) and dropping.drops(f"part:{name}", part):
            continue
        last = groups[-1] if groups else {}
        if name in CALLS:
            if not assistant:
                raise RecordRefusedError(Refusal.PART_UNKNOWN, f"{place} is a call, and is not from the assistant")
            if not groups:
                groups.append(last := {content_key: []})
            last.setdefault("tool_calls", []).append(_call(part, place))
        elif name in RESULTS:
            groups.append(_result(part, content_key, place))
        else:
            held = [_type(before) for before in last.get(content_key, [])] if "role" not in last else []
            later = "tool_calls" in last or (name in REASONING and any(before not in REASONING for before in held))
            if not groups or "role" in last or later:
                groups.append(last := {content_key: []})
            last[content_key].append(part)
    if not groups:
        return [{**message, content_key: None}]
    kept = {key: value for key, value in message.items() if key in ("role", "from", "speaker")}
    others = {key: value for key, value in message.items() if key != content_key and key not in kept}
    made = [group if "role" in group else {**kept, **group} for group in groups]
    return [{**others, **made[0]}, *made[1:]]


def _type(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None


def _call(part: dict[str, Any], where: str) -> dict[str, Any]:
    keys = {key: value for key, value in part.items() if key != "type" and key not in PART_METADATA}
    if "value" in keys:
        written = keys["value"]
        try:
            return dict(unique_keys(written.encode()) if isinstance(written, str) else written)
        except (ValueError, TypeError, RecursionError) as fault:
            raise RecordRefusedError(
                Refusal.TOOL_CALL_INVALID, f"{where}: the text of the call is not JSON: {fault}"
            ) from None
    arguments = keys.pop("input", None)
    return {**keys, "arguments": {} if arguments is None else arguments}


def _result(part: dict[str, Any], content_key: str, where: str) -> dict[str, Any]:
    keys = {key: value for key, value in part.items() if key != "type"}
    content = keys.pop("content", keys.pop("value", None))
    if content is not None and not isinstance(content, str | list | dict):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the content is {kind(content)}, not text")
    if isinstance(content, dict):
        content = json.dumps(content, ensure_ascii=False)
    call = keys.pop("tool_use_id", None)
    metadata = {key: keys.pop(key) for key in PART_METADATA if key in keys}
    return {"role": "tool", "tool_call_id": call, content_key: content, **metadata, **keys}
