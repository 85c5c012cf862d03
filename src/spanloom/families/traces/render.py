"""A trace as text: prompt and response, and both in Gemma's chat template.

In: prompt, step texts, answer. Out: the whole text, or its head or response alone. The head is never trained.

    <start_of_turn>user\nP<end_of_turn>\n<start_of_turn>model\n     head
    Reasoning:\n1. first step\n2. second step\nAnswer: A             response
    <end_of_turn>

Steps are numbered from 1 in their order. Content is rendered unchanged; `escaped` breaks its control strings first.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from spanloom.families.traces.trace import Payload

INSTRUCTION = "\n\nPlease show your reasoning steps."
USER_HEAD = "<start_of_turn>user\n"
SEAM = "<end_of_turn>\n<start_of_turn>model\n"
TURN_END = "<end_of_turn>"
REASONING = "Reasoning:\n"
ANSWER = "Answer: "
TURN_MARKS = ("<start_of_turn>", "<end_of_turn>")
CONTROL_STRINGS = (*TURN_MARKS, "<bos>", "<eos>", "<pad>", "<unk>")
TEMPLATE_CONTROLS = 4
"""The number of control strings that the template itself adds to a text."""

ControlTokens = Literal["verbatim", "reject", "escape"]
"""How control strings in content are handled: copied, refused, or broken by U+200B after their first character."""

_CONTROL = re.compile("|".join(map(re.escape, CONTROL_STRINGS)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceTexts:
    """The texts of a trace, steps in the order of their numbers."""

    prompt: str
    steps: Sequence[str]
    final_answer: str


def texts_of(payload: Payload, *, sort_steps: bool = False) -> TraceTexts:
    """The texts of a stored trace. `sort_steps`: order by index instead of list order."""
    steps = payload["steps"]
    if sort_steps:
        steps = sorted(steps, key=lambda step: int(step["i"]))
    return TraceTexts(
        prompt=payload["prompt"], steps=[step["content"] for step in steps], final_answer=payload["final_answer"]
    )


def control_strings(texts: TraceTexts) -> int:
    """The number of control strings in the content."""
    return sum(count_controls(text) for text in (texts.prompt, *texts.steps, texts.final_answer))


def holds(texts: TraceTexts, strings: Collection[str]) -> bool:
    """Whether the content contains one of the strings."""
    return any(string in text for text in (texts.prompt, *texts.steps, texts.final_answer) for string in strings)


def count_controls(text: str) -> int:
    """The number of control strings in a text."""
    return len(_CONTROL.findall(text)) if "<" in text else 0


def escaped(texts: TraceTexts) -> TraceTexts:
    """The texts with U+200B after the first character of each control string, which makes it ordinary text."""
    return TraceTexts(
        prompt=_broken(texts.prompt),
        steps=[_broken(step) for step in texts.steps],
        final_answer=_broken(texts.final_answer),
    )


def _broken(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0][0] + "\u200b" + match[0][1:], text)


def reasoning(texts: TraceTexts) -> str:
    """The response up to `Answer: `: empty without steps, otherwise ending in a line break."""
    if not texts.steps:
        return ""
    return REASONING + "".join([f"{number}. {step}\n" for number, step in enumerate(texts.steps, start=1)])


def response(texts: TraceTexts) -> str:
    """Reasoning and answer."""
    return f"{reasoning(texts)}{ANSWER}{texts.final_answer}"


def head(texts: TraceTexts, system: str | None = None) -> str:
    """The template up to the response. `system`: a text before the prompt."""
    return f"{USER_HEAD}{with_system(texts, system).prompt}{SEAM}"


def with_system(texts: TraceTexts, system: str | None) -> TraceTexts:
    """The texts with `system` and two line breaks before the prompt; unchanged if `system` is empty or None."""
    return replace(texts, prompt=f"{system}\n\n{texts.prompt}") if system else texts


def chat_text(texts: TraceTexts, system: str | None = None) -> str:
    """The trace in Gemma's template."""
    return f"{head(texts, system)}{response(texts)}{TURN_END}"


def messages(texts: TraceTexts, system: str) -> list[dict[str, str]]:
    """The trace as a conversation. `system`: the text of the system message, which is omitted if empty."""
    return [
        *([{"role": "system", "content": system}] if system else []),
        {"role": "user", "content": texts.prompt},
        {"role": "assistant", "reasoning_content": "\n\n".join(texts.steps), "content": texts.final_answer},
    ]


def instructed(texts: TraceTexts, system: str | None = None) -> str:
    """The prompt of a prompt-response pair, followed by the instruction to show the steps."""
    return with_system(texts, system).prompt + INSTRUCTION
