"""Reads function definitions and calls in all forms that chat data uses.

In: `tools`, `functions`, `tool_calls`, `function_call` of a record. Out: descriptions of tools, `Call`s.

    {"type": "function", "function": {"name": …, "description": …, "parameters": …}}   OpenAI
    {"name": …, "description": …, "parameters": …}                                     the same, unwrapped
    {"name": …, "description": …, "input_schema": …}                                   Anthropic
    {"toolSpec": {"name": …, "description": …, "inputSchema": {"json": …}}}            Bedrock
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from spanloom.conversations.flags import NOT_DROPPED, SET_ASIDE
from spanloom.conversations.turns import Call, Dropping, RecordRefusedError, Refusal, kind, says_nothing
from spanloom.records.json_lines import unique_keys

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names that a header can hold as `functions.NAME` or `user:NAME`: a space or a `<` would end the name."""
PREFIX = "functions."


def tool_descriptions(value: Any, dropping: Dropping) -> list[dict[str, Any]]:
    """Reads a list of tools, each an object or its JSON text; the list may be JSON text itself.

    Returns `{"name", "description", "parameters"}` of each; the last two only if present. Raises RecordRefusedError.
    """
    if isinstance(value, str):
        try:
            value = parsed_json(value, Refusal.TOOLS_INVALID, "the list of tools")
        except RecordRefusedError:
            if (value := python_value(value)) is None:
                raise
    if isinstance(value, dict) and value.keys() <= {"tools", "toolChoice"}:  # Bedrock's
        value = value.get("tools")
    if says_nothing(value):
        return []
    if not isinstance(value, list):
        raise RecordRefusedError(Refusal.TOOLS_INVALID, f"the tools are {kind(value)}, not a list")
    return [_description(tool, f"tool {number}", dropping) for number, tool in enumerate(value)]


