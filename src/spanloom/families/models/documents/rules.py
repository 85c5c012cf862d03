"""The options of a build for a model, and the model's folder loaded under them.

In: a model's folder, `ModelRules`. Out: `Ingredients`, which workers load for themselves; the manifest's `config`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from spanloom.families.models import defaults
from spanloom.families.models.documents.prover import PathsDifferError, Prover
from spanloom.families.models.errors import ModelError
from spanloom.families.models.form import INLINE
from spanloom.families.models.model import Model, find_eod, load_model
from spanloom.families.models.probe.form import adapting_for, form_of, variable_sets
from spanloom.families.models.prove.conversation import Proving
from spanloom.families.models.source.rows import TemplateWords
from spanloom.families.models.workarounds.declared import check_emission, declaring
from spanloom.provenance import sha256_json
from spanloom.report.progress import Progress
from spanloom.storage import sha256_file

T = TypeVar("T")

PROBE_NAME = "probe.json"


@dataclass(frozen=True, kw_only=True)
class ModelRules:
    """The options that decide the bytes, together with the source and the model's files.

    thinking      `auto`, `on` or `off`: the template variable for thinking; `auto` tries until a run is proven
    inline_think  if the template has no reasoning: write it into the content (true) or refuse the conversation
    boundary      if a token would span the end of the prompt: encode both parts apart (`served`) or `refuse`
    stops         stop tokens instead of those of `generation_config.json`
    date          today's date for the template, as YYYY-MM-DD
    variables     template variables for all conversations
    train         names of the spans that are trained; the others are context
    control_texts  control tokens in texts that are not trained: `refuse`, keep the ids `as-served`, encode as `text`
    call_ids      where the template takes no other ids of calls than its own: `rewrite` them or `keep` what is given
    inline_calls  the format in which tools, calls and results become text; None leaves them to the template
    text_beside_calls  if the template drops it: `refuse`, or `split` it off as a message before the calls
    turns         `all`, or `last`: what follows the last question that is answered, in one document
    emission      what the model writes if the template does not continue its own prompt; None refuses such runs
    proof         `paths`: by the paths of the template where they are known; `full`: each conversation by itself. This
                  one decides no byte
    """

    thinking: str = defaults.THINKING[0]
    inline_think: bool = False
    boundary: str = defaults.BOUNDARY[0]
    stops: tuple[str, ...] = ()
    date: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    control_texts: str = defaults.CONTROL_TEXTS[0]
    train: tuple[str, ...] = defaults.SPAN_NAMES[1:]
    call_ids: str = defaults.CALL_IDS[0]
    inline_calls: str | None = None
    text_beside_calls: str = defaults.TEXT_BESIDE_CALLS[0]
    turns: str = defaults.TURNS[0]
    emission: str | None = None
    proof: str = defaults.PATHS
    valid_fraction: float = defaults.VALID_FRACTION

    def adapting(self) -> dict[str, str]:
        """The options for adapting conversations that are not the default."""
        given = {
            "call_ids": (self.call_ids, defaults.CALL_IDS[0]),
            "inline_calls": (self.inline_calls, None),
            "text_beside_calls": (self.text_beside_calls, defaults.TEXT_BESIDE_CALLS[0]),
        }
        return {name: value for name, (value, default) in given.items() if value is not None and value != default}


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """A loaded model, and how conversations are proven for it. `prover` proves them by these rules."""

    folder: Path
    model: Model
    proving: Proving
    prover: Prover
    words: TemplateWords
    rules: ModelRules

    def config(self) -> dict[str, Any]:
        """The manifest's `config`."""
        rules, form = self.rules, self.proving.form
        return {
            "model": self.model.name,
            "model_files": {
                name: sha256_file(self.folder / name) for name in defaults.MODEL_FILES if (self.folder / name).is_file()
            },
            "template_sha256": sha256_json(self.model.template.text),
            "stops": {text: token for token, text in sorted(self.model.stops.items())},
            "form": form.as_dict(),
            "variables": [dict(variables) for variables in self.proving.variables],
            "thinking": rules.thinking,
            "inline_think": rules.inline_think,
            "boundary": rules.boundary,
            "date": rules.date,
            # Absent by default, so that the config of an earlier dataset is the same.
            **({} if rules.turns == defaults.TURNS[0] else {"turns": rules.turns}),
            **({} if rules.control_texts == defaults.CONTROL_TEXTS[0] else {"control_texts": rules.control_texts}),
            "train": list(rules.train),
            **rules.adapting(),
            "emission": rules.emission,
            "eod": find_eod(self.model),
            "valid_fraction": rules.valid_fraction,
        }


def load_ingredients(folder: Path, rules: ModelRules) -> Ingredients:
    """The model of a folder under these rules. Raises ModelError, TokenizerError or ChatTemplateError."""
    date = None if rules.date is None else parsed_date(rules.date)
    model = load_model(folder, stops=rules.stops, date=date)
    sets = variable_sets(model.template, rules.thinking, rules.variables)
    form = form_of(model.template, sets, rewrite=rules.call_ids == defaults.CALL_IDS[0])
    if rules.emission is not None:
        check_emission(rules.emission, model)
    proving = Proving(
        form=form,
        variables=tuple(sets),
        served=rules.boundary == "served",
        inline=form.reasoning != INLINE or rules.inline_think,
        control_texts=rules.control_texts,
        eod=find_eod(model)["text"],
    )
    declare = None if rules.emission is None else declaring(proving, rules.emission)
    return Ingredients(
        folder=folder,
        model=model,
        proving=proving,
        prover=Prover(model, proving, declare, by_path=rules.proof != defaults.FULL),
        words=TemplateWords.of(
            model.template,
            adapting_for(model.template, sets, form, inline_calls=rules.inline_calls, beside=rules.text_beside_calls),
        ),
        rules=rules,
    )


def by_either_proof(make: Callable[[Ingredients], T], ingredients: Ingredients, progress: Progress) -> T:
    """What `make` makes; without paths, from the start, if a document by path is wrong."""
    try:
        return make(ingredients)
    except PathsDifferError as fault:
        progress.say(f"warning: {fault.what}, {fault.where}")
        progress.say("all conversations are proven again without paths; please report the template")
        return make(load_ingredients(ingredients.folder, replace(ingredients.rules, proof=defaults.FULL)))


def parsed_date(text: str) -> datetime:
    """Parses `--date YYYY-MM-DD`. Raises ModelError."""
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        raise ModelError(f"--date {text!r} is not a date", remedy="give it as YYYY-MM-DD") from None
