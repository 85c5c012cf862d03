"""Contents and parts of Gemini.

In: a record with `contents`, `systemInstruction` and `tools` of `functionDeclarations`, also spelled with underscores.
Out: these as messages.

    {"text"}                          text
    {"text", "thought": true}         reasoning
    {"functionCall": {"name", "args"}}            a call
    {"functionResponse": {"name", "response"}}    a result
"""

import json
from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, listed, objects
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.schemas import json_schema
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing

NAMES = {
    "messages": ("contents",),
    "system": ("systemInstruction", "system_instruction"),
    "tools": ("tools",),
    "completions": ("completions",),
}


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    value = names.found("messages", record)
    return bool(value) and any("parts" in content for content in objects(record[value[0]]))


def _draft(taken: Taken) -> Draft:
    contents = listed(taken.one("messages"))
    if not isinstance(contents, list):
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the contents are {kind(contents)}, not a list")
    messages: list[Any] = []
    for number, content in enumerate(contents):
        messages += _messages(content, f"message {number}", taken)
    if taken.values["completions"]:
        messages += _messages(_preferred(taken), f"message {len(contents)}", taken)
    return Draft(messages=messages, system=_system(taken.one("system")), tools=_tools(taken.one("tools")))


def _preferred(taken: Taken) -> Any:
    """The completion with the highest score (preference tuning of Vertex AI); the others are counted."""
    scored = [
        (item["score"], item.get("completion"))
        for item in objects(taken.one("completions"))
        if isinstance(item.get("score"), int | float)
    ]
    best = max((score for score, _ in scored), default=0)
    if len(scored) != len(taken.one("completions")) or [score for score, _ in scored].count(best) != 1:
        raise RecordRefusedError(Refusal.NO_MESSAGES, "no one of the completions has the highest score")
    for score, completion in scored:
        if score != best:
            taken.dropping.count("rejected", completion)
    return next(completion for score, completion in scored if score == best)


def _messages(content: Any, where: str, taken: Taken) -> list[Any]:
    if not isinstance(content, dict):
        raise RecordRefusedError(Refusal.MESSAGE_NOT_OBJECT, f"{where} is {kind(content)}, not an object")
    keys = dict(content)
    parts = keys.pop("parts", None)
    parts = [parts] if isinstance(parts, dict | str) else parts
    if not isinstance(parts, list):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the parts are {kind(parts)}, not a list")
    role = keys.pop("role", None) or "user"
    message: dict[str, Any] = {"role": "user" if role == "function" else role, "content": [], **keys}
    results: list[Any] = []
    for index, part in enumerate(parts):
        place = f"{where}, part {index}"
        part = {"text": part} if isinstance(part, str) else part
        if not isinstance(part, dict):
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{place} is {kind(part)}, not text")
        rest = {key: value for key, value in part.items() if value is not None}
        call = rest.pop("functionCall", rest.pop("function_call", None))
        result = rest.pop("functionResponse", rest.pop("function_response", None))
        if signature := rest.pop("thoughtSignature", rest.pop("thought_signature", None)):
            message.setdefault("signature", []).append(signature)
        if call is not None:
            message.setdefault("tool_calls", []).append(_call(call, place))
        elif result is not None:
            results.append(_result(result, place))
        elif "text" in rest:
            thought = rest.pop("thought", False)
            message["content"].append({"type": "thinking" if thought else "text", **rest})
        elif rest:
            name = next(iter(rest))
            if not taken.dropping.drops(f"part:{name}", part):
                raise RecordRefusedError(
                    Refusal.PART_UNKNOWN, f"{place} is {name!r}: text alone becomes tokens", f"--drop part:{name}"
                )
    speaks = bool(message["content"]) or "tool_calls" in message or not results
    return [*results, *([message] if speaks else [])]


def _call(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, f"{where} is {kind(call)}, not a call")
    keys = dict(call)
    arguments = keys.pop("args", None)
    return {**keys, "arguments": {} if arguments is None else arguments}


def _result(result: Any, where: str) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise RecordRefusedError(Refusal.TOOL_RESULT_UNMATCHED, f"{where} is {kind(result)}, not a result")
    keys = dict(result)
    answer = keys.pop("response", None)
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": keys.pop("id", None), "content": text, **keys}


def _system(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = value.get("parts")
        value = [value] if isinstance(value, dict) else value
    if isinstance(value, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in value]
        if not all(isinstance(text, str) for text in texts):
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, "the system instruction holds more than text")
        value = "".join(map(str, texts))
    return [] if says_nothing(value) else [value]


def _tools(value: Any) -> Any:
    tools: list[Any] = []
    for tool in [value] if isinstance(value, dict) else listed(value) or []:
        declared = None
        if isinstance(tool, dict):
            declared = tool.get("functionDeclarations", tool.get("function_declarations"))
        for item in declared if isinstance(declared, list) else [tool]:
            schema = (
                {"parameters": json_schema(item["parameters"])}
                if isinstance(item, dict) and "parameters" in item
                else {}
            )
            tools.append({**item, **schema} if isinstance(item, dict) else item)
    return tools or None


GEMINI = FormKind(
    name="gemini",
    title="contents and parts (Gemini)",
    meanings=("id", "system", "messages", "completions", "tools"),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