def _description(tool: Any, where: str, dropping: Dropping) -> dict[str, Any]:
    if isinstance(tool, str):
        tool = parsed_json(tool, Refusal.TOOLS_INVALID, f"{where}: its text")
    if isinstance(tool, dict) and isinstance(spec := tool.get("toolSpec"), dict) and len(tool) == 1:
        schema = spec.get("inputSchema")
        tool = {key: value for key, value in spec.items() if key != "inputSchema"}
        tool["parameters"] = schema.get("json") if isinstance(schema, dict) else schema
    tool = _uncovered(tool, where, Refusal.TOOLS_INVALID)
    name = _name(tool.pop("name", None), where, Refusal.TOOLS_INVALID)
    description, parameters = tool.pop("description", None), tool.pop("parameters", None)
    if parameters is None:
        parameters = tool.pop("input_schema", None)
    if description is not None and not isinstance(description, str):
        raise RecordRefusedError(Refusal.TOOLS_INVALID, f"{where}: the description is {kind(description)}, not text")
    if isinstance(parameters, str) and parameters:
        parameters = parsed_json(parameters, Refusal.TOOLS_INVALID, f"{where}: the text of its parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise RecordRefusedError(Refusal.TOOLS_INVALID, f"{where}: the parameters are {kind(parameters)}, not a schema")
    refuse_other_keys(tool, where, dropping)
    described = {"name": name, **({"description": description} if description else {})}
    return described if parameters is None else {**described, "parameters": parameters}


def not_rendered(schema: Any, shown: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Keys of a schema, with values, that openai-harmony 0.0.8 ignores when it writes parameters as TypeScript.

    `shown`: the keys that are written besides the type; they depend on where the schema is. Servers render with
    openai-harmony too, so such keys refuse no record; they stay in the row and are counted.
    """
    if not isinstance(schema, dict):
        return
    variants, type_ = schema.get("oneOf"), schema.get("type")
    if isinstance(variants, list):
        # A property's own text replaces the text of its first variant.
        description = schema.get("description") if "title" in shown else None
        for number, variant in enumerate(variants):
            yield from not_rendered(
                variant, _OF_VARIANT - {"description"} if description and not number else _OF_VARIANT
            )
        shown -= {"nullable"}
    elif type_ == "object":
        shown |= {"description", "properties", "required"}
        properties = schema.get("properties")
        for inner in properties.values() if isinstance(properties, dict) else ():
            yield from not_rendered(inner, _OF_PROPERTY)
    elif type_ == "array":
        shown |= {"items"}
        yield from not_rendered(schema.get("items"))
    elif type_ == "string":
        shown |= {"enum"}
    for key, value in schema.items():
        if key in ("enum", "examples") and key in shown:
            value = [item for item in value if not isinstance(item, str)] if isinstance(value, list) else value
        elif key in ("type", "oneOf") or key in shown:
            continue
        if not says_nothing(value):
            yield key, value


def not_rendered_keys(schema: Any) -> Iterator[str]:
    """The names under which these keys are counted: `parameters.pattern`; `parameters.other` for unknown keys."""
    for key, _ in not_rendered(schema):
        yield f"parameters.{key if key in _SCHEMA_KEYS else 'other'}"


_SCHEMA_KEYS = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "default", "definitions", "description",
        "enum", "examples", "format", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum",
        "not", "nullable", "pattern", "properties", "required", "title",
    }
)  # fmt: skip
"""Keys that are counted by name. All other keys can have any name, such as those of parameters."""
_OF_VARIANT = frozenset({"description", "default", "nullable"})
_OF_PROPERTY = _OF_VARIANT | {"title", "examples"}


def calls_of(value: Any, where: str, dropping: Dropping) -> list[Call]:
    """`tool_calls`: a list of calls, or the JSON text of one."""
    if isinstance(value, str):
        value = parsed_json(value, Refusal.TOOL_CALL_INVALID, f"{where}: the text of its calls")
    if says_nothing(value):
        return []
    if not isinstance(value, list):
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, f"{where}: the calls are {kind(value)}, not a list")
    return [call_of(call, f"{where}, call {number}", dropping) for number, call in enumerate(value)]


def call_of(value: Any, where: str, dropping: Dropping) -> Call:
    """One call, `{"id", "type": "function", "function": {"name", "arguments"}}` or `{"name", "arguments"}`."""
    call = _uncovered(value, where, Refusal.TOOL_CALL_INVALID)
    identity = call.pop("id", None)
    if identity is not None and not isinstance(identity, str):
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, f"{where}: the id is {kind(identity)}, not text")
    name = _name(call.pop("name", None), where, Refusal.TOOL_CALL_INVALID)
    arguments = call.pop("arguments", None)
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        detail = f"{where}: the arguments are {kind(arguments)}, not a JSON object or its text"
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, detail)
    parsed = parsed_json(arguments, Refusal.TOOL_CALL_INVALID, f"{where}: the text of its arguments")
    if isinstance(parsed, str):  # encoded twice: "{\"a\": 1}" as the text of a text
        arguments = parsed
        parsed = parsed_json(arguments, Refusal.TOOL_CALL_INVALID, f"{where}: the text in the text of its arguments")
    if not isinstance(parsed, dict):
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, f"{where}: the arguments are no JSON object")
    refuse_other_keys(call, where, dropping)
    return Call(id=identity or None, name=name, arguments=arguments)


_TYPES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bool": "boolean", "list": "array", "tuple": "array", "set": "array", "dict": "object", "map": "object",
}  # fmt: skip
"""Type names of Python and other languages → types of JSON Schema."""


def json_schema(schema: Any) -> Any:
    """Renames a schema's types, of Python or in capital letters, to those of JSON Schema.

    `{"type": "dict", "properties": {"n": {"type": "int"}}}` → `{"type": "object", "properties": {"n": {"type":
    "integer"}}}`. Any other value is unchanged.
    """
    if isinstance(schema, list):
        return [json_schema(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    named = {key: json_schema(value) if key in _HOLD_SCHEMAS else value for key, value in schema.items()}
    if isinstance(properties := schema.get("properties"), dict):
        named["properties"] = {key: json_schema(value) for key, value in properties.items()}
    if isinstance(name := schema.get("type"), str):
        named["type"] = _TYPES.get(name.lower(), name.lower() if name.isupper() else name)
    return named


_HOLD_SCHEMAS = ("items", "oneOf", "anyOf", "allOf", "additionalProperties")


def function_name(value: str) -> str:
    """`functions.get` → `get`: the name below the namespace of functions."""
    return value.removeprefix(PREFIX)


def _uncovered(value: Any, where: str, reason: Refusal) -> dict[str, Any]:
    """The keys of a tool or call, including those under `function`."""
    if not isinstance(value, dict):
        raise RecordRefusedError(reason, f"{where} is {kind(value)}, not an object")
    keys = dict(value)
    type_name = keys.pop("type", None)
    if type_name not in (None, "function"):
        raise RecordRefusedError(reason, f"{where} is of type {type_name!r}, not a function", "--drop tools,tool_calls")
    inner = keys.pop("function", None)
    if inner is None:
        return keys
    if not isinstance(inner, dict):
        raise RecordRefusedError(reason, f"{where}: the function is {kind(inner)}, not an object")
    if not keys.keys().isdisjoint(inner) and (twice := [key for key in inner if not says_nothing(keys.get(key))]):
        raise RecordRefusedError(reason, f"{where} says {twice[0]} twice, outside and within its function")
    return {**keys, **inner}


def _name(value: Any, where: str, reason: Refusal) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(function_name(value)):
        raise RecordRefusedError(reason, f"{where} has the name {value!r}: letters, digits, _, - and . are possible")
    return function_name(value)


def refuse_other_keys(keys: dict[str, Any], where: str, dropping: Dropping) -> None:
    """Refuses the remaining keys of an object, unless they are empty or dropped."""
    left = [key for key, value in keys.items() if not says_nothing(value) and not dropping.drops(key, value)]
    if flags := NOT_DROPPED.intersection(left):
        flag = min(flags)
        detail = f"{where} has {flag!r}, which says whether it is trained: a message is trained whole or not"
        raise RecordRefusedError(Refusal.WEIGHT_ZERO, detail, SET_ASIDE, key=flag)
    if left:
        named = f"the key {left[0]!r}" if len(left) == 1 else f"the keys {', '.join(map(repr, left))}"
        raise RecordRefusedError(
            Refusal.KEY_UNKNOWN,
            f"{where} has {named}, which conversations do not have",
            f"--drop {','.join(left)}",
            key=left[0],
        )


def parsed_json(text: str, reason: Refusal, name: str) -> Any:
    """The value of a JSON text in a record. `name`: names the text in errors. Raises RecordRefusedError."""
    try:
        return unique_keys(text.encode())
    except (ValueError, RecursionError) as fault:
        raise RecordRefusedError(reason, f"{name} is not JSON: {fault}") from None


def python_value(text: str) -> Any:
    """The value of a text written by Python's `repr`, as in lists that pandas writes to CSV; None for any other text.

    `[{'role': 'user', 'content': None}]` → the list. Only a JSON value whose repr is exactly this text is accepted:
    NumPy's repr leaves out commas, and Python would concatenate the neighbouring strings.
    """
    try:
        value = ast.literal_eval(text.strip())
        same = repr(value) == text.strip() and json.loads(json.dumps(value)) == value
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if same else None
