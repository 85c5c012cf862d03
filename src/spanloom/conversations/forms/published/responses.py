"""Items of OpenAI's Responses: messages, reasoning, calls and their outputs in one list.

In: a record with such a list under `input`, `output`, `items`, `messages` or `response.output`; a separate request
(NeMo Gym: `responses_create_params`) holds `input`, `instructions` and `tools`. Out: these as messages.
Text of the assistant before a call of the same turn is commentary; its last text is the answer.

    message {"role", "content": text or parts input_text, output_text}
    reasoning {"content": [reasoning_text]}; with a `summary` alone the reasoning itself is missing: refused
    function_call {"call_id", "name", "arguments"}, function_call_output {"call_id", "output"}
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, listed, objects
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.flags import is_truncated
from spanloom.conversations.reading.harmony import Part
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing

ITEMS = ("message", "reasoning", "_call", "_call_output")
"""Suffixes of item types. A `web_search_call` is recognised too, and refused by name."""
METADATA = ("id", "status", "encrypted_content", "phase")
REQUEST = "responses_create_params"
"""NeMo Gym's key for the request of a run; the answer is under `response`."""
NAMES = {
    "input": ("input", "items", "messages"),
    "output": ("output",),
    "system": ("instructions", "system"),
    "reasoning": (),
}
"""`reasoning` of a request has its effort: only `--map reasoning=summary` says where the reasoning is."""


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    values = [record[key] for meaning in ("input", "output") for key in names.found(meaning, record)]
    if isinstance(response := record.get("response"), dict):
        values.append(response.get("output"))
    items = list(chain.from_iterable(objects(value) for value in values))
    return any(str(item.get("type")).endswith(ITEMS) for item in items)


def _draft(taken: Taken) -> Draft:
    items: list[Any] = []
    request = taken.left.get(REQUEST)
    asked = dict(request) if isinstance(request, dict) and not taken.values["input"] else {}
    stated = {"input": asked.pop("input", None), "output": None}
    instructions = [text for text in [asked.pop("instructions", None)] if not says_nothing(text)]
    tools = asked.pop("tools", None)
    if stated["input"] is not None:
        taken.left[REQUEST] = asked
    for meaning in ("input", "output"):
        value = listed(taken.one(meaning) if taken.values[meaning] else stated[meaning])
        if isinstance(value, str):
            value = [{"role": "user" if meaning == "input" else "assistant", "content": value}]
        if value is not None and not isinstance(value, list):
            raise RecordRefusedError(Refusal.NO_MESSAGES, f"the {meaning} is {kind(value)}, not a list of items")
        items += value or []
    response = taken.left.get("response")
    if isinstance(response, dict) and isinstance(response.get("output"), list):
        items += response["output"]
        taken.left["response"] = {key: value for key, value in response.items() if key != "output"}
    settings: dict[str, str | None] = {}
    reasoning = taken.left.get("reasoning") or asked.get("reasoning")
    if isinstance(reasoning, dict) and isinstance(effort := reasoning.get("effort"), str):
        settings["reasoning_effort"] = effort
    if not items:
        raise RecordRefusedError(Refusal.NO_MESSAGES, "the record has no items under input or output")
    return Draft(messages=list(_messages(items, taken)), system=instructions, tools=tools, settings=settings)


def _messages(items: list[Any], taken: Taken) -> list[Any]:
    made: list[Any] = []
    calls: list[Any] | None = None
    for number, item in enumerate(items):
        where = f"item {number}"
        if not isinstance(item, dict):
            raise RecordRefusedError(Refusal.MESSAGE_NOT_OBJECT, f"{where} is {kind(item)}, not an object")
        keys = dict(item)
        name = keys.pop("type", None) or "message"
        if taken.dropping.drops(f"part:{name}", item):
            continue
        cut = is_truncated({"finish_reason": keys.get("status")})
        keys = {key: value for key, value in keys.items() if key not in METADATA}
        if cut:
            keys["finish_reason"] = "incomplete"
        if name == "function_call":
            call = {"id": keys.pop("call_id", None), **keys}
            if calls is None:
                calls = []
                made.append({"role": "assistant", "tool_calls": calls})
            calls.append(call)
            continue
        calls = None
        if name == "message":
            made.append(keys)
        elif name == "reasoning":
            made += _reasoning(keys, where, taken)
        elif name == "function_call_output":
            made.append(
                {"role": "tool", "tool_call_id": keys.pop("call_id", None), "content": keys.pop("output", None), **keys}
            )
        else:
            raise RecordRefusedError(
                Refusal.PART_UNKNOWN,
                f"{where} is of type {name!r}, which conversations do not have",
                f"--drop part:{name}",
            )
    return _with_channels(made)


def _reasoning(keys: dict[str, Any], where: str, taken: Taken) -> list[dict[str, Any]]:
    content, summary, between = keys.pop("content", None), keys.pop("summary", None), ""
    if says_nothing(content) and "summary" in taken.names.names["reasoning"]:
        content, summary, between = summary, None, "\n\n"
    if not says_nothing(summary) and not taken.dropping.drops("summary", summary):
        raise RecordRefusedError(
            Refusal.KEY_UNKNOWN,
            f"{where} has a summary, which may not be what the model reasoned",
            "--map reasoning=summary reads it as the reasoning, which NeMo Gym writes there; "
            "--drop summary leaves summaries out",
            key="summary",
        )
    texts = [part.get("text") if isinstance(part, dict) else part for part in content or ()]
    if not all(isinstance(text, str) for text in texts):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the reasoning is no text")
    text = between.join(map(str, texts))
    return [{"role": "assistant", "reasoning": text, **keys}] if text else []


def _with_channels(made: list[dict[str, Any]]) -> list[Any]:
    """The assistant's items as parts: a text followed by a call or another text of its turn is commentary."""
    spoken: list[Any] = []
    for number, message in enumerate(made):
        later = made[number + 1] if number + 1 < len(made) else {}
        goes_on = message.get("role") == "assistant" and later.get("role") == "assistant" and "content" in message
        if message.get("role") == "assistant":
            spoken.append(Part(message=message, channel="commentary" if goes_on else None))
        else:
            spoken.append(message)
    return spoken


RESPONSES = FormKind(
    name="responses",
    title="items of OpenAI's Responses",
    meanings=("id", "system", "input", "output", "reasoning", "tools"),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
