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
from dataclasses import replace
from typing import Any

import orjson

from spanloom.conversations.reading.call_tags import python_calls
from spanloom.conversations.reading.flags import NOT_DROPPED, SET_ASIDE, like_flag
from spanloom.conversations.reading.schemas import without_padding
from spanloom.conversations.reading.verdicts import is_doubtful, is_preference, is_verdict
from spanloom.conversations.turns import PADDING, Call, Dropping, RecordRefusedError, Refusal, kind, says_nothing
from spanloom.records.json_lines import unique_keys

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names that a header can hold as `functions.NAME` or `user:NAME`: a space or a `<` would end the name."""
PREFIX = "functions."
ARGUMENTS = ("arguments", "parameters", "args", "input", "params")
"""Keys of a call's arguments."""
NAMES = ("name", "tool", "tool_name")
"""Keys of a call's function."""


def tool_descriptions(value: Any, dropping: Dropping) -> list[dict[str, Any]]:
    """Reads a list of tools, each an object or its JSON text; the list may be JSON text itself.

    Returns `{"name", "description", "parameters"}` of each; the last two only if present. Raises RecordRefusedError.
    """
    is_text = isinstance(value, str)
    if isinstance(value, str):
        try:
            value = parsed_json(value, Refusal.TOOLS_INVALID, "the list of tools")
        except RecordRefusedError:
            if (value := python_value(value)) is None:
                raise
    if isinstance(value, dict) and value.keys() <= {"tools", "toolChoice"}:  # Bedrock's
        value = value.get("tools")
    if isinstance(value, dict) and ("function" in value or "name" in value):  # one tool
        value = [value]
    if says_nothing(value):
        return []
    if not isinstance(value, list):
        raise RecordRefusedError(Refusal.TOOLS_INVALID, f"the tools are {kind(value)}, not a list")
    if isinstance(value, list) and not is_text:
        value = [_without_padding(tool, dropping) for tool in value]
    return [_description(tool, f"tool {number}", dropping) for number, tool in enumerate(value)]


def _without_padding(tool: Any, dropping: Dropping) -> Any:
    """A tool without nulls of absent keys: of a text, or of a tool without them, unchanged."""
    if not isinstance(tool, dict) or not _holds_null(tool):
        return tool
    bare, removed = without_padding(tool)
    if removed:
        dropping.note(PADDING, removed)
    return bare


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


def calls_of(value: Any, where: str, dropping: Dropping, *, written: bool = False) -> list[Call]:
    """`tool_calls`: a list of calls, the JSON text of one, or calls in Python's notation (Olmo's `function_calls`).

    `written`: the calls were a text, as a text's are. Its nulls are arguments: Arrow pads objects alone.
    """
    written = written or isinstance(value, str)
    if isinstance(value, str) and value.strip():
        text = value
        try:
            value = parsed_json(text, Refusal.TOOL_CALL_INVALID, f"{where}: the text of its calls")
        except RecordRefusedError:
            if (value := python_calls(text)) is None:
                raise
    if isinstance(value, dict):
        value = [value]
    if says_nothing(value):
        return []
    if not isinstance(value, list):
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, f"{where}: the calls are {kind(value)}, not a list")
    calls = [call_of(call, f"{where}, call {number}", dropping) for number, call in enumerate(value)]
    return [replace(call, nulls=False) if call.nulls else call for call in calls] if written else calls


def call_of(value: Any, where: str, dropping: Dropping) -> Call:
    """One call, `{"id", "type": "function", "function": {"name", "arguments"}}` or `{"name", "arguments"}`."""
    call = _uncovered(value, where, Refusal.TOOL_CALL_INVALID)
    identity = call.pop("id", None)
    if isinstance(call.get("call_id"), str) and identity in (None, "", call["call_id"]):
        identity = call.pop("call_id")
    if identity is not None and not isinstance(identity, str):
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, f"{where}: the id is {kind(identity)}, not text")
    called = next((call.pop(key) for key in NAMES if call.get(key) is not None), None)
    name = _name(called, where, Refusal.TOOL_CALL_INVALID)
    arguments = next((call.pop(key) for key in ARGUMENTS if call.get(key) is not None), None)
    if call and (twice := [key for key in ARGUMENTS if not says_nothing(call.get(key)) and key not in dropping.names]):
        detail = f"{where} has arguments under {twice[0]!r} too"
        raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, detail, f"write them once; {SET_ASIDE}")
    nulls = isinstance(arguments, dict) and _holds_null(arguments)
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = "{}"  # a call without arguments: servers accept both, templates and models write an object
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
    return Call(id=identity or None, name=name, arguments=arguments, nulls=nulls)


def _holds_null(value: Any) -> bool:
    """Whether a value may hold null. Its JSON is searched, which takes a fifth of the time of a walk through it."""
    try:
        return b"null" in orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits
        return True


def function_name(value: str) -> str:
    """`functions.get` → `get`: the name below the namespace of functions."""
    return value.removeprefix(PREFIX)


