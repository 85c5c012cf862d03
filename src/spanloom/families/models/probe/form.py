"""The form in which a template takes messages, found by rendering small conversations.

In: a template. Out: a `Form`; the sets of template variables to try.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from spanloom.families.models.defaults import REFUSE_BESIDE, SPLIT
from spanloom.families.models.errors import ModelError
from spanloom.families.models.form import (
    FUNCTIONS,
    GIVEN,
    INLINE,
    NINE,
    PARTS,
    REASONING_FIELDS,
    TEXT,
    THINKING_VARIABLES,
    Form,
)
from spanloom.families.models.workarounds.adapted import Adapting
from spanloom.tokenizers.chat_template import RESERVED, ChatTemplate, ChatTemplateError

_USER = {"role": "user", "content": "Where is Ouagadougou?"}
_NAME, _WORD, _THOUGHT, _ANSWER = "find_place", "Zanzibar", "Let me consider maps.", "In Burkina Faso."
TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
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
    tried = _Tried(template, variables)
    arguments, beside_calls = _calls(tried)
    return Form(
        reasoning=_reasoning(tried),
        arguments=arguments,
        beside_calls=beside_calls,
        call_ids=_call_ids(tried, arguments, beside_calls),
        content=tried.content,
    )


def form_of(template: ChatTemplate, variables: Sequence[Mapping[str, Any]], *, rewrite: bool) -> Form:
    """`find_form`; unless ids of calls are rewritten, they are as given."""
    form = find_form(template, variables)
    return form if rewrite else replace(form, call_ids=GIVEN)


def adapting_for(
    template: ChatTemplate,
    variables: Sequence[Mapping[str, Any]],
    form: Form,
    *,
    inline_calls: str | None = None,
    beside: str = REFUSE_BESIDE,
) -> Adapting:
    """What is adapted for a template. `inline_calls`: a format, or None; `beside`: of `TEXT_BESIDE_CALLS`."""
    system = {"role": "system", "content": _WORD}
    return Adapting(
        call_ids=form.call_ids,
        inline_calls=inline_calls,
        system=inline_calls is None or any(_WORD in text for text in _Tried(template, variables).texts(before=system)),
        split=beside == SPLIT,
    )


def arguments_given_as(template: ChatTemplate, variables: Sequence[Mapping[str, Any]]) -> str:
    """The form of arguments that the template writes as JSON or in tags: `either`, `object`, `text`, `neither`."""
    tried = _Tried(template, variables)
    good = [form for form in ("object", "text") if any(_writes_call(tried, form, c) for c in _BESIDE)]
    return "either" if len(good) == 2 else good[0] if good else "neither"


_BESIDE: Mapping[str, str | None] = {"empty": "", "null": None}


class _Tried:
    """Small conversations, rendered with all sets of variables. `content`: how the template takes it."""

    def __init__(self, template: ChatTemplate, variables: Sequence[Mapping[str, Any]]) -> None:
        self._template, self._variables, self.content = template, variables, TEXT
        if not self._asks():
            self.content = PARTS
            self.content = PARTS if self._asks() else TEXT

    def _asks(self) -> bool:
        """Whether the template writes the question, and not the list that it is in."""
        question = str(_USER["content"])
        return any(question in text and "{'type'" not in text and '{"type"' not in text for text in self.texts())

    def texts(self, *messages: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[str]:
        """The texts of a question between other messages, with a tool; of a set that is refused there is none."""
        whole = [*([] if before is None else [before]), _USER, *messages]
        shaped = [{**message, "content": self._shaped(message["content"])} for message in whole]
        texts = []
        for values in self._variables:
            for tools in ([TOOL], None) if not messages else ([TOOL],):
                try:
                    texts.append(self._template.render(shaped, tools=tools, **values))
                except ChatTemplateError:
                    continue
        return texts

    def _shaped(self, content: str | None) -> Any:
        return [{"type": "text", "text": content}] if self.content == PARTS and content is not None else content


def _reasoning(tried: _Tried) -> str:
    for field in REASONING_FIELDS:
        message = {"role": "assistant", "content": _ANSWER, field: _THOUGHT}
        if any(_THOUGHT in text for text in tried.texts(message)):
            return field
    return INLINE


def _calls(tried: _Tried) -> tuple[str, str]:
    for form, beside in product(("object", "text"), _BESIDE):
        if _writes_call(tried, form, beside):
            return form, beside
    return "object", "empty"


def _writes_call(tried: _Tried, form: str, beside: str) -> bool:
    """Whether the template writes the arguments of a call, as JSON or in tags, not as Python or JSON in JSON."""
    return any(
        _WORD in text and "{'place'" not in text and '\\"place' not in text
        for text in tried.texts(_message_with_call("call00001", form, beside))
    )


def _message_with_call(number: str, form: str, beside: str) -> dict[str, Any]:
    arguments = {"place": _WORD} if form == "object" else f'{{"place": "{_WORD}"}}'
    call = {"id": number, "type": "function", "function": {"name": _NAME, "arguments": arguments}}
    return {"role": "assistant", "content": _BESIDE[beside], "tool_calls": [call]}


_IDS = {GIVEN: "toolu_01B-x7", NINE: "a1b2c3d4e", FUNCTIONS: f"functions.{_NAME}:0"}


def _call_ids(tried: _Tried, form: str, beside: str) -> str:
    """The first form of ids with which the template writes a call and its result; `given` if there is none."""
    before = max((text.count(_NAME) for text in tried.texts()), default=0)
    for style, number in _IDS.items():
        result = {"role": "tool", "content": _ANSWER, "tool_call_id": number, "name": "result"}
        texts = tried.texts(_message_with_call(number, form, beside), result)
        if any(text.count(_NAME) > before and _WORD in text and _ANSWER in text for text in texts):
            return style
    return GIVEN
