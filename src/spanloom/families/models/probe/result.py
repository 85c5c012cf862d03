"""Which conversations are proven for a model's template, and what was found.

In: a model, conversations, options. Out: `ProbeResult`; as JSON, and as lines of a table.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.defaults import CONTROL_TEXTS, REFUSE_BESIDE, REWRITE, THINKING
from spanloom.families.models.form import INLINE
from spanloom.families.models.model import Model
from spanloom.families.models.probe.form import adapting_for, arguments_given_as, form_of, variable_sets
from spanloom.families.models.probe.hazards import Hazards, find_hazards
from spanloom.families.models.probe.history import History, find_history
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.refusals import Refusal
from spanloom.families.models.workarounds.adapted import adapted
from spanloom.families.models.workarounds.declared import check_emission, declaring


@dataclass(frozen=True)
class Tried:
    """A conversation as `given` and as adapted for the template, and its documents or its refusal."""

    group: str
    given: Conversation
    conversation: Conversation
    outcome: Proven | Refusal


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """`arguments`: `either`, `object`, `text` or `neither`; `proving`: how the conversations were proven; `history`:
    the variable that keeps earlier thoughts, if the template has one."""

    model: Model
    proving: Proving
    arguments: str
    hazards: Hazards
    tried: tuple[Tried, ...]
    history: History | None = None

    @property
    def proven(self) -> list[tuple[Tried, Proven]]:
        return [(tried, tried.outcome) for tried in self.tried if isinstance(tried.outcome, Proven)]

    @property
    def refused(self) -> list[tuple[Tried, Refusal]]:
        return [(tried, tried.outcome) for tried in self.tried if isinstance(tried.outcome, Refusal)]

    @property
    def in_several_documents(self) -> int:
        """The number of proven conversations that need several documents because the template rewrites history."""
        return sum(len(proven.documents) > 1 for _, proven in self.proven)


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """How conversations are proven. The fields are those of `ModelRules`; `served`: of `Proving`."""

    thinking: str = THINKING[0]
    variables: Mapping[str, Any] = field(default_factory=dict)
    served: bool = True
    control_texts: str = CONTROL_TEXTS[0]
    eod: str | None = None
    call_ids: str = REWRITE
    inline_calls: str | None = None
    text_beside_calls: str = REFUSE_BESIDE
    emission: str | None = None


DEFAULT = ProbeOptions()


def probe(
    model: Model, conversations: Iterable[tuple[str, Conversation]], options: ProbeOptions = DEFAULT
) -> ProbeResult:
    """Finds the form of the template and proves each conversation."""
    sets = variable_sets(model.template, options.thinking, options.variables)
    form = form_of(model.template, sets, rewrite=options.call_ids == REWRITE)
    adapting = adapting_for(
        model.template, sets, form, inline_calls=options.inline_calls, beside=options.text_beside_calls
    )
    proving = Proving(
        form=form,
        variables=sets,
        served=options.served,
        control_texts=options.control_texts,
        eod=options.eod,
    )
    if options.emission is not None:
        check_emission(options.emission, model)
    declare = None if options.emission is None else declaring(proving, options.emission)
    tried = []
    for group, given in conversations:
        conversation, _ = adapted(given, frozenset(), adapting)
        tried.append(Tried(group, given, conversation, prove_conversation(model, conversation, proving, declare)))
    return ProbeResult(
        model=model,
        proving=proving,
        arguments=arguments_given_as(model.template, sets),
        hazards=find_hazards(model),
        tried=tuple(tried),
        history=find_history(model, proving, [(each.conversation, each.outcome) for each in tried]),
    )


def as_json(result: ProbeResult) -> dict[str, Any]:
    """The result as JSON values: `proven`, `of`, and what was found."""
    runs = [run for _, proven in result.proven for run in proven.runs]
    return {
        "model": result.model.name,
        "proven": len(result.proven),
        "of": len(result.tried),
        "refusals": dict(Counter(refusal.kind for _, refusal in result.refused).most_common()),
        "in_several_documents": result.in_several_documents,
        "form": {**result.proving.form.as_dict(), "arguments_may_be": result.arguments},
        "stops": {str(number): text for number, text in result.model.stops.items()},
        "turn_ends": dict(Counter(run.turn_end for run in runs).most_common()),
        "variables": [
            {"variables": json.loads(variables), "runs": count}
            for variables, count in Counter(
                json.dumps(dict(run.variables), sort_keys=True) for run in runs
            ).most_common()
        ],
        "boundary": dict(Counter(run.boundary for run in runs)),
        "hazards": {**asdict(result.hazards), "history_rewritten": result.in_several_documents > 0},
        # Absent without such a variable, so that the probe of an earlier dataset is the same.
        **({} if result.history is None else {"history": asdict(result.history)}),
        "generation_marks": {
            "equal": sum(run.generation is True for run in runs),
            "other": sum(run.generation is False for run in runs),
        },
        "forgotten_texts": sum(run.forgotten for run in runs),
        "encoder": "fastokens" if result.model.encoder.fast else "tokenizers",
        "tokenizer_sha256": result.model.tokenizer.sha256,
        "groups": groups(result),
        "conversations": [_conversation(tried) for tried in result.tried],
    }


def groups(result: ProbeResult) -> dict[str, dict[str, int]]:
    """The numbers of proven and of all conversations of each group."""
    of = Counter(tried.group for tried in result.tried)
    proven = Counter(tried.group for tried, _ in result.proven)
    return {group: {"proven": proven[group], "of": count} for group, count in of.items()}


def _kept(history: History) -> str:
    """How earlier thoughts are kept, and what that saves."""
    share = 1 - history.kept_tokens / history.tokens
    return (
        f"kept with --set {history.variable}={json.dumps(history.value)}: {history.kept_documents} documents instead of"
        f" {history.documents}, {share:.0%} fewer tokens"
    )


def _generation(result: ProbeResult) -> str:
    """How the template's marks compare with what is proven. The marks do not affect the proof."""
    if not result.hazards.generation_tags:
        return "no"
    marked = [run.generation for _, proven in result.proven for run in proven.runs]
    return f"marks {sum(each is True for each in marked)} of {len(marked)} proven runs as they are trained (not used)"


