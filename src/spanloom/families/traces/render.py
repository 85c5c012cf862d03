"""A trace as text: prompt and response, and both in Gemma's chat template.

In: prompt, step texts, answer. Out: the text, and how many of its code points are the head, which is never learned.

    <start_of_turn>user\nP<end_of_turn>\n<start_of_turn>model\n     head
    Reasoning:\n1. first step\n2. second step\nAnswer: A             response
    <end_of_turn>

Steps are numbered from 1 in their order. Content is not escaped here: `guarded` says what is done with control strings.
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
"""Control strings of a text in the template whose content has none."""

ControlTokens = Literal["verbatim", "reject", "escape"]
"""What is done with control strings in content: copied, refused, or broken by U+200B after their first character."""

_CONTROL = re.compile("|".join(map(re.escape, CONTROL_STRINGS)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceTexts:
    """The texts of a trace, steps in the order in which they are numbered."""

    prompt: str
    steps: Sequence[str]
    final_answer: str


def texts_of(payload: Payload, *, sort_steps: bool = False) -> TraceTexts:
    """The texts of a stored trace. `sort_steps`: by the index, in place of the list's order."""
    steps = payload["steps"]
    if sort_steps:
        steps = sorted(steps, key=lambda step: int(step["i"]))
    return TraceTexts(
        prompt=payload["prompt"], steps=[step["content"] for step in steps], final_answer=payload["final_answer"]
    )


def control_strings(texts: TraceTexts) -> int:
    """How many control strings the content holds."""
    return sum(count_controls(text) for text in (texts.prompt, *texts.steps, texts.final_answer))


def holds(texts: TraceTexts, strings: Collection[str]) -> bool:
    """Whether the content holds one of the strings."""
    return any(string in text for text in (texts.prompt, *texts.steps, texts.final_answer) for string in strings)


def count_controls(text: str) -> int:
    """How many control strings a text holds."""
    return len(_CONTROL.findall(text)) if "<" in text else 0


def escaped(texts: TraceTexts) -> TraceTexts:
    """The same with U+200B after the first character of each control string, which is none then."""
    return TraceTexts(
        prompt=_broken(texts.prompt),
        steps=[_broken(step) for step in texts.steps],
        final_answer=_broken(texts.final_answer),
    )


def _broken(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0][0] + "\u200b" + match[0][1:], text)


def reasoning(texts: TraceTexts) -> str:
    """The response up to `Answer: `: empty without steps, else it ends in a line break."""
    if not texts.steps:
        return ""
    return REASONING + "".join([f"{number}. {step}\n" for number, step in enumerate(texts.steps, start=1)])


def response(texts: TraceTexts) -> str:
    """Reasoning and answer."""
    return f"{reasoning(texts)}{ANSWER}{texts.final_answer}"


def head(texts: TraceTexts, system: str | None = None) -> str:
    """What comes before the response in the template. `system`: a text put before the prompt."""
    return f"{USER_HEAD}{with_system(texts, system).prompt}{SEAM}"


def with_system(texts: TraceTexts, system: str | None) -> TraceTexts:
    """The same with a text put before the prompt, two line breaks between; an empty one is none."""
    return replace(texts, prompt=f"{system}\n\n{texts.prompt}") if system else texts


def chat_text(texts: TraceTexts, system: str | None = None) -> str:
    """The trace in Gemma's template."""
    return f"{head(texts, system)}{response(texts)}{TURN_END}"


def messages(texts: TraceTexts, system: str) -> list[dict[str, str]]:
    """The trace as a conversation. `system`: the text of a system message, none where it is empty."""
    return [
        *([{"role": "system", "content": system}] if system else []),
        {"role": "user", "content": texts.prompt},
        {"role": "assistant", "reasoning_content": "\n\n".join(texts.steps), "content": texts.final_answer},
    ]


def instructed(texts: TraceTexts, system: str | None = None) -> str:
    """The prompt that asks for steps, of a pair of prompt and response."""
    return with_system(texts, system).prompt + INSTRUCTION
