"""A conversation as a template can take it: ids of calls in its form, calls as text, texts apart from their calls.

In: a conversation, the places of its commentary, `Adapting`. Out: both, adapted. `docs/families/models.md` has the
texts that are written.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from spanloom.families.models.conversation import Conversation, Message, arguments_object
from spanloom.families.models.defaults import INLINE_CALLS
from spanloom.families.models.form import FUNCTIONS, GIVEN, NINE

HERMES, JSON = INLINE_CALLS

DESCRIBED = {
    HERMES: "You may call functions. Their definitions:\n<tools>\n{tools}\n</tools>\nWrite a call as\n<tool_call>\n"
    '{{"name": NAME, "arguments": ARGUMENTS}}\n</tool_call>',
    JSON: "You may call functions. Their definitions, a line each:\n{tools}\nWrite a call as a line\n"
    '{{"name": NAME, "arguments": ARGUMENTS}}',
}
"""How tools are described, by format. `{tools}`: the definitions as JSON, a line each."""


@dataclass(frozen=True, kw_only=True)
class Adapting:
    """What is adapted.

    call_ids      the ids of calls that the template takes, as in `Form`
    inline_calls  the format in which tools, calls and results become text; None: the template writes them
    system        whether the template takes a system message; otherwise tools are described to the user
    split         whether the text beside calls becomes a message of its own, before them
    """

    call_ids: str = GIVEN
    inline_calls: str | None = None
    system: bool = True
    split: bool = False


AS_GIVEN = Adapting()


def adapted(
    conversation: Conversation, commentary: frozenset[int], adapting: Adapting
) -> tuple[Conversation, frozenset[int]]:
    """The conversation and the places of messages whose text is commentary."""
    messages = [(dict(message), place in commentary) for place, message in enumerate(conversation.messages)]
    if adapting.call_ids != GIVEN:
        _rename_calls([message for message, _ in messages], adapting.call_ids)
    if adapting.split:
        messages = [part for message, spoken in messages for part in _apart(message, spoken)]
    tools = conversation.tools
    if adapting.inline_calls is not None:
        messages, tools = _as_text(messages, tools or (), adapting), None
    spoken = frozenset(place for place, (_, spoken) in enumerate(messages) if spoken)
    return replace(conversation, messages=tuple(message for message, _ in messages), tools=tools), spoken


def _rename_calls(messages: Sequence[dict[str, Any]], style: str) -> None:
    """Renames calls and, alike, what their results refer to. A result without an id answers the next call."""
    number = 0
    renamed: dict[str, str] = {}
    waiting: list[str] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            message["tool_calls"] = named = []
            for call in calls:
                named.append({**call, "id": _call_id(call, style, number)})
                number += 1
                if call.get("id") is not None:
                    renamed[call["id"]] = named[-1]["id"]
            waiting = [call["id"] for call in named]
        elif message["role"] == "tool":
            old = message.get("tool_call_id")
            new = renamed.get(old) if old is not None else next(iter(waiting), None)
            if new is not None:
                message["tool_call_id"] = new
                waiting = [each for each in waiting if each != new]


def _call_id(call: Mapping[str, Any], style: str, number: int) -> str:
    old = str(call.get("id") or "")
    if style == FUNCTIONS:
        kept = re.fullmatch(rf"functions\.{re.escape(call['name'])}:\d+", old)
        return old if kept else f"functions.{call['name']}:{number}"
    assert style == NINE
    return old if re.fullmatch("[A-Za-z0-9]{9}", old) else hashlib.sha256((old or str(number)).encode()).hexdigest()[:9]


def _apart(message: dict[str, Any], spoken: bool) -> list[tuple[dict[str, Any], bool]]:
    if not message.get("tool_calls") or not (message.get("content") or "").strip():
        return [(message, spoken)]
    text = {key: value for key, value in message.items() if key not in ("tool_calls", "truncated")}
    calls = {key: value for key, value in message.items() if key not in ("content", "reasoning")}
    return [(text, True), ({**calls, "content": ""}, False)]


def _as_text(
    messages: Sequence[tuple[dict[str, Any], bool]], tools: Sequence[Mapping[str, Any]], adapting: Adapting
) -> list[tuple[dict[str, Any], bool]]:
    """The messages without calls and results, which are text now."""
    style = str(adapting.inline_calls)
    written: list[tuple[dict[str, Any], bool]] = []
    for is_result, group in groupby(messages, key=lambda each: each[0]["role"] == "tool"):
        if is_result:
            results = "\n".join(_result(message, style) for message, _ in group)
            written.append(({"role": "user", "content": results}, False))
            continue
        for message, spoken in group:
            calls = message.pop("tool_calls", None)
            if calls:
                lines = [message.get("content") or "", *(_call(call, style) for call in calls)]
                message["content"] = "\n".join(line for line in lines if line)
            written.append((message, spoken or bool(calls)))
    if tools:
        _describe(written, DESCRIBED[style].format(tools="\n".join(map(_json, tools))), system=adapting.system)
    return written


def _describe(written: list[tuple[dict[str, Any], bool]], text: str, *, system: bool) -> None:
    """Writes the tools behind the system message, or before the first message of the user."""
    first: Message = written[0][0]
    if not system:
        user = next((message for message, _ in written if message["role"] == "user"), None)
        if user is not None:
            user["content"] = f"{text}\n\n{user.get('content') or ''}"
            return
    if first["role"] in ("system", "developer"):
        written[0][0]["content"] = f"{first.get('content') or ''}\n\n{text}"
        return
    if first["role"] == "assistant":  # no prompt leads to it, though it is not the first message any more
        written[0][0]["trained"] = False
    written.insert(0, ({"role": "system", "content": text}, False))


def _call(call: Mapping[str, Any], style: str) -> str:
    text = _json({"name": call["name"], "arguments": arguments_object(call["arguments"])})
    return f"<tool_call>\n{text}\n</tool_call>" if style == HERMES else text


def _result(message: Message, style: str) -> str:
    text = message.get("content") or ""
    return f"<tool_response>\n{text}\n</tool_response>" if style == HERMES else _json({"result": text})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
