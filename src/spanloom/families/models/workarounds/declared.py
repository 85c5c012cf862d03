"""A run that is not proven: the user declares what the model writes after the prompt.

In: a conversation in the form of a template, the place of an assistant's message, the declared text. Out: a `ProvenRun`
whose boundary is `declared`. This is only for templates that do not continue their own prompt (`prompt_not_prefix`).
The template writes the prompt; the user declares the completion. `{calls}` is what the template writes behind the
content of the message if it has no reasoning, through the last call.

    emission  {reasoning}\\n</think>\\n\\n{content}{calls}{eos}
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from spanloom.families.models.conversation import Message
from spanloom.families.models.errors import ModelError, RefusedError
from spanloom.families.models.form import CONTENT, REASONING, shaped
from spanloom.families.models.model import Model
from spanloom.families.models.prove.context import check_tools, dropped_names, forgotten_texts
from spanloom.families.models.prove.conversation import Declare, Proving
from spanloom.families.models.prove.fields import Field, Tracer
from spanloom.families.models.prove.prefixes import encoded
from spanloom.families.models.prove.refusals import (
    NO_TURN_END,
    PROMPT_NOT_PREFIX,
    REMEDIES,
    SPECIAL_IN_TEXT,
    TEXT_DROPPED,
    Refusal,
)
from spanloom.families.models.prove.run import ProvenRun, Rendered, offsets_of_completion, trained_end
from spanloom.families.models.prove.spans import spans_of_tokens
from spanloom.families.models.prove.traced import Placed, texts_of_run
from spanloom.tokenizers.traced_text import marks_of, plain_text

DECLARED = "declared"
OPENED = re.compile(r"<([^<>/\s]*think[^<>/\s]*)>(\s*)$", re.IGNORECASE)
"""A thought that a prompt opens."""
_CLOSED = re.compile(r"</[^<>\s]*think[^<>\s]*>\s*$", re.IGNORECASE)
_PLACE = re.compile(r"\{(\w+)\}")
_CALLS, _EOS = "calls", "eos"
_PLACES = (REASONING, CONTENT, _CALLS, _EOS)
_STANDING = "0"
"""A content for a message that has none: what comes behind it are the calls."""


def parsed_emission(text: str | None) -> str | None:
    """An emission as a shell passes it on: a line feed is the two characters \\n there."""
    return None if text is None else text.replace("\\n", "\n")


def check_emission(emission: str, model: Model) -> None:
    """Checks the fields of `emission`: in this order at most one `{reasoning}`, one `{content}`, at most one `{calls}`,
    a final `{eos}`. Raises ModelError."""
    places = _PLACE.findall(emission)
    ordered = [place for place in _PLACES if place in places]
    if places != ordered or CONTENT not in places or not emission.endswith("{eos}"):
        raise ModelError(
            f"--emission {emission!r} is not understood",
            remedy=r"give what the model writes, such as '{reasoning}\n</think>\n\n{content}{eos}'",
        )
    _eos(model)


def declared_run(rendered: Rendered, run: int, variables: Mapping[str, Any], emission: str) -> ProvenRun:
    """The run in place of the message `run`, as the user declares it. Raises RefusedError."""
    model, message = rendered.model, rendered.conversation.messages[run]
    variables = {**variables, **rendered.conversation.variables}
    calls = bool(message.get("tool_calls"))
    if calls and f"{{{_CALLS}}}" not in emission:
        raise RefusedError(
            PROMPT_NOT_PREFIX, "the message makes calls, which --emission does not declare", "add {calls} to --emission"
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
    spelled = _spelled_calls(rendered, run, variables) if calls else None
    completion, texts = _written(emission, message, model, run, len(prompt), spelled)
    whole = prompt + completion
    ids = encoded(prompt, whole, encoder, served=True)
    offsets = offsets_of_completion(model, prompt, whole, ids)
    truncated = bool(message.get("truncated"))
    last = texts[-1].end if texts else len(prompt)
    trained = trained_end(offsets, last, calls=calls) if truncated else len(offsets)
    return ProvenRun(
        run=run,
        whole=whole,
        stop=len(whole),
        prompt=len(prompt),
        tokens=np.concatenate([ids.prompt, ids.completion]),
        first=len(ids.prompt),
        end=len(ids.prompt) + trained,
        spans=spans_of_tokens(whole, texts, offsets, calls=calls, added=model.added)[:trained],
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
        run, first = refusal.run, refusal
        if refusal.kind not in (PROMPT_NOT_PREFIX, TEXT_DROPPED):
            return refusal
        for variables in proving.variables:
            try:
                if refusal.kind == TEXT_DROPPED and _writes_all(rendered, run, variables):
                    continue
                return declared_run(rendered, run, variables, emission)
            except RefusedError as fault:
                if first is refusal:
                    first = Refusal(kind=fault.kind, message=fault.message, run=run, remedy=fault.remedy)
        return first

    return declare


def _writes_all(rendered: Rendered, run: int, variables: Mapping[str, Any]) -> bool:
    """Whether F (the text through the run) begins with P (the prompt) and holds the reasoning, or P ends a thought."""
    values = {**variables, **rendered.conversation.variables}
    prompt = rendered.text(rendered.plain[:run], values, prompt=True)
    reasoning = (rendered.conversation.messages[run].get("reasoning") or "").strip()
    whole = rendered.text(rendered.plain[: run + 1], values)
    return whole.startswith(prompt) and not (reasoning and reasoning not in whole and not _CLOSED.search(prompt))


def _spelled_calls(rendered: Rendered, run: int, variables: Mapping[str, Any]) -> tuple[str, list[Placed]]:
    """What the template writes behind the content, through the last call, and where the calls' texts are in it.

    Raises RefusedError if one of them is not written as it is.
    """
    message = {**rendered.conversation.messages[run], "reasoning": None}
    tracer = Tracer()
    tracer.message = run
    traced = shaped({**message, "content": message.get("content") or _STANDING}, rendered.form, tracer)
    whole = rendered.traced_text([*rendered.plain[:run], traced], variables)
    texts = texts_of_run(marks_of(whole), tracer.fields, run).texts
    begin = next(text.end for text in texts if text.field.kind == CONTENT)
    plain = plain_text(whole)
    end = min(
        (at for stop in rendered.model.stops.values() if (at := plain.find(stop, texts[-1].end)) >= 0), default=-1
    )
    if end < 0 or texts[-1].field.kind == CONTENT:
        raise RefusedError(NO_TURN_END, "no stop token is behind the calls", REMEDIES[NO_TURN_END])
    placed = [replace(text, start=text.start - begin, end=text.end - begin) for text in texts if text.start >= begin]
    return plain[begin:end], placed


def _written(
    emission: str, message: Message, model: Model, run: int, begin: int, calls: tuple[str, list[Placed]] | None
) -> tuple[str, list[Placed]]:
    """The completion, and where the texts are in F. Raises RefusedError for reasoning without `{reasoning}`."""
    if message.get("reasoning") and f"{{{REASONING}}}" not in emission:
        raise RefusedError(TEXT_DROPPED, "the emission has no place for reasoning", "add {reasoning} to --emission")
    pieces: list[str] = []
    placed: list[Placed] = []
    at, end = begin, 0
    for match in _PLACE.finditer(emission):
        literal = emission[end : match.start()]
        kind = match[1]
        at += len(literal)
        if kind == _CALLS:
            text, inside = calls or ("", [])
            placed += (replace(each, start=each.start + at, end=each.end + at) for each in inside)
        else:
            text = _eos(model) if kind == _EOS else message.get(kind) or ""
        pieces += [literal, text]
        if kind in (REASONING, CONTENT) and text:
            field = Field(run, kind, text)
            placed.append(Placed(at, at + len(text), len(placed), field))
        at += len(text)
        end = match.end()
    return "".join(pieces), placed


def _eos(model: Model) -> str:
    """The token for `{eos}`: `eos_token` if it is a stop token, otherwise the stop token with the smallest id."""
    eos = model.template.special_tokens.get("eos_token")
    return eos if eos is not None and eos in model.stops.values() else model.stops[min(model.stops)]
