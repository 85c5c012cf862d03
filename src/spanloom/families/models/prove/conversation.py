"""A conversation → its documents, or why it is refused.

In: a model, a conversation, the form of its template, the template variables to try. Out: `Proven` or `Refusal`. One
run that is not proven makes the whole conversation refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.defaults import CONTROL_TEXTS
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import THINKING_VARIABLES, Form
from spanloom.families.models.model import Model
from spanloom.families.models.prove.documents import Chain, Document, add_run, take_documents
from spanloom.families.models.prove.refusals import TEXT_DROPPED, Refusal
from spanloom.families.models.prove.run import ProvenRun, Rendered, prove_run


@dataclass(frozen=True)
class Proven:
    """The documents of a conversation; empty if it has no run to train."""

    documents: tuple[Document, ...]

    @property
    def runs(self) -> list[ProvenRun]:
        """All trained runs, in order."""
        return sorted((run for document in self.documents for run in document.runs), key=lambda run: run.run)


@dataclass(frozen=True, kw_only=True)
class Proving:
    """How conversations are proven.

    form       the form in which the template takes messages
    variables  sets of template variables, tried in order until a run is proven
    served     encode P and completion apart if a token would span their boundary
    inline     if the template has no reasoning, write it into the content; if false, refuse it
    control_texts   what becomes of control tokens in texts that are not trained: one of `defaults.CONTROL_TEXTS`
    eod        the text of the token that ends a document, which no text may hold unless it is encoded as text
    """

    form: Form
    variables: Sequence[Mapping[str, Any]] = ({},)
    served: bool = True
    inline: bool = True
    control_texts: str = CONTROL_TEXTS[0]
    eod: str | None = None

    @cached_property
    def orders(self) -> tuple[Sequence[int], Sequence[int]]:
        """The numbers of the sets of variables, in the order in which they are tried: for a run without reasoning, for
        one with reasoning."""
        order = range(len(self.variables))
        return sorted(order, key=lambda number: _thinking(self.variables[number])), order


Declare = Callable[[Rendered, Refusal], ProvenRun | Refusal]
"""Turns the refusal of a run into a run that the user declares, or returns a refusal."""


def prove_conversation(
    model: Model, conversation: Conversation, proving: Proving, declare: Declare | None = None
) -> Proven | Refusal:
    """The documents of a conversation, or the refusal of its first run that is neither proven nor declared."""
    rendered = Rendered(model, conversation, proving.form, proving.control_texts, proving.eod)
    with_reasoning = (run for run in conversation.runs() if conversation.messages[run].get("reasoning"))
    if not proving.inline and (first := next(with_reasoning, None)) is not None:
        message = "the template knows no reasoning"
        return Refusal(
            kind=TEXT_DROPPED, message=message, run=first, remedy="write it into the content: --inline-think"
        )
    chains: list[Chain] = []
    for run in conversation.runs():
        outcome = _first_proven(rendered, run, proving)
        if isinstance(outcome, Refusal) and declare is not None:
            outcome = declare(rendered, outcome)
        if isinstance(outcome, Refusal):
            return outcome
        add_run(chains, outcome)
    return Proven(tuple(take_documents(chains)))


def _first_proven(rendered: Rendered, run: int, proving: Proving) -> ProvenRun | Refusal:
    if not proving.variables:
        raise ValueError("no set of template variables is given; give [{}]")
    refusals: dict[int, Refusal] = {}
    for number in proving.orders[bool(rendered.conversation.messages[run].get("reasoning"))]:
        try:
            return prove_run(rendered, run, proving.variables[number], served=proving.served)
        except RefusedError as fault:
            refusals[number] = Refusal(kind=fault.kind, message=fault.message, run=run, remedy=fault.remedy)
    return refusals[0]


def _thinking(variables: Mapping[str, Any]) -> int:
    """0 if a set of variables switches thinking off, 1 if it leaves it to the template, 2 if it switches it on.

    A run without reasoning is tried in this order. Served without thinking, the prompt supplies the empty thought.
    """
    values = [variables[name] for name in THINKING_VARIABLES if name in variables]
    return 0 if False in values else 2 if True in values else 1
