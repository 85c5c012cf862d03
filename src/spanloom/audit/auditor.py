"""A model → the tables and proofs of an audit, and the classes that its tokens cannot show.

In: a model's folder and options. Out: `Auditor`. Raises the errors of `load_model`, and SourceError if frames cannot be
read and there are no messages.

First the proven documents of forty conversations are audited. They are correct, so that tokens of this template cannot
show a class that is found there: the class is left out, and reported as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.audit import classes
from spanloom.audit.documents import Documents
from spanloom.audit.frames.grammar import find_grammar
from spanloom.audit.frames.tables import Tables, make_tables
from spanloom.audit.judging import judge
from spanloom.audit.retokenised import retokenised
from spanloom.families.models.model import Model, load_model
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.samples.conversations import sample_conversations


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options for loading a model. Each worker loads it again. `variables`: of the template.

    `control_texts`: what the data has in place of control tokens in texts that are not trained: their ids `as-served`,
    or those of `text`.
    """

    folder: Path
    template: Path | None = None
    stops: tuple[str, ...] = ()
    date: datetime | None = None
    thinking: str = "auto"
    variables: Mapping[str, Any] = field(default_factory=dict)
    control_texts: str = "as-served"


@dataclass(frozen=True, kw_only=True)
class Auditor:
    """`unshown`: classes that frames of this template cannot show; `proven`: how many documents showed this."""

    model: Model
    proving: Proving
    tables: Tables
    unshown: tuple[str, ...] = ()
    proven: int = 0


def make_auditor(options: ModelOptions, *, unshown: tuple[str, ...] | None = None) -> Auditor:
    """Makes the auditor of a model. `unshown`: that of another auditor with equal options; computed by default."""
    model = load_model(options.folder, stops=options.stops, date=options.date, template=options.template)
    sets = variable_sets(model.template, options.thinking, options.variables)
    form = find_form(model.template, sets)
    proving = Proving(form=form, variables=sets, control_texts=options.control_texts)
    ending = ("eos_token", "pad_token", "bos_token")
    ends = (model.tokenizer.id_of(model.template.special_tokens.get(name, "")) for name in ending)
    padding = frozenset(token for token in ends if token is not None)
    tables = make_tables(find_grammar(model, proving.form, sets), model.tokenizer, padding)
    if unshown is not None:
        return Auditor(model=model, proving=proving, tables=tables, unshown=unshown)
    outcomes = [prove_conversation(model, conversation, proving) for _, conversation in sample_conversations()]
    proven = [document for outcome in outcomes if isinstance(outcome, Proven) for document in outcome.documents]
    if not proven:
        return Auditor(model=model, proving=proving, tables=tables)
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
    return Auditor(model=model, proving=proving, tables=tables, unshown=class_names, proven=len(proven))
