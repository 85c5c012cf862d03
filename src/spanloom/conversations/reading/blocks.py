"""Content blocks that become messages of their own: calls and results of Anthropic, of the AI SDK and of
OpenTelemetry; calls of LLaMA-Factory.

In: a message whose content is a list of blocks. Out: messages of OpenAI's form, in the order of the blocks;
`spanloom.conversations.reading.messages` turns them into turns.

    tool_use {"id", "name", "input"}; tool_call, function_call {"value": the JSON of a call}    tool_calls
    tool_calls {"value": the JSON of a list of calls}                                           the same
    tool_result {"tool_use_id", "content"}                                                      a message of a tool
    text, thinking, reasoning, …                                                                stay in the content
    toolUse, toolResult, reasoningContent of Bedrock's Converse                                 as Anthropic's
    tool_call {"tool_call_id", "name", "arguments"}, tool_result {"tool_result"} of Azure AI    the same
    tool_call_response {"id", "response"} of OpenTelemetry                                      a message of a tool
    tool-call {"toolCallId", "toolName", "input"}, tool-result {"output"} of Vercel's AI SDK    the same
    tool-NAME {"toolCallId", "state", "input", "output"} of its UI messages                     a call and its result
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spanloom.conversations.reading.tools import ARGUMENTS
from spanloom.conversations.turns import Dropping, RecordRefusedError, Refusal, kind
from spanloom.records.json_lines import unique_keys

CALLS = ("tool_use", "tool_call", "function_call")
RESULTS = ("tool_result",)
REASONING = ("thinking", "reasoning", "redacted_thinking")
PART_METADATA = frozenset(
    {
        "signature", "cache_control", "citations", "annotations", "logprobs", "is_error", "providerMetadata",
        "providerOptions", "callProviderMetadata", "resultProviderMetadata", "providerExecuted", "state",
    }
)  # fmt: skip
"""Keys of a part that neither hold text nor change it; they become metadata."""


CONVERSE = ("image", "document", "video", "audio", "cachePoint", "guardContent", "citationsContent")
"""Blocks of Amazon Bedrock's Converse without text of the message. Their one key is the block's type."""


def typed(part: Any, where: str) -> Any:
    """A block of Bedrock's Converse, of the AI SDK or of OpenTelemetry as Anthropic's typed block; any other part
    unchanged."""
    if not isinstance(part, dict):
        return part
    if "type" in part:
        return _of_tool(part)
    if len(part) != 1:
        return part
    (name, held), *_ = part.items()
    if name in CONVERSE:
        return {"type": name, **part}
    if not isinstance(held, dict):
        return part
    keys = dict(held)
    if name == "toolUse":
        return {"type": "tool_use", "id": keys.pop("toolUseId", None), **keys}
    if name == "toolResult":
        texts = [{"text": _json(item["json"])} if list(item) == ["json"] else item for item in _dicts(keys, where)]
        if keys.pop("status", None) == "error":
            keys["is_error"] = True
        return {"type": "tool_result", "tool_use_id": keys.pop("toolUseId", None), **keys, "content": texts}
    if name == "reasoningContent" and isinstance(reasoning := keys.get("reasoningText"), dict):
        return {"type": "thinking", **reasoning}
    return {"type": "redacted_thinking", **keys} if name == "reasoningContent" else part


def _of_tool(part: dict[str, Any]) -> dict[str, Any]:
    """A `tool-call` or `tool-result` of the AI SDK, or a `tool_call_response`, as Anthropic's block; others stay."""
    keys = dict(part)
    if part["type"] == "tool-call" and "toolName" in keys:
        call = {"id": keys.pop("toolCallId", None), "name": keys.pop("toolName", None)}
        return {**keys, "type": "tool_use", **call}
    if part["type"] == "tool-result" and "toolCallId" in keys:
        outcome = next((keys.pop(key) for key in ("output", "result") if key in keys), None)
        call_id, name = keys.pop("toolCallId", None), keys.pop("toolName", None)
        return {**keys, "type": "tool_result", "tool_use_id": call_id, "name": name, "content": _outcome(outcome)}
    if part["type"] == "tool_call_response":
        outcome = next((keys.pop(key) for key in ("response", "result") if key in keys), None)
        call_id = keys.pop("id", None)
        return {**keys, "type": "tool_result", "tool_use_id": call_id, "content": _outcome(outcome)}
    return part


STEP = "step-start"
"""The AI SDK's mark between two answers of a model in one UI message. It has no text."""


def _blocks(parts: list[Any], where: str) -> Iterator[Any]:
    """The parts of a content as Anthropic's blocks. A part of a UI message that is a call and its result becomes two;
    the results of calls in a row follow the last of them."""
    results: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        block = typed(part, f"{where}, part {index}")
        invoked = _invoked(block)
        if not invoked:
            yield from results
            results = []
            if _type(block) != STEP:
                yield from _calls_of(block)
            continue
        yield invoked[0]
        results += invoked[1:]
    yield from results


