"""A rendered trace → tokens with loss mask and span.

In: texts of traces, a tokenizer. Out: `TokenizedTrace`, token-aligned. The mask follows the positions of rendering,
never a search for markers: content may contain them.

    text     <start_of_turn>user\n … <start_of_turn>model\n   Reasoning:\n1. …\n   Answer: 42<end_of_turn>
    mask     0                                                1                  1
    span     0                                                1 reasoning        2 answer

A token that begins in the head is not trained; a token that begins in the reasoning belongs to it. Tokens without
characters, which the tokenizer adds, are not trained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal

import numpy as np

from spanloom.families.traces import render
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.render import TraceTexts
from spanloom.supervision import Flags, Tokens
from spanloom.tokenizers.character_spans import tokens_of_span
from spanloom.tokenizers.control_texts import ControlTextError, control_pattern, encoded_as_text, without_controls
from spanloom.tokenizers.encoding import Encoded, JsonTokenizer

TokenFormat = Literal["tunix_sft", "training_example"]
"""The export formats that have a loss mask."""

INPUT_SCHEMA = "spanloom_traces_export_v1"
ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8", "span": "uint8"}
"""The input schema and the arrays of a token dataset, as named in its manifest."""
SPAN_NAMES = ("context", "reasoning", "answer")
BATCH = 256
"""Texts that are encoded together."""


@dataclass(frozen=True, kw_only=True)
class TokenizedTrace:
    """One trace.

    ids              int32 [T]
    loss_mask        uint8 [T]  1 = trained
    span_id          uint8 [T]  0 context, 1 reasoning, 2 answer
    offsets          [T][2]     in code points; in a training example the offsets of the response start again at 0
    response_start   the first trained code point of the text, or of prompt and response together
    boundary_tokens  tokens that begin in the head and end in the response
    control_strings  control strings in the content
    """

    ids: Tokens
    loss_mask: Flags
    span_id: Flags
    offsets: Sequence[tuple[int, int]]
    response_start: int
    boundary_tokens: int
    control_strings: int

    def cut(self, length: int) -> "TokenizedTrace":
        """The first `length` tokens."""
        return replace(
            self,
            ids=self.ids[:length],
            loss_mask=self.loss_mask[:length],
            span_id=self.span_id[:length],
            offsets=self.offsets[:length],
        )

    def columns(self, *, offsets: bool = False) -> dict[str, Any]:
        """The token columns of an export, as JSON values."""
        values: dict[str, Any] = {"input_ids": self.ids.tolist(), "loss_mask": self.loss_mask.tolist()}
        if offsets:
            values["offsets"] = [list(pair) for pair in self.offsets]
        return values


def tokenized(
    traces: Sequence[TraceTexts],
    form: TokenFormat,
    tokenizer: JsonTokenizer,
    system: str | None = None,
    *,
    as_text: bool = False,
) -> Iterator[TokenizedTrace]:
    """Encodes each trace, in order. `as_text`: control tokens of the tokenizer in the content are ordinary text.

    Raises TraceError if the tokenizer cannot encode them so.
    """
    if as_text:
        yield from (_as_text(texts, form, tokenizer, system) for texts in traces)
        return
    for first in range(0, len(traces), BATCH):
        batch = traces[first : first + BATCH]
        if form == "tunix_sft":
            yield from map(
                _chat,
                batch,
                tokenizer.encode([render.chat_text(texts, system) for texts in batch], special=True),
                repeat(system),
            )
            continue
        prompts = tokenizer.encode([render.instructed(texts, system) for texts in batch], special=True)
        # Special tokens such as BOS are added only once: the response continues the prompt.
        responses = tokenizer.encode([render.response(texts) for texts in batch], special=False)
        yield from map(_pair, batch, prompts, responses, repeat(system))


def _as_text(texts: TraceTexts, form: TokenFormat, tokenizer: JsonTokenizer, system: str | None) -> TokenizedTrace:
    pattern = control_pattern({*tokenizer.special_texts(), *render.CONTROL_STRINGS} & tokenizer.added_texts().keys())
    plain = replace(
        texts,
        prompt=without_controls(texts.prompt, pattern),
        steps=without_controls(list(texts.steps), pattern),
        final_answer=without_controls(texts.final_answer, pattern),
    )
    of_system = without_controls(system, pattern)
    try:
        if form == "tunix_sft":
            whole, like = render.chat_text(texts, system), render.chat_text(plain, of_system)
            return _chat(texts, encoded_as_text(tokenizer, whole, like, pattern, special=True), system)
        prompt, like = render.instructed(texts, system), render.instructed(plain, of_system)
        response, answer = render.response(texts), render.response(plain)
        return _pair(
            texts,
            encoded_as_text(tokenizer, prompt, like, pattern, special=True),
            encoded_as_text(tokenizer, response, answer, pattern),
            system,
        )
    except ControlTextError as fault:
        raise TraceError(str(fault), where=str(tokenizer.path), remedy="--control-tokens escape or reject") from None


def _chat(texts: TraceTexts, encoded: Encoded, system: str | None) -> TokenizedTrace:
    start = len(render.head(texts, system))
    response = tokens_of_span(encoded.offsets, start)
    answer = tokens_of_span(encoded.offsets, start + len(render.reasoning(texts)))
    return TokenizedTrace(
        ids=encoded.ids,
        loss_mask=response.mask,
        span_id=response.mask + answer.mask,
        offsets=list(encoded.offsets),
        response_start=start,
        boundary_tokens=response.straddling,
        control_strings=render.control_strings(texts),
    )


def _pair(texts: TraceTexts, prompt: Encoded, response: Encoded, system: str | None) -> TokenizedTrace:
    context = np.zeros(prompt.ids.size, dtype=np.uint8)
    learned = tokens_of_span(response.offsets, 0)
    answer = tokens_of_span(response.offsets, len(render.reasoning(texts)))
    return TokenizedTrace(
        ids=np.concatenate([prompt.ids, response.ids]),
        loss_mask=np.concatenate([context, learned.mask]),
        span_id=np.concatenate([context, learned.mask + answer.mask]),
        offsets=[*prompt.offsets, *response.offsets],
        response_start=len(render.instructed(texts, system)),
        boundary_tokens=0,
        control_strings=render.control_strings(texts),
    )
