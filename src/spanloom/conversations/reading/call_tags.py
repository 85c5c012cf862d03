"""Function calls written in a text, by style; also the tool definitions and results that such texts hold.

In: the text of a message, and the style that `--call-tags` names. Out: the text before the calls, and the calls in
OpenAI's form; results; definitions. Raises RecordRefusedError (`markup_unclear`) for a text that does not follow its
style.

    hermes      <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call> …; <tool_response>…</tool_response>;
                <tools>[…]</tools> in the system text
    glaive      <functioncall> {"name": "f", "arguments": '{"a": 1}'}
    mistral     [TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]
    openhands   <function=f><parameter=a>1</parameter></function>, <function=f>{"a": 1}</function>;
                `EXECUTION RESULT of [f]:` of the user
    toolace     [f(a=1), g(b="x")]; a JSON list of definitions in the system text

A text whose key or role says that it holds calls needs no option: `json_of_calls`, and `python_calls` of Olmo's
`function_calls`.
"""

import ast
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

from spanloom.conversations.reading.flags import SET_ASIDE
from spanloom.conversations.reading.schemas import json_schema
from spanloom.conversations.turns import RecordRefusedError, Refusal
from spanloom.records.json_lines import unique_keys


@dataclass(frozen=True)
class _Blocks:
    """Blocks of a text between two tags. Nothing is searched after the last closing tag: from each of many opening tags
    without one, a search would go through the rest of the text."""

    pattern: re.Pattern[str]
    closing: str

    def _end(self, text: str) -> int:
        last = text.rfind(self.closing)
        return 0 if last < 0 else last + len(self.closing)

    def all(self, text: str) -> Iterator[re.Match[str]]:
        return self.pattern.finditer(text, 0, self._end(text))

    def without(self, text: str) -> str:
        end = self._end(text)
        return self.pattern.sub("", text[:end]) + text[end:]


def _between(opening: str, closing: str) -> _Blocks:
    return _Blocks(re.compile(rf"{opening}(.*?){closing}", re.DOTALL), closing)


_HERMES = _between("<tool_call>", "</tool_call>")
_RESPONSE = _between("<tool_response>", "</tool_response>")
_TOOLS = _between("<tools>", "</tools>")
_OPENHANDS = _between(r"<function=([^>\s]{1,1000})>", "</function>")
_PARAMETER = _between(r"<parameter=([^>\s]{1,1000})>", "</parameter>")
MOST_TRIES = 128
"""Places of a text from which JSON or a call is read, and that turn out to be the beginning of none."""
_EXECUTION = re.compile(r"EXECUTION RESULT of \[([^\]\s]+)\]:\s*")
_GLAIVE = "<functioncall>"
_GLAIVE_ARGUMENTS = re.compile(
    r"""^\s*\{\s*["']name["']\s*:\s*["']([^"']*)["']\s*,\s*["']arguments["']\s*:\s*'(.*)'""", re.DOTALL
)
_MISTRAL = "[TOOL_CALLS]"
_TOOLACE = re.compile(r"\s*\[\s*[^\W\d][\w .:/-]*\(.*\)\s*\]\s*", re.DOTALL)
_JSON_BEGINS = re.compile(r"(?:^|(?<=\n)|(?<=>))[ \t]*[\[{]")
"""Where JSON may begin: at the start, on a new line, after a tag."""
_DEFINITIONS = re.compile(r"\[\s*\{\s*\"")


def looks_like_toolace(text: str, system: str) -> bool:
    """Whether a text consists of ToolACE's calls of a function that the system text, or a list of tools, names."""
    if not text.lstrip().startswith("[") or not _TOOLACE.fullmatch(text):
        return False
    return f'"{text.strip()[1:].partition("(")[0].strip()}"' in system


_CALLED = ("name", "function", "tool", "tool_name", "action", "tool_calls", "function_call")
"""Keys of a call that name its function, or hold calls."""


def is_json_of_call(text: str, names: Collection[str]) -> bool:
    """Whether a text, or the code block that it is, consists of the JSON of calls of these functions."""
    bare = text.strip().removeprefix("```json").strip("`").strip()
    if not bare.startswith(("{", "[")):
        return False
    try:
        return _calls(unique_keys(bare.encode()), names)
    except (ValueError, RecursionError):
        return False


def _calls(value: Any, names: Collection[str]) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_calls(item, names) for item in value)
    held = [value[key] for key in _CALLED if key in value] if isinstance(value, dict) else []
    return any(item in names if isinstance(item, str) else _calls(item, names) for item in held)