def _conversation(tried: Tried) -> dict[str, Any]:
    about = {"id": tried.conversation.id, "group": tried.group}
    if isinstance(tried.outcome, Refusal):
        refusal = tried.outcome
        return {
            **about,
            "proven": False,
            "class": refusal.kind,
            "message": refusal.message,
            "run": refusal.run,
            "remedy": refusal.remedy,
        }
    return {**about, "proven": True, "documents": len(tried.outcome.documents), "runs": len(tried.outcome.runs)}


def as_lines(result: ProbeResult) -> list[str]:
    """The result as a table for a terminal."""
    model, form, hazards = result.model, result.proving.form, result.hazards
    inline = form.reasoning == INLINE
    facts = {
        "proven": f"{len(result.proven)} of {len(result.tried)} conversations",
        **{f"  {name}": f"{count['proven']} of {count['of']}" for name, count in groups(result).items()},
        "documents": f"{result.in_several_documents} of {len(result.proven)} proven conversations need several"
        if result.in_several_documents
        else "one for each conversation",
        **({} if result.history is None else {"earlier thoughts": _kept(result.history)}),
        "reasoning": "inline, in <think> tags of the content" if inline else form.reasoning,
        "arguments": f"as {form.arguments} (may be: {result.arguments})",
        "content beside calls": "empty text" if form.beside_calls == "empty" else "null",
        "stop tokens": " ".join(model.stops.values()),
        "date in the prompt": "yes: build needs --date" if hazards.date else "no",
        "default system text": repr(hazards.default_system[:60]) if hazards.default_system else "no",
        "BOS twice": "where the tokenizer adds its own tokens to the text" if hazards.double_bos else "no",
        "{% generation %}": _generation(result),
    }
    lines = [f"{name:<22}{value}" for name, value in facts.items()]
    for tried, refusal in result.refused:
        lines.append(f"refused  {refusal.kind}: {tried.conversation.id}, message {refusal.run}: {refusal.message}")
    return lines
