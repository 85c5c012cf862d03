"""Questions whose answers are calls, as in xLAM.

In: a record with `query`, `answers` (calls) and `tools`, the last two also as JSON text. Out: the question and the
calls. xLAM's parameters are converted to JSON Schema: `{"n": {"type": "int, optional", "default": 1}}` → an object
with the integer property n, not required.
"""

import json
from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, joined, listed, objects
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.schemas import json_schema
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind

NAMES = {"query": ("query", "question", "instruction"), "answer": ("answers",)}


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    answers = names.found("answer", record)
    calls = list(objects(record[answers[0]])) if answers else []
    return bool(calls and names.found("query", record)) and all(
        "name" in call and "arguments" in call for call in calls
    )


def _draft(taken: Taken) -> Draft:
    answer = taken.one("answer")
    calls = listed(answer)
    if not isinstance(calls, list):
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the answers are {kind(calls)}, not a list of calls")
    if not taken.values["query"]:
        raise RecordRefusedError(Refusal.NO_MESSAGES, "the record has no query")
    tools = listed(taken.one("tools"))
    return Draft(
        messages=[
            {"role": "user", "content": joined(taken.values["query"])},
            {"role": "assistant", "tool_calls": json.dumps(calls) if isinstance(answer, str) else calls},
        ],
        tools=[_described(tool) for tool in tools] if isinstance(tools, list) else tools,
    )


def _described(tool: Any) -> Any:
    if not isinstance(tool, dict) or not isinstance(parameters := tool.get("parameters"), dict):
        return tool
    if isinstance(parameters.get("properties"), dict) or not all(
        isinstance(spec, dict) for spec in parameters.values()
    ):
        return {**tool, "parameters": json_schema(parameters)}
    required = [name for name, spec in parameters.items() if "default" not in spec and "optional" not in _type(spec)]
    properties = {name: _property(spec) for name, spec in parameters.items()}
    return {**tool, "parameters": {"type": "object", "properties": properties, "required": required}}


def _type(described: dict[str, Any]) -> str:
    return described["type"] if isinstance(described.get("type"), str) else ""


def _property(described: dict[str, Any]) -> Any:
    """`{"type": "List[int], optional"}` → `{"type": "array", "items": {"type": "integer"}}`"""
    name = _type(described).partition(",")[0].strip()
    outer, bracket, inner = name.partition("[")
    if not name:
        return described
    if not bracket:
        return json_schema({**described, "type": name})
    if outer.lower() == "optional":
        return json_schema({**described, "type": inner.rstrip("]")})
    items = inner.removesuffix("]").partition(",")[0]
    held = {"items": {"type": items}} if outer.lower() in ("list", "set", "tuple") and "[" not in items else {}
    return json_schema({**described, "type": outer, **held})


XLAM = FormKind(
    name="xlam",
    title="questions whose answers are calls (xLAM)",
    meanings=("id", "system", "query", "answer", "tools"),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
