"""Chat templates that take time or memory, or reach for what the sandbox forbids.

In: `tests/cases/templates/attacks.json`, and the folder that `SPANLOOM_ATTACKS` names. Out: their texts; how a
rendering of one ended.
"""

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError
from spanloom.tokenizers.rendering.process import TemplateLimitError, TemplateProcess
from support.cases import beside, cases_of

STOPPED, REFUSED, DONE = "stopped", "refused", "done"

MESSAGES = [{"role": "user", "content": "x" * 1000, "big": "y" * 1_000_000}]


@dataclass(frozen=True)
class Attack:
    """`ends`: STOPPED by a limit, REFUSED by the sandbox or by Python, or `ends`, either way or with a text."""

    template: str
    ends: str


@dataclass(frozen=True)
class Ended:
    """How a rendering ended, after how many seconds, and its text or message."""

    how: str
    seconds: float
    said: str


def own_attacks() -> dict[str, Attack]:
    """By name. A template is a text or a list of texts and [text, count]; `%d` in such a text is the number."""
    listed = json.loads((cases_of("templates") / "attacks.json").read_text("utf-8"))
    return {name: Attack(_text(each["template"]), each["ends"]) for name, each in listed.items()}


def attacks_beside() -> dict[str, str]:
    """Templates by name, empty where the folder is not there."""
    path = beside("SPANLOOM_ATTACKS", "attacks") / "templates.json"
    found: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def attempt(template: str, process: TemplateProcess, *, traced: bool = False) -> Ended:
    """Compiles and renders a template. `traced`: with the marks of texts."""
    began = time.monotonic()
    try:
        made = ChatTemplate(template, now=datetime(2025, 1, 1), where="mine.jinja", process=process)
        how, said = DONE, (made.render_traced if traced else made.render)(MESSAGES)
    except TemplateLimitError as error:
        how, said = STOPPED, str(error)
    except ChatTemplateError as error:
        how, said = REFUSED, str(error)
    return Ended(how, time.monotonic() - began, said)


def _text(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    pieces = [[part, 1] if isinstance(part, str) else part for part in parts]
    return "".join(
        "".join(text.replace("%d", str(number)) for number in range(count)) if "%d" in text else text * count
        for text, count in pieces
    )
