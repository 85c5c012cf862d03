"""The form in which a template takes messages, found by rendering small conversations.

In: a template. Out: a `Form`; the sets of template variables to try.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from spanloom.families.models.errors import ModelError
from spanloom.families.models.form import INLINE, REASONING_FIELDS, THINKING_VARIABLES, Form
from spanloom.tokenizers.chat_template import RESERVED, ChatTemplate, ChatTemplateError

_USER = {"role": "user", "content": "Where is Ouagadougou?"}
_WORD, _THOUGHT, _ANSWER = "Zanzibar", "Let me consider maps.", "In Burkina Faso."
TOOL = {
    "type": "function",
    "function": {
        "name": "find_place",
        "description": "Finds a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def variable_sets(template: ChatTemplate, thinking: str, variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sets of variables to try, in order, each once. `thinking`: `auto`, `on` or `off`.

    `variables`: given by the user, in all sets. A variable for thinking among them decides for all runs. Raises
    ModelError for the name of something that rendering gives itself.
    """
    if taken := sorted(RESERVED & set(variables)):
        raise ModelError(
            f"the template variable {taken[0]} cannot be set: rendering gives it",
            remedy=f"set others; not {', '.join(sorted(RESERVED))}",
        )
    names = [name for name in THINKING_VARIABLES if name in template.variables()]
    on, off = dict.fromkeys(names, True), dict.fromkeys(names, False)
    switched: Mapping[str, list[dict[str, Any]]] = {"auto": [{}, on, off], "on": [on], "off": [off]}
    decided = not names or any(name in variables for name in names)
    sets: list[dict[str, Any]] = []
    for each in [{}] if decided else switched[thinking]:
        if (merged := {**each, **variables}) not in sets:
            sets.append(merged)
    return sets


def find_form(template: ChatTemplate, variables: Sequence[Mapping[str, Any]]) -> Form:
    """How the template takes messages; the defaults of `Form` for calls, `inline` for reasoning, if it writes none."""
    arguments, beside_calls = _calls(template, variables)
    return Form(reasoning=_reasoning(template, variables), arguments=arguments, beside_calls=beside_calls)


def arguments_given_as(template: ChatTemplate, variables: Sequence[Mapping[str, Any]]) -> str:
    """The form of arguments that the template writes as JSON or in tags: `either`, `object`, `text`, `neither`."""
    good = [form for form in ("object", "text") if any(_writes_call(template, variables, form, c) for c in _BESIDE)]
    return "either" if len(good) == 2 else good[0] if good else "neither"


_BESIDE: Mapping[str, str | None] = {"empty": "", "null": None}


def _reasoning(template: ChatTemplate, variables: Sequence[Mapping[str, Any]]) -> str:
    for field in REASONING_FIELDS:
        message = {"role": "assistant", "content": _ANSWER, field: _THOUGHT}
        if any(_THOUGHT in text for text in _texts(template, variables, message)):
            return field
    return INLINE


def _calls(template: ChatTemplate, variables: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    for form, beside in product(("object", "text"), _BESIDE):
        if _writes_call(template, variables, form, beside):
            return form, beside
    return "object", "empty"


def _writes_call(template: ChatTemplate, variables: Sequence[Mapping[str, Any]], form: str, beside: str) -> bool:
    """Whether the template writes the arguments of a call, as JSON or in tags, not as Python or JSON in JSON."""
    arguments = {"place": _WORD} if form == "object" else f'{{"place": "{_WORD}"}}'
    call = {"id": "call00001", "type": "function", "function": {"name": "find_place", "arguments": arguments}}
    message = {"role": "assistant", "content": _BESIDE[beside], "tool_calls": [call]}
    return any(
        _WORD in text and "{'place'" not in text and '\\"place' not in text
        for text in _texts(template, variables, message)
    )


def _texts(template: ChatTemplate, variables: Sequence[Mapping[str, Any]], message: Mapping[str, Any]) -> list[str]:
    texts = []
    for values in variables:
        try:
            texts.append(template.render([_USER, message], tools=[TOOL], **values))
        except ChatTemplateError:
            continue
    return texts