def _uncovered(value: Any, where: str, reason: Refusal) -> dict[str, Any]:
    """The keys of a tool or call, including those under `function`."""
    if not isinstance(value, dict):
        raise RecordRefusedError(reason, f"{where} is {kind(value)}, not an object")
    keys = dict(value)
    type_name = keys.pop("type", None)
    if type_name not in (None, "function", "tool_call"):  # LangChain's calls are of the latter
        raise RecordRefusedError(reason, f"{where} is of type {type_name!r}, not a function", SET_ASIDE)
    inner = keys.pop("function", None)
    if inner is None:
        return keys
    if isinstance(inner, str) and reason is Refusal.TOOL_CALL_INVALID and "name" not in keys:
        return {**keys, "name": inner}  # AgentDojo's: {"function": "f", "args": {…}}
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
    if not keys:
        return
    left = [key for key, value in keys.items() if not says_nothing(value) and not dropping.drops(key, value)]
    if flags := NOT_DROPPED.intersection(left):
        flag = min(flags)
        detail = f"{where} has {flag!r}, which says whether it is trained: a message is trained whole or not"
        raise RecordRefusedError(Refusal.WEIGHT_ZERO, detail, SET_ASIDE, key=flag)
    if (unknown := like_flag(left, keys)) is not None:
        detail = f"{where} has {unknown!r}, which may say whether it is trained"
        remedy = f"--map trained={unknown} or --map masked={unknown} says what true means"
        raise RecordRefusedError(Refusal.WEIGHT_ZERO, detail, remedy, key=unknown)
    if left:
        named = f"the key {left[0]!r}" if len(left) == 1 else f"the keys {', '.join(map(repr, left))}"
        call = next((key for key in left if _may_be_call(key, keys[key])), None)
        remedy = f"--drop {','.join(left)}"
        if branches := next((key for key in left if key in _BRANCHES and isinstance(keys[key], list)), None):
            remedy = f"{branches!r} holds the replies: write one record for each path through them; {SET_ASIDE}"
        elif verdict := next((key for key in left if _judges(key, keys[key])), None):
            remedy = SET_ASIDE
            if isinstance(keys[verdict], bool):
                meaning = "trained" if is_preference(verdict, keys[verdict]) else "masked"
                remedy = f"--map {meaning}={verdict} says whether it is trained; {SET_ASIDE}"
        elif _PLAN in left:
            remedy = f"{moved(_PLAN, f'.reasoning_content = .{_PLAN}')} writes it as reasoning"
        elif call is not None:
            remedy = f"rename {call!r} to tool_calls if it holds calls; {SET_ASIDE}"
        elif inner := next((f".{key}.{held}" for key in left if (held := _held_calls(keys[key]))), None):
            remedy = f"its calls are within it: write {inner[1:]} as the message's own; {SET_ASIDE}"
        elif result := next((key for key in left if key.lower() in RESULT_KEYS), None):
            remedy = f"write {result!r} as a message of the role tool if it answers a call; {SET_ASIDE}"
        elif "recipient" in left and keys["recipient"] != "all":
            remedy = f"a message to a recipient is a call: write it as tool_calls; {SET_ASIDE}"
        raise RecordRefusedError(
            Refusal.KEY_UNKNOWN,
            f"{where} has {named}, which conversations do not have",
            remedy,
            key=left[0],
        )


def _judges(key: str, value: Any) -> bool:
    """Whether a key of a message is a verdict on it: a remedy that drops it would train what it rejects."""
    return is_doubtful(key, value) or (isinstance(value, bool) and is_verdict(key))


def moved(key: str, to: str) -> str:
    """The command that writes a key of all objects in a file elsewhere. `to`: jq's assignment."""
    program = f'walk(if type == "object" and has("{key}") then {to} | del(.{key}) else . end)'
    return f"jq -c '{program}' FILE > records.jsonl"


_PLAN = "tool_plan"
"""Cohere's reasoning before a call."""
_BRANCHES = frozenset({"children", "replies"})
"""Keys of a message with the messages that answer it."""
_LIKE_CALL = re.compile(r"call|action|tool|func|invo")


RESULT_KEYS = frozenset({"result", "results", "output", "response", "observation", "tool_result"})
"""Keys of a call or a message that may hold what a tool answered, in lower case."""


def _held_calls(value: Any) -> str | None:
    """The key of calls within an object (`additional_kwargs` of LangChain); None if it holds none."""
    if not isinstance(value, dict):
        return None
    return next(
        (key for key in ("tool_calls", "function_call", "function_calls") if not says_nothing(value.get(key))), None
    )


def _may_be_call(key: str, value: Any) -> bool:
    """Whether a key may hold calls or their arguments: a remedy that drops it would lose them."""
    if _LIKE_CALL.search(key.lower()):
        return isinstance(value, str | list | dict)
    named = value[0] if isinstance(value, list) and value else value
    return isinstance(named, dict) and not named.keys().isdisjoint(("name", "function", *ARGUMENTS))


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
