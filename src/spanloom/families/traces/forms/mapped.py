"""Columns that the user names: `--map prompt=question,answer=solution,steps=thinking_trajectories`.

In: pairs MEANING=KEY. Out: a `TraceForm`. Dots in a key name keys of nested objects (`question.problem`); `+` joins
texts with a blank line (`instruction+input`). Steps are a text (a single step), a list of texts, or a list of objects
with `content` or `text`, and `type`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.conversations.forms.form import jq_path, number_as_text
from spanloom.conversations.turns import kind
from spanloom.errors import SpanloomError
from spanloom.families.traces.forms.form import STEP_TYPE, NoTraceError, TraceForm, trace_json, without

MEANINGS = ("prompt", "answer", "steps")


def mapped_form(pairs: Sequence[str]) -> TraceForm:
    """The form of these pairs. Raises SpanloomError for an invalid pair, or if one of MEANINGS is missing."""
    keys: dict[str, str] = {}
    for pair in pairs:
        meaning, sign, key = pair.partition("=")
        if not sign or not key or meaning not in MEANINGS or meaning in keys:
            raise SpanloomError(
                f"--map takes each of {', '.join(MEANINGS)} once, as MEANING=KEY, not {pair!r}",
                remedy="--map prompt=question,answer=solution,steps=thinking",
            )
        keys[meaning] = key
    if missing := [meaning for meaning in MEANINGS if meaning not in keys]:
        raise SpanloomError(f"--map lacks {', '.join(missing)}", remedy="name a key for each of " + ", ".join(MEANINGS))

    def traces(record: Mapping[str, Any]) -> list[dict[str, Any] | NoTraceError]:
        contents, types = _steps(_value(record, keys["steps"]), keys["steps"])
        prompt, answer = _value(record, keys["prompt"]), _value(record, keys["answer"])
        for key, value in ((keys["prompt"], prompt), (keys["answer"], answer)):
            if isinstance(value, bool | int | float):
                path = jq_path(key) if key in record else "".join(map(jq_path, key.split(".")))
                raise NoTraceError("a key is no text", f"{key!r} is {kind(value)}", number_as_text(path))
        used = [name for key in keys.values() for name in (key, *key.split("+"))]
        return [trace_json(prompt, contents, answer, without(record, *used), types=types)]

    return TraceForm(title="columns named by --map", keys=keys, traces=traces)


def _value(record: Mapping[str, Any], key: str) -> Any:
    """The value of a key; the joined texts if it names several. Raises NoTraceError if the record lacks it."""
    if key in record:
        return record[key]
    if "+" in key:
        texts = [_value(record, name) for name in key.split("+")]
        if not all(isinstance(text, str | None) for text in texts):
            raise NoTraceError("a key is no text", f"one of {key!r}, whose texts are joined")
        return "\n\n".join(text for text in texts if text)
    value: Any = record
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise NoTraceError("a key is missing", repr(key))
        value = value[name]
    return value


def _steps(value: Any, key: str) -> tuple[list[Any], list[Any]]:
    """Content and type of each step."""
    if isinstance(value, str):
        return [value], [STEP_TYPE]
    if not isinstance(value, list):
        raise NoTraceError("steps are neither text nor a list", repr(key))
    contents, types = [], []
    for step in value:
        if isinstance(step, dict):
            contents.append(step.get("content", step.get("text")))
            types.append(step.get("type", STEP_TYPE))
        else:
            contents.append(step)
            types.append(STEP_TYPE)
    return contents, types
