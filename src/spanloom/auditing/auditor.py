"""A model → the tables and proofs of an audit, and the classes that its tokens cannot show.

In: a model's folder and options. Out: `Auditor`. Raises the errors of `load_model`, and SourceError if frames cannot be
read and there are no messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from spanloom.families.models.model import load_model
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.probe.frames import Learned, ModelFrames, find_frames
from spanloom.families.models.prove.conversation import Proving


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


Auditor = ModelFrames


def make_auditor(options: ModelOptions, *, learned: Learned | None = None) -> Auditor:
    """Makes the auditor of a model. `learned`: that of another auditor with equal options; computed by default."""
    model = load_model(options.folder, stops=options.stops, date=options.date, template=options.template)
    sets = variable_sets(model.template, options.thinking, options.variables)
    form = find_form(model.template, sets)
    return find_frames(model, Proving(form=form, variables=sets, control_texts=options.control_texts), learned=learned)
