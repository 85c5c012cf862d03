"""The options with which more conversations are made into documents: what a refusal's remedy comes to.

In: the result of a probe and its options. Out: `Advice`, each option of which was tried on the refused conversations.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from spanloom.families.models.defaults import CONTROL_TEXTS, INLINE_CALLS, SPLIT
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import CLOSING, INLINE, OPENING
from spanloom.families.models.probe.result import ProbeOptions, ProbeResult, Tried, probe
from spanloom.families.models.prove.refusals import PROMPT_NOT_PREFIX, SPECIAL_IN_TEXT, TEXT_DROPPED, Refusal
from spanloom.families.models.prove.run import Rendered
from spanloom.families.models.workarounds.declared import DECLARED, OPENED
from spanloom.tokenizers.traced_text import marks_of, plain_text

_EOS = "{content}{calls}{eos}"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """`options` of `spanloom build --model`; with them `made` of the conversations become documents, `declared` of
    them with a run that is declared and not proven. `left`: class → conversations that are refused still."""

    options: tuple[str, ...]
    made: int
    declared: int
    left: Mapping[str, int]


def find_advice(result: ProbeResult, options: ProbeOptions) -> Advice | None:
    """The options that make more documents; None if there are none.

    Each is tried on what is refused without it and kept where it helps. In the end all conversations are tried.
    """
    best, refused = options, [tried for tried, _ in result.refused]
    words: list[str] = []
    tried = list(_tried(result, options))
    for choices in (*tried, *tried):  # one may help only where another is taken
        if best in choices(best):
            continue
        outcomes = [probe(result.model, [(each.group, each.given) for each in refused], each) for each in choices(best)]
        again, chosen = max(zip(outcomes, choices(best), strict=True), key=lambda each: len(each[0].proven))
        if not again.proven:
            continue
        words += _words(best, chosen)
        best = chosen
        refused = [each for each, new in zip(refused, again.tried, strict=True) if isinstance(new.outcome, Refusal)]
        if not refused:
            break
    final = result if best == options else probe(result.model, [(e.group, e.given) for e in result.tried], best)
    if len(final.proven) < len(result.proven):
        return None
    if result.proving.form.reasoning == INLINE and any(
        message.get("reasoning") for tried, _ in final.proven for message in tried.conversation.messages
    ):
        words.insert(0, "--inline-think")
    declared = sum(any(run.boundary == DECLARED for run in proven.runs) for _, proven in final.proven)
    left = Counter(refusal.kind for _, refusal in final.refused)
    made = len(final.proven)
    return Advice(options=tuple(words), made=made, declared=declared, left=dict(left)) if words else None


def _tried(result: ProbeResult, options: ProbeOptions) -> Iterator[Callable[[ProbeOptions], list[ProbeOptions]]]:
    """Choices, in the order in which they are tried: the options so far → those with one more, of which one is kept."""
    kinds = {refusal.kind for _, refusal in result.refused}
    if options.text_beside_calls != SPLIT and TEXT_DROPPED in kinds:
        yield lambda best: [replace(best, text_beside_calls=SPLIT)]
    called = sum(bool(tried.conversation.tools) for tried, _ in result.proven)
    if options.inline_calls is None and called < sum(bool(tried.conversation.tools) for tried, _ in result.refused):
        yield lambda best: [replace(best, inline_calls=INLINE_CALLS[0])]
    if options.emission is None and kinds & {PROMPT_NOT_PREFIX, TEXT_DROPPED}:
        emissions = _emissions(result)
        if emissions:
            yield lambda best: [replace(best, emission=emission) for emission in emissions]
    if options.control_texts == CONTROL_TEXTS[0] and SPECIAL_IN_TEXT in kinds:
        yield lambda best: [replace(best, control_texts="text")]


def _words(before: ProbeOptions, chosen: ProbeOptions) -> Iterator[str]:
    """The options of the command that differ."""
    for field in fields(chosen):
        value = getattr(chosen, field.name)
        if value != getattr(before, field.name):
            yield f"--{field.name.replace('_', '-')}"
            yield value.replace("\n", "\\n")


def _emissions(result: ProbeResult) -> list[str]:
    """What the model may write behind a prompt that the template does not continue."""
    for tried, refusal in result.refused:
        if refusal.kind not in (PROMPT_NOT_PREFIX, TEXT_DROPPED):
            continue
        rendered = Rendered(result.model, tried.conversation, result.proving.form)
        for variables in result.proving.variables:
            try:
                prompt = rendered.text(rendered.plain[: refusal.run], variables, prompt=True)
            except RefusedError:
                continue
            if opened := OPENED.search(prompt):
                closing = CLOSING if opened[2] else CLOSING.strip()  # as the prompt has line feeds, or has none
                shown = None if result.proving.form.reasoning == INLINE else _between(result, variables)
                closing = shown or closing.replace("think", opened[1])
                return ["{reasoning}" + closing + _EOS]
    if result.proving.form.reasoning == INLINE:
        knows_tags = CLOSING.strip() in result.model.template.text
        return [_EOS, *([OPENING + "{reasoning}" + CLOSING + _EOS] if knows_tags else [])]
    thinks = any(message.get("reasoning") for tried, _ in result.proven for message in tried.conversation.messages)
    between = None if thinks else _between(result, result.proving.variables[0])
    return [_EOS, *([] if between is None else ["{reasoning}" + between + _EOS])]


def _between(result: ProbeResult, variables: Mapping[str, Any]) -> str | None:
    """What the template writes between a reasoning and its answer, if it writes both."""
    for tried in result.tried:
        for run in tried.conversation.runs():
            message = tried.conversation.messages[run]
            if message.get("reasoning") and message.get("content") and not message.get("tool_calls"):
                found = _written_between(result, tried, run, variables)
                if found is not None:
                    return found
    return None


def _written_between(result: ProbeResult, tried: Tried, run: int, variables: Mapping[str, Any]) -> str | None:
    rendered = Rendered(result.model, tried.conversation, result.proving.form)
    try:
        traced = rendered.traced_text(rendered.traced[: run + 1], variables)
    except RefusedError:
        return None
    own = {number: field.kind for number, field in enumerate(rendered.fields) if field.message == run}
    ends = {own[mark[2]]: (mark[0], mark[1]) for mark in marks_of(traced) if mark[2] in own}
    if not {"reasoning", "content"} <= set(ends) or ends["reasoning"][1] > ends["content"][0]:
        return None
    return plain_text(traced)[ends["reasoning"][1] : ends["content"][0]]