def written_calls(text: str, style: str, where: str) -> tuple[str, list[dict[str, Any]]]:
    """The text before the calls, and the calls; for a text without calls, the whole text and an empty list."""
    if style == "hermes":
        return _tagged(text, _HERMES, where, lambda match: _hermes_calls(match[1], where))
    if style == "openhands":
        return _tagged(text, _OPENHANDS, where, lambda match: [_openhands_call(match, where)])
    if style == "glaive":
        before, mark, after = text.partition(_GLAIVE)
        return (before.strip(), [_glaive_call(after, where)]) if mark else (text, [])
    if style == "mistral":
        before, mark, after = text.partition(_MISTRAL)
        return (before.strip(), _mistral_calls(after, where)) if mark else (text, [])
    if not _TOOLACE.fullmatch(text):
        return text, []
    try:
        calls = list(_toolace_calls(text.strip()[1:-1]))
    except (ValueError, SyntaxError):
        return text, []
    return "", calls


def json_of_calls(text: str, where: str) -> tuple[str, Any]:
    """The text before the JSON of a call or of a list of calls, and its value. The calls end the text.

    Raises RecordRefusedError (`tool_call_invalid`) for a text without such JSON at its end.
    """
    if "<tool_call>" in text:
        return written_calls(text, "hermes", where)
    fault: Exception | None = None
    begins = list(_JSON_BEGINS.finditer(text))
    if len(begins) > 2 * MOST_TRIES:
        begins = [*begins[:MOST_TRIES], *begins[-MOST_TRIES:]]
    for match in begins:
        try:
            return text[: match.start()].strip(), unique_keys(text[match.start() :].encode())
        except (ValueError, RecursionError) as wrong:
            fault = fault or wrong
    with suppress(*_NO_VALUE):  # Python's repr of a call, as in Toucan
        return "", _value(text)
    why = "there is none" if fault is None else str(fault)
    raise RecordRefusedError(
        Refusal.TOOL_CALL_INVALID, f"{where}: the text does not end with the JSON of a call: {why}"
    )


def python_calls(text: str) -> list[dict[str, Any]] | None:
    """The calls in `f(a=1)` or `[f(a=1), g(b="x")]`, also one a line, as Olmo's models write them; None for any other
    text."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    try:
        return list(_toolace_calls(bare)) or None
    except (ValueError, SyntaxError):
        return None


def written_results(text: str, style: str) -> list[dict[str, Any]]:
    """The results in a tool message, as `{"name", "content"}`; the name is None if the text has none."""
    results = [match[1].strip() for match in _RESPONSE.all(text)] if style == "hermes" else []
    if not results or _RESPONSE.without(text).strip():
        return [{"name": None, "content": text}]
    return [{"name": _named(inner), "content": inner} for inner in results]


def results_of_user(text: str, style: str) -> list[tuple[str | None, str]]:
    """Names and results in a user message, for data sets without a role for tools."""
    if style == "openhands" and (match := _EXECUTION.match(text)):
        return [(match[1], text[match.end() :])]
    if style == "hermes" and text.lstrip().startswith("<tool_response>") and not _RESPONSE.without(text).strip():
        return [(result["name"], result["content"]) for result in written_results(text, style)]
    return []


def written_tools(system: str, style: str) -> list[Any]:
    """The tool definitions in a system text, with JSON Schema's types; [] if there are none."""
    texts = [match[1] for match in _TOOLS.all(system)] if style == "hermes" else [system]
    for text in texts:
        for tools in _lists(text):
            return [_definition(tool, style) for tool in tools]
    return []


def sayable(name: str) -> str:
    """`Market Trends/v2` → `Market_Trends_v2`: ToolACE's names contain characters that a header cannot hold."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name.strip())


def _unclear(where: str, what: str) -> RecordRefusedError:
    return RecordRefusedError(
        Refusal.MARKUP_UNCLEAR,
        f"{where}: {what}",
        f"--text-as-is without --call-tags keeps such markup as text; {SET_ASIDE}",
    )


def _tagged(
    text: str, blocks: _Blocks, where: str, read: Callable[[re.Match[str]], list[dict[str, Any]]]
) -> tuple[str, list[dict[str, Any]]]:
    tags = list(blocks.all(text))
    if not tags:
        return text, []
    between = [text[before.end() : after.start()] for before, after in pairwise(tags)]
    if "".join([*between, text[tags[-1].end() :]]).strip():
        raise _unclear(where, "text follows a call in it")
    return text[: tags[0].start()].strip(), list(chain.from_iterable(map(read, tags)))


_NO_VALUE = (ValueError, SyntaxError, RecursionError, MemoryError)
"""What `_value` raises for a text that is neither JSON nor a literal."""


def _value(text: str) -> Any:
    """The value of JSON or of a Python literal: Hermes' data has both."""
    try:
        return unique_keys(text.encode())
    except ValueError:
        return ast.literal_eval(text.strip())


def _hermes_calls(text: str, where: str) -> list[dict[str, Any]]:
    """The call between two tags; the calls of a list, or one a line, as in ToolRL."""
    if match := _OPENHANDS.pattern.fullmatch(text.strip()):
        return [_openhands_call(match, where)]
    try:
        value = _value(text)
    except _NO_VALUE as fault:
        try:
            value = [_value(line) for line in text.splitlines() if line.strip()]
        except _NO_VALUE:
            raise _unclear(where, f"the text of a call is not JSON: {fault}") from None
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(isinstance(call, dict) for call in calls):
        raise _unclear(where, "the text of a call is no JSON object")
    return [{**call, "name": sayable(call["name"])} if isinstance(call.get("name"), str) else call for call in calls]


