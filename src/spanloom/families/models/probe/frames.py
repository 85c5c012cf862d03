"""A model → what its frames are, and which findings its tokens cannot show.

In: a model, the sets of variables of its template, its form. Out: `ModelFrames`. Raises SourceError if frames cannot be
read off the tokens.

The proven documents of forty conversations are judged first. They are correct, so that tokens of this template cannot
show a class that is found there: it is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spanloom.families.models.conversation import Conversation, Message
from spanloom.families.models.model import Model, find_eod
from spanloom.families.models.probe.grammar import find_grammar
from spanloom.families.models.probe.retokenised import retokenised
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.samples.conversations import sample_conversations
from spanloom.law import classes
from spanloom.law.beginnings import find_beginnings
from spanloom.law.documents import Documents
from spanloom.law.frames import Marks, read_frames
from spanloom.law.grammar import Beginnings
from spanloom.law.judging import judge
from spanloom.law.tables import Tables, make_tables


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a model's own documents show: classes that frames of its template cannot show; what `Tables` have of them;
    whether the reasoning that `Grammar` says is dropped from history is nowhere in it."""

    unshown: tuple[str, ...] = ()
    beginnings: Beginnings = field(default_factory=Beginnings)
    supplied: bool = False
    drops_reasoning: bool = True

    def tables(self, tables: Tables) -> Tables:
        grammar = tables.grammar if self.drops_reasoning else replace(tables.grammar, reasoning=None)
        return replace(tables, grammar=grammar, beginnings=self.beginnings, supplied=self.supplied)


@dataclass(frozen=True, kw_only=True)
class ModelFrames:
    """`documents`: the proven ones that `learned` is of, each with its conversation; `proven`: how many."""

    model: Model
    proving: Proving
    tables: Tables
    learned: Learned = field(default_factory=Learned)
    documents: tuple[tuple[Conversation, Document], ...] = ()

    @property
    def unshown(self) -> tuple[str, ...]:
        return self.learned.unshown

    @property
    def proven(self) -> int:
        return len(self.documents)


def find_frames(model: Model, proving: Proving, *, learned: Learned | None = None) -> ModelFrames:
    """The frames of a model. `learned`: by another call with equal options, which takes seconds."""
    ending = ("eos_token", "pad_token", "bos_token")
    ends = (model.tokenizer.id_of(model.template.special_tokens.get(name, "")) for name in ending)
    padding = frozenset(token for token in (*ends, find_eod(model)["id"]) if token is not None)
    tables = make_tables(find_grammar(model, proving.form, proving.variables), model.tokenizer, padding)
    if learned is not None:
        return ModelFrames(model=model, proving=proving, tables=learned.tables(tables), learned=learned)
    conversations = [*(each for _, each in sample_conversations()), *_with_later_rules()]
    outcomes = [(each, prove_conversation(model, each, proving)) for each in conversations]
    proven_documents = tuple(
        (conversation, document)
        for conversation, outcome in outcomes
        if isinstance(outcome, Proven)
        for document in outcome.documents
    )
    if not proven_documents:
        return ModelFrames(model=model, proving=proving, tables=tables)
    learned = _learned(model, tables, [document for _, document in proven_documents])
    return ModelFrames(
        model=model, proving=proving, tables=learned.tables(tables), learned=learned, documents=proven_documents
    )


def _with_later_rules() -> Iterator[Conversation]:
    """Conversations with a system message before a later question. Some templates write it before all messages: then
    an answer before it needs a document of its own."""
    for thought in (None, "They asked for more."):
        first: Message = {"role": "assistant", "content": "It is a river.", "reasoning": thought}
        yield Conversation(
            id="later rule",
            messages=(
                {"role": "user", "content": "What is the Rhine?"},
                first,
                {"role": "system", "content": "Answer in one word."},
                {"role": "user", "content": "And Kiel?"},
                {"role": "assistant", "content": "Town", "reasoning": thought},
            ),
        )


def _learned(model: Model, tables: Tables, proven: Sequence[Document]) -> Learned:
    """What proven documents have in common, and the classes that are found in them nevertheless."""
    documents = Documents(
        tokens=np.concatenate([document.tokens for document in proven]),
        trained=np.concatenate([document.mask for document in proven]).astype(np.bool_),
        lengths=np.array([document.tokens.size for document in proven], np.int64),
        rows=np.arange(len(proven)),
        parts=np.zeros(len(proven), np.int64),
        file=model.name,
    )
    added = frozenset(model.tokenizer.added_texts().values())
    frames = read_frames(documents, tables, Marks.of(documents.tokens, tables))
    learned = Learned(beginnings=find_beginnings(documents, frames, added))
    judged = judge(documents, learned.tables(tables))
    if classes.HISTORY_REWRITTEN in judged.found:
        learned = replace(learned, drops_reasoning=False)
        judged = judge(documents, learned.tables(tables))
    supplied = replace(learned, supplied=True)
    with_all = judge(documents, supplied.tables(tables))
    if with_all.found.keys() <= judged.found.keys():
        learned, judged = supplied, with_all
    # A template that rewrites history makes documents in which earlier answers are context.
    again = retokenised(model, documents, judged.frames, len(proven))
    names = {*judged.found, *([classes.RETOKENISED] if again else [])}
    unshown = tuple(name for name in classes.NAMES if name in names)
    return replace(learned, unshown=unshown)
