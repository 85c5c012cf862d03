"""The loss mask of a sample: exactly the tokens of its answer.

In: a sample, a render function and a tokenizer. Out: its tokens, and the range [start, end) of the trained ones. A
sample whose answer cannot be located has no mask: it is counted and left out.

    text    …assistant⏎⏎<|python_tag|>{"name": "f"}<|eom_id|><|eot_id|>     the template doubled the end token
    mask    0000000000001 1111111111111111111111111110
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spanloom.families.toolcalls.audit import is_renderable
from spanloom.families.toolcalls.format.control import END_TOKENS
from spanloom.families.toolcalls.format.rendering import Render, Span, answer_span, render_sample
from spanloom.families.toolcalls.format.tables import mapping
from spanloom.families.toolcalls.format.tools import Registries
from spanloom.supervision import Tokens
from spanloom.tokenizers.character_spans import Offsets, tokens_of_span
from spanloom.tokenizers.chat_template import ChatTemplateError
from spanloom.tokenizers.control_texts import (
    ControlTextError,
    control_pattern,
    controls_in,
    encoded_as_text,
    without_controls,
)
from spanloom.tokenizers.encoding import JsonTokenizer

_BATCH = 64

NOT_RENDERED = "the template raises"
NO_SAMPLE = "no messages or assistant_raw"
NO_SPAN = "no span that can be proven"
NO_TOKENS = "no token begins in the span"
CUT = "cut inside of the span"
NOT_AS_TEXT = "control tokens that cannot be encoded as text"
CONTROL = "control token in a text: "
"""The beginning of a reason: the token and where it is follow."""

ASSISTANT = "assistant"


@dataclass(frozen=True, kw_only=True)
class Masked:
    """A sample with its mask.

    text        the rendered text
    span        the answer, in characters of `text`
    ids         int32 [T]  token ids
    offsets     int [T, 2]  the characters of each token, in code points of `text`
    start, end  the tokens [start, end) are trained
    straddling  whether a token begins in the prompt and ends in the answer; it is not trained
    controls    control tokens in texts that are not the assistant's
    """

    sample: dict[str, Any]
    text: str
    span: Span
    ids: Tokens
    offsets: Offsets
    start: int
    end: int
    straddling: bool
    controls: int = 0


@dataclass(frozen=True, kw_only=True)
class ControlTexts:
    """What becomes of control tokens in texts that are not the assistant's.

    how      `refuse`, `as-served` or `text`
    eod      the EOD of a dataset, which no text may hold unless it is encoded as text; None: there is no EOD
    special  the tokenizer's control tokens
    """

    how: str
    eod: str | None
    special: frozenset[str]

    @property
    def pattern(self) -> re.Pattern[str]:
        return control_pattern({*self.special, *([] if self.eod is None else [self.eod])})


@dataclass(frozen=True, kw_only=True)
class Left:
    """A sample without a mask, and the reason."""

    sample: dict[str, Any]
    reason: str


def masked_samples(
    samples: Iterable[dict[str, Any]],
    render: Render,
    tokenizer: JsonTokenizer,
    registries: Registries,
    *,
    max_length: int | None = None,
    control_texts: str = "as-served",
    eod: str | None = None,
) -> Iterator[Masked | Left]:
    """Yields each sample, in order, with its mask or with the reason that it has none.

    `max_length`: longer samples are truncated to this many tokens, or left out if that would cut the answer.
    `control_texts`, `eod`: see `ControlTexts`.
    """
    controls = ControlTexts(how=control_texts, eod=eod, special=frozenset(tokenizer.special_texts()))
    pattern = controls.pattern
    waiting = iter(samples)
    while batch := list(islice(waiting, _BATCH)):
        located = [_located(sample, render, registries) for sample in batch]
        texts = [place[0] for place in located if not isinstance(place, Left)]
        encoded = iter(tokenizer.encode(texts, special=False))
        for sample, place in zip(batch, located, strict=True):
            if isinstance(place, Left):
                yield place
                continue
            text, span = place
            tokens = next(encoded)
            held = _controls(sample, registries, pattern)
            if held and control_texts == "text":
                try:
                    plain = render_sample(_without_controls(sample, registries, pattern), render, registries).full
                    tokens = encoded_as_text(tokenizer, text, plain, pattern)
                except (ControlTextError, ChatTemplateError):
                    yield Left(sample=sample, reason=NOT_AS_TEXT)
                    continue
            covered = tokens_of_span(tokens.offsets, span.start, span.end)
            if not covered:
                yield Left(sample=sample, reason=NO_TOKENS)
            elif max_length is not None and covered.end > max_length:
                yield Left(sample=sample, reason=CUT)
            elif (reason := _refused(sample, held, controls)) is not None:
                yield Left(sample=sample, reason=reason)
            else:
                yield Masked(
                    sample=sample,
                    text=text,
                    span=span,
                    ids=tokens.ids[:max_length],
                    offsets=tokens.offsets[:max_length],
                    start=covered.first,
                    end=covered.end,
                    straddling=covered.straddling > 0,
                    controls=len(held),
                )


def _controls(sample: dict[str, Any], registries: Registries, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Each control token in texts of a sample that are not the assistant's, and where it is."""
    held = [
        (token, f"a message of {message.get('role')}")
        for message in sample["messages"]
        if message.get("role") != ASSISTANT
        for token in controls_in(message, pattern)
    ]
    tools = registries.for_template(sample.get("tools"))
    return [*held, *((token, "the tools") for token in controls_in(tools, pattern))]


def _refused(sample: dict[str, Any], held: list[tuple[str, str]], controls: ControlTexts) -> str | None:
    """Why a sample has no document because of its control tokens; None if it has one."""
    for token, where in held:
        if controls.how == "refuse":
            return f"{CONTROL}{token} in {where}"
        if controls.how == "as-served" and token == controls.eod:
            return f"{CONTROL}{token} in {where}"
    # The answers' own end tokens may be the EOD.
    if controls.eod is not None and controls.eod not in END_TOKENS:
        own = [message for message in sample["messages"] if message.get("role") == ASSISTANT]
        if controls.eod in sample["assistant_raw"] or any(controls_in(own, re.compile(re.escape(controls.eod)))):
            return f"{CONTROL}{controls.eod} in a message of {ASSISTANT}"
    return None


def _without_controls(sample: dict[str, Any], registries: Registries, pattern: re.Pattern[str]) -> dict[str, Any]:
    messages = [
        message if message.get("role") == ASSISTANT else without_controls(message, pattern)
        for message in sample["messages"]
    ]
    tools = registries.for_template(sample.get("tools"))
    return {**sample, "messages": messages, "tools": without_controls(tools, pattern)}


def _located(sample: dict[str, Any], render: Render, registries: Registries) -> tuple[str, Span] | Left:
    if not is_renderable(sample):
        return Left(sample=sample, reason=NO_SAMPLE)
    try:
        rendered = render_sample(sample, render, registries)
    except ChatTemplateError:
        return Left(sample=sample, reason=NOT_RENDERED)
    span = answer_span(rendered, sample["assistant_raw"])
    return Left(sample=sample, reason=NO_SPAN) if span is None else (rendered.full, span)


def with_mask(sample: Mapping[str, Any], start: int | None, end: int | None) -> tuple[dict[str, Any], bool]:
    """Returns the sample with the mask's range in `training` (null without a mask), and whether it replaced another."""
    training = mapping(sample, "training")
    pair = {"loss_mask_start": start, "loss_mask_end": end}
    had = {name: training.get(name) for name in pair}
    replaced = had != pair and any(value is not None for value in had.values())
    return {**sample, "training": {**training, **pair}}, replaced