def _openhands_call(block: re.Match[str], where: str) -> dict[str, Any]:
    """The arguments are parameters, or the JSON object that Llama 3 writes instead."""
    if block[2].lstrip().startswith("{"):
        return {"name": block[1], "arguments": block[2].strip()}
    if _PARAMETER.without(block[2]).strip():
        raise _unclear(where, "a call holds text beside its parameters")
    arguments = {match[1]: match[2].removeprefix("\n").removesuffix("\n") for match in _PARAMETER.all(block[2])}
    return {"name": block[1], "arguments": arguments}


def _glaive_call(text: str, where: str) -> dict[str, Any]:
    written = text.partition("<|endoftext|>")[0].strip()
    try:
        call = unique_keys(written.encode())
    except ValueError:
        match = _GLAIVE_ARGUMENTS.match(written)
        if match is None:
            raise _unclear(where, "the text of a call is not JSON") from None
        return {"name": match[1], "arguments": match[2]}
    if not isinstance(call, dict):
        raise _unclear(where, "the text of a call is no JSON object")
    return call


def _mistral_calls(text: str, where: str) -> list[dict[str, Any]]:
    name, mark, arguments = text.partition("[ARGS]")
    if mark:
        return [{"name": name.strip(), "arguments": arguments.strip().removesuffix("</s>")}]
    try:
        calls = unique_keys(text.strip().removesuffix("</s>").encode())
    except ValueError:
        raise _unclear(where, "the text of its calls is not JSON") from None
    if not isinstance(calls, list):
        raise _unclear(where, "the text of its calls is no list")
    return calls


def _toolace_calls(text: str) -> Iterator[dict[str, Any]]:
    """The calls in `f(a=1), g(b="x")`. Raises ValueError or SyntaxError for any other text."""
    rest = text.strip()
    while rest:
        name, bracket, _ = rest.partition("(")
        if not bracket:
            raise ValueError(rest)
        for end in _ends_of_call(rest, len(name)):
            try:
                call = ast.parse(f"f{rest[len(name) : end]}", mode="eval").body
            except SyntaxError:
                continue
            if isinstance(call, ast.Call) and not call.args and all(word.arg for word in call.keywords):
                arguments = {str(word.arg): _literal(word.value) for word in call.keywords}
                yield {"name": sayable(name), "arguments": arguments}
                rest = rest[end:].strip().removeprefix(",").removeprefix(";").strip()
                break
        else:
            raise ValueError(rest)


def _ends_of_call(text: str, opened: int) -> Iterator[int]:
    """Where the call whose bracket is at `opened` may end, likeliest first: where its brackets close outside of quotes;
    then after each of the first closing brackets."""
    depth = 0
    for match in _BRACKETS.finditer(text, opened):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if match[0] == ")" and depth == 0:
            yield match.end()
            break
    yield from (match.end() for match in islice(re.finditer(r"\)", text), MOST_TRIES))


_BRACKETS = re.compile(r"""[()]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
"""Brackets outside of quotes, and what is in quotes."""


def _literal(node: ast.expr) -> Any:
    """The value of a Python literal that may also use JSON's `true`, `false` and `null`."""
    words = {"true": True, "false": False, "null": None}
    if isinstance(node, ast.Name) and node.id in words:
        return words[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {
            str(ast.literal_eval(key)): _literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key
        }
    return ast.literal_eval(node)


def _named(text: str) -> str | None:
    """The name of the function in the JSON of a result."""
    try:
        value = _value(text)
    except _NO_VALUE:
        return None
    name = value.get("name") if isinstance(value, dict) else None
    return sayable(name) if isinstance(name, str) else None


def _lists(text: str) -> Iterator[list[dict[str, Any]]]:
    """Lists of named objects in a text; single named objects form one list."""
    decoder = json.JSONDecoder()
    for match in islice(_DEFINITIONS.finditer(text), MOST_TRIES):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, list) and value and all(isinstance(tool, dict) for tool in value):
            yield value
    alone, at, tries = [], 0, 0
    while (at := text.find("{", at)) >= 0 and tries < MOST_TRIES:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at, tries = at + 1, tries + 1
            continue
        if isinstance(value, dict) and ("name" in value or "function" in value):
            alone.append(value)
    if alone:
        yield alone


def _definition(tool: Any, style: str) -> Any:
    """A definition in OpenAI's form. ToolACE's definitions have an empty key `required` next to `parameters`."""
    if not isinstance(tool, dict):
        return tool
    inner = tool.get("function")
    if isinstance(inner, dict):
        return {**tool, "function": _definition(inner, style)}
    named = {key: json_schema(value) if key == "parameters" else value for key, value in tool.items()}
    if isinstance(named.get("name"), str):
        named["name"] = sayable(named["name"])
    if style == "toolace":
        named.pop("required", None)
    return named