def _calls_of(block: Any) -> list[Any]:
    """The calls of a part `tool_calls`, which holds the JSON of a list of them; any other part by itself."""
    if _type(block) != "tool_calls":
        return [block]
    try:
        calls = unique_keys(block["value"].encode())
    except (KeyError, AttributeError, ValueError, RecursionError):
        return [block]
    if not isinstance(calls, list) or not calls or not all(isinstance(call, dict) for call in calls):
        return [block]
    return [{"type": CALLS[1], "value": call} for call in calls]


def _invoked(part: Any) -> list[dict[str, Any]]:
    """The call and the result of a tool's part of the AI SDK's UI messages; empty for any other part.

    {"type": "tool-f", "toolCallId": "1", "state": "output-available", "input": {}, "output": 4}
    {"type": "tool-invocation", "toolInvocation": {"toolName": "f", "toolCallId": "1", "args": {}, "result": 4}}
    """
    name = _type(part)
    if not isinstance(name, str):
        return []
    keys = dict(part)
    if name == "tool-invocation" and isinstance(keys.get("toolInvocation"), dict):
        keys = dict(keys["toolInvocation"])
    elif "state" not in keys or "toolCallId" not in keys:
        return []
    called = keys.pop("toolName", None) or name.removeprefix("tool-")
    call_id = keys.pop("toolCallId", None)
    answered = keys.pop("state", None) in ("output-available", "result")
    for key in ("type", "step"):
        keys.pop(key, None)
    held = [keys.pop(key) for key in ("output", "result", "errorText") if key in keys]
    outcome = [value for value in held if value is not None] or held[:answered]  # a tool may return null
    call = {"type": "tool_use", "id": call_id, "name": called, **keys}
    return [call, *({"type": "tool_result", "tool_use_id": call_id, "content": _outcome(held)} for held in outcome)]


_OUTCOMES = ("text", "json", "error-text", "error-json", "execution-denied")
"""Types of the AI SDK's outputs, `{"type": "json", "value": …}`."""


def _outcome(value: Any) -> Any:
    """What a tool returned, as text or as parts."""
    if isinstance(value, dict) and value.get("type") in (*_OUTCOMES, "content"):
        value = value.get("value", value.get("reason", ""))
    if isinstance(value, str) or (isinstance(value, list) and value and all(_type(item) for item in value)):
        return value
    return _json(value)


def _dicts(result: dict[str, Any], where: str) -> list[dict[str, Any]]:
    content = result.get("content") or []
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the content of a result is no list of blocks")
    return content


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def messages_of(
    message: Mapping[str, Any], content_key: str, assistant: bool, where: str, dropping: Dropping
) -> list[dict[str, Any]]:
    """Splits a message into messages. Texts of the assistant before a call in a later message are commentary.

    `content_key`: the key of the message's content. Raises RecordRefusedError.
    """
    content = message.get(content_key)
    if not isinstance(content, list):
        return [dict(message)]
    content = list(_blocks(content, where))
    if not any(_type(part) in (*CALLS, *RESULTS) for part in content):
        return [{**message, content_key: content}]
    groups: list[dict[str, Any]] = []
    for index, part in enumerate(content):
        name, place = _type(part), f"{where}, part {index}"
        if name in (*CALLS, *RESULTS) and dropping.drops(f"part:{name}", part):
            continue
        last = groups[-1] if groups else {}
        if name in CALLS:
            if not assistant:
                raise RecordRefusedError(Refusal.PART_UNKNOWN, f"{place} is a call, and is not from the assistant")
            if not groups or "role" in last:
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
    kept = {key: value for key, value in message.items() if key in ("role", "from", "speaker", "author", "sender")}
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
    for ours, theirs in (("id", "tool_call_id"), ("arguments", "input")):
        if ours not in keys and theirs in keys:
            keys[ours] = keys.pop(theirs)
    if all(keys.get(name) is None for name in ARGUMENTS):
        keys["arguments"] = {}
    return keys


def _result(part: dict[str, Any], content_key: str, where: str) -> dict[str, Any]:
    keys = {key: value for key, value in part.items() if key != "type"}
    content = next((keys.pop(key) for key in ("content", "value", "tool_result") if key in keys), None)
    if content is not None and not isinstance(content, str | list | dict):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the content is {kind(content)}, not text")
    if isinstance(content, dict):
        content = _json(content)
    call = {"tool_call_id": keys.pop("tool_use_id")} if "tool_use_id" in keys else {}
    metadata = {key: keys.pop(key) for key in PART_METADATA if key in keys}
    return {"role": "tool", **call, content_key: content, **metadata, **keys}
