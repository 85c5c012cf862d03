"""A run that is not proven: the user declares what the model writes after the prompt.

In: a conversation in the form of a template, the place of an assistant's message, the declared text. Out: a `ProvenRun`
whose boundary is `declared`. This is only for templates that do not continue their own prompt (`prompt_not_prefix`).
The template writes the prompt; the user declares the completion.

    emission  {reasoning}\\n</think>\\n\\n{content}{eos}
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from spanloom.families.models.conversation import Message
from spanloom.families.models.errors import ModelError, RefusedError
from spanloom.families.models.form import CONTENT, REASONING
from spanloom.families.models.model import Model
from spanloom.families.models.prove.context import check_tools, dropped_names, forgotten_texts
from spanloom.families.models.prove.conversation import Declare, Proving
from spanloom.families.models.prove.fields import Field
from spanloom.families.models.prove.prefixes import encoded
from spanloom.families.models.prove.refusals import PROMPT_NOT_PREFIX, REMEDIES, SPECIAL_IN_TEXT, TEXT_DROPPED, Refusal
from spanloom.families.models.prove.run import ProvenRun, Rendered, offsets_of_completion, trained_end
from spanloom.families.models.prove.spans import spans_of_tokens
from spanloom.families.models.prove.traced import Placed
from spanloom.tokenizers.traced_text import marks_of, plain_text

DECLARED = "declared"
_PLACE = re.compile(r"\{(\w+)\}")
_PLACES = (REASONING, CONTENT, "eos")


def check_emission(emission: str, model: Model) -> None:
    """Checks the fields of `emission`: one `{content}`, at most one `{reasoning}`, final `{eos}`. Raises ModelError."""
    places = _PLACE.findall(emission)
    unknown = [place for place in places if place not in _PLACES]
    if unknown or places.count(CONTENT) != 1 or places.count(REASONING) > 1 or not emission.endswith("{eos}"):
        raise ModelError(
            f"--emission {emission!r} is not understood",
            remedy=r"give what the model writes, such as '{reasoning}\n</think>\n\n{content}{eos}'",
        )
    _eos(model)


def declared_run(rendered: Rendered, run: int, variables: Mapping[str, Any], emission: str) -> ProvenRun:
    """The run in place of the message `run`, as the user declares it. Raises RefusedError."""
    model, message = rendered.model, rendered.conversation.messages[run]
    variables = {**variables, **rendered.conversation.variables}
    if message.get("tool_calls"):
        raise RefusedError(
            PROMPT_NOT_PREFIX, "the message makes calls, which --emission does not declare", REMEDIES[PROMPT_NOT_PREFIX]
        )
    for kind in (REASONING, CONTENT):
        held = model.special.search(message.get(kind) or "")
        if held:
            raise RefusedError(
                SPECIAL_IN_TEXT, f"{kind} holds the control token {held[0]!r}", REMEDIES[SPECIAL_IN_TEXT]
            )
    controls = rendered.check_context(run)
    prompt = rendered.text(rendered.plain[:run], variables, prompt=True)
    whole = rendered.traced_text(rendered.traced[: run + 1], variables)
    encoder = rendered.encoder(run, variables, plain_text(whole))
    marks = marks_of(whole)
    forgotten = forgotten_texts(marks, rendered.fields, rendered.conversation, run)
    check_tools(marks, whole, len(whole), rendered.tool_texts)
    completion, texts = _written(emission, message, model, run, len(prompt))
    whole = prompt + completion
    ids = encoded(prompt, whole, encoder, served=True)
    offsets = offsets_of_completion(model, prompt, whole, ids)
    truncated = bool(message.get("truncated"))
    last = texts[-1].end if texts else len(prompt)
    trained = trained_end(offsets, last, calls=False) if truncated else len(offsets)
    return ProvenRun(
        run=run,
        text=whole,
        prompt=len(prompt),
        tokens=np.concatenate([ids.prompt, ids.completion]),
        first=len(ids.prompt),
        end=len(ids.prompt) + trained,
        spans=spans_of_tokens(whole, texts, offsets, calls=False, added=model.added)[:trained],
        tail="",
        tail_tokens=ids.completion[:0],
        variables=variables,
        boundary=DECLARED,
        turn_end=_eos(model),
        trimmed=False,
        forgotten=forgotten,
        unnamed=dropped_names(marks, rendered.fields, run),
        truncated=truncated,
        controls=controls,
    )


def declaring(proving: Proving, emission: str) -> Declare:
    """Returns a `Declare` that declares each refused run whose prompt the template does not continue.

    Such a template often drops the reasoning too; the first refusal is then `text_dropped`.
    """

    def declare(rendered: Rendered, refusal: Refusal) -> ProvenRun | Refusal:
        run, variables = refusal.run, proving.variables[0]
        if refusal.kind not in (PROMPT_NOT_PREFIX, TEXT_DROPPED):
            return refusal
        try:
            if refusal.kind == TEXT_DROPPED and _continues(rendered, run, variables):
                return refusal
            return declared_run(rendered, run, variables, emission)
        except RefusedError as fault:
            return Refusal(kind=fault.kind, message=fault.message, run=run, remedy=fault.remedy)

    return declare


def _continues(rendered: Rendered, run: int, variables: Mapping[str, Any]) -> bool:
    """Whether F (the text through the run) begins with P (the prompt)."""
    values = {**variables, **rendered.conversation.variables}
    prompt = rendered.text(rendered.plain[:run], values, prompt=True)
    return rendered.text(rendered.plain[: run + 1], values).startswith(prompt)


def _written(emission: str, message: Message, model: Model, run: int, begin: int) -> tuple[str, list[Placed]]:
    """The completion, and where the texts are in F. Raises RefusedError for reasoning without `{reasoning}`."""
    if message.get("reasoning") and f"{{{REASONING}}}" not in emission:
        raise RefusedError(TEXT_DROPPED, "the emission has no place for reasoning", "add {reasoning} to --emission")
    pieces: list[str] = []
    placed: list[Placed] = []
    at, end = begin, 0
    for match in _PLACE.finditer(emission):
        literal = emission[end : match.start()]
        kind = match[1]
        text = _eos(model) if kind == "eos" else message.get(kind) or ""
        pieces += [literal, text]
        at += len(literal)
        if kind != "eos" and text:
            field = Field(run, kind, text)
            placed.append(Placed(at, at + len(text), len(placed), field))
        at += len(text)
        end = match.end()
    return "".join(pieces), placed


def _eos(model: Model) -> str:
    """The token for `{eos}`: `eos_token` if it is a stop token, otherwise the stop token with the smallest id."""
    eos = model.template.special_tokens.get("eos_token")
    return eos if eos is not None and eos in model.stops.values() else model.stops[min(model.stops)]
