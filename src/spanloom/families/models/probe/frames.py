"""A model → what its frames are, and which findings its tokens cannot show.

In: a model, the sets of variables of its template, its form. Out: `ModelFrames`. Raises SourceError if frames cannot be
read off the tokens.

The proven documents of forty conversations are judged first. They are correct, so that tokens of this template cannot
show a class that is found there: it is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.families.models.conversation import Message
from spanloom.families.models.model import Model
from spanloom.families.models.probe.grammar import find_grammar
from spanloom.families.models.probe.retokenised import retokenised
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.samples.conversations import sample_conversations
from spanloom.law import classes
from spanloom.law.documents import Documents
from spanloom.law.judging import judge
from spanloom.law.tables import Tables, make_tables


@dataclass(frozen=True, kw_only=True)
class ModelFrames:
    """`unshown`: classes that frames of this template cannot show; `documents`: the proven ones that showed this, each
    with the messages of its conversation; `proven`: how many."""

    model: Model
    proving: Proving
    tables: Tables
    unshown: tuple[str, ...] = ()
    documents: tuple[tuple[Sequence[Message], Document], ...] = ()

    @property
    def proven(self) -> int:
        return len(self.documents)


def find_frames(model: Model, proving: Proving, *, unshown: tuple[str, ...] | None = None) -> ModelFrames:
    """The frames of a model. `unshown`: those found before with equal options; by default they are found here."""
    ending = ("eos_token", "pad_token", "bos_token")
    ends = (model.tokenizer.id_of(model.template.special_tokens.get(name, "")) for name in ending)
    padding = frozenset(token for token in ends if token is not None)
    tables = make_tables(find_grammar(model, proving.form, proving.variables), model.tokenizer, padding)
    found = ModelFrames(model=model, proving=proving, tables=tables, unshown=unshown or ())
    if unshown is not None:
        return found
    outcomes = [(each, prove_conversation(model, each, proving)) for _, each in sample_conversations()]
    with_messages = tuple(
        (conversation.messages, document)
        for conversation, outcome in outcomes
        if isinstance(outcome, Proven)
        for document in outcome.documents
    )
    proven = [document for _, document in with_messages]
    if not proven:
        return found
    documents = Documents(
        tokens=np.concatenate([document.tokens for document in proven]),
        trained=np.concatenate([document.mask for document in proven]).astype(np.bool_),
        lengths=np.array([document.tokens.size for document in proven], np.int64),
        rows=np.arange(len(proven)),
        parts=np.zeros(len(proven), np.int64),
        file=model.name,
    )
    # A template that rewrites history makes documents in which earlier answers are context.
    judged = judge(documents, tables)
    again = retokenised(model, documents, judged.frames, len(proven))
    names = {*judged.found, *([classes.RETOKENISED] if again else [])}
    class_names = tuple(name for name in classes.NAMES if name in names)
    return ModelFrames(model=model, proving=proving, tables=tables, unshown=class_names, documents=with_messages)
