"""What a template does that changes prompts, found by rendering.

In: a model. Out: `Hazards`: the date in the prompt, a default system text, a double BOS, `{% generation %}`.
"""

from dataclasses import dataclass
from datetime import datetime

from spanloom.families.models.model import Model
from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError

DEFAULT_SYSTEM_CHARACTERS = 60
"""If there is no system message, more characters before the user's text are a default system text."""

_QUESTION = "Quo vadis?"


@dataclass(frozen=True, kw_only=True)
class Hazards:
    """`date`: the prompt changes with the date. `default_system`: its text; None without one or if rendering fails."""

    date: bool
    default_system: str | None
    double_bos: bool
    generation_tags: bool


def find_hazards(model: Model) -> Hazards:
    """The hazards, found by rendering one question of a user."""
    template = model.template
    text = _text(template)
    before = text[: text.index(_QUESTION)] if text and _QUESTION in text else ""
    return Hazards(
        date=model.asks_for_date and text != _text(_at(template, datetime(2031, 12, 30))),
        default_system=before if len(before) > DEFAULT_SYSTEM_CHARACTERS else None,
        double_bos=bool(text) and _bos_twice(model, text or ""),
        generation_tags=template.marks_generation,
    )


def _at(template: ChatTemplate, now: datetime) -> ChatTemplate:
    return ChatTemplate(template.text, special_tokens=template.special_tokens, now=now)


def _text(template: ChatTemplate) -> str | None:
    try:
        return template.render([{"role": "user", "content": _QUESTION}], add_generation_prompt=True)
    except ChatTemplateError:
        return None


def _bos_twice(model: Model, text: str) -> bool:
    """Whether the tokenizer repeats the first token of the text when it adds its special tokens."""
    plain, added = (model.tokenizer.encode([text], special=special)[0].ids for special in (False, True))
    return bool(len(added) > len(plain) > 0 and added[0] == added[1] == plain[0])
