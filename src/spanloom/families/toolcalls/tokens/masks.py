"""The loss mask of a sample: exactly the tokens of its answer.

In: a sample, a render function and a tokenizer. Out: its tokens, and the range [start, end) of the trained ones. A
sample whose answer cannot be located has no mask: it is counted and left out.

    text    …assistant⏎⏎<|python_tag|>{"name": "f"}<|eom_id|><|eot_id|>     the template doubled the end token
    mask    0000000000001 1111111111111111111111111110
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spanloom.families.toolcalls.audit import is_renderable
from spanloom.families.toolcalls.format.rendering import Render, Span, answer_span, render_sample
from spanloom.families.toolcalls.format.tables import mapping
from spanloom.families.toolcalls.format.tools import Registries
from spanloom.supervision import Tokens
from spanloom.tokenizers.character_spans import Offsets, tokens_of_span
from spanloom.tokenizers.chat_template import ChatTemplateError
from spanloom.tokenizers.encoding import JsonTokenizer

_BATCH = 64

NOT_RENDERED = "the template raises"
NO_SAMPLE = "no messages or assistant_raw"
NO_SPAN = "no span that can be proven"
NO_TOKENS = "no token begins in the span"
CUT = "cut inside of the span"


@dataclass(frozen=True, kw_only=True)
class Masked:
    """A sample with its mask.

    text        the rendered text
    span        the answer, in characters of `text`
    ids         int32 [T]  token ids
    offsets     int [T, 2]  the characters of each token, in code points of `text`
    start, end  the tokens [start, end) are trained
    straddling  whether a token begins in the prompt and ends in the answer; it is not trained
    """

    sample: dict[str, Any]
    text: str
    span: Span
    ids: Tokens
    offsets: Offsets
    start: int
    end: int
    straddling: bool


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
) -> Iterator[Masked | Left]:
    """Yields each sample, in order, with its mask or with the reason that it has none.

    `max_length`: longer samples are truncated to this many tokens, or left out if that would cut the answer.
    """
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
            covered = tokens_of_span(tokens.offsets, span.start, span.end)
            if not covered:
                yield Left(sample=sample, reason=NO_TOKENS)
            elif max_length is not None and covered.end > max_length:
                yield Left(sample=sample, reason=CUT)
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
                )


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
