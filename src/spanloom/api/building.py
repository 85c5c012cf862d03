"""A source → a validated dataset, for gpt-oss or for any Hugging Face model: `spanloom.build` and `spanloom build`.

In: the options of the command, as keywords. Out: a `BuildResult`. Imports almost nothing at the top, so that the
validating process can load its reader at the same time.
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spanloom.errors import OptionError, SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.models import defaults as model_defaults

if TYPE_CHECKING:
    from spanloom.building.make import BuildResult
    from spanloom.families.harmony.contract.history import CutRules
    from spanloom.families.models.documents.rules import ModelRules
    from spanloom.report.progress import Progress

OF_MODELS = ("thinking", "inline_think", "boundary", "stop", "date", "variables", "emission", "control_texts")
"""Options of a build that need `model`."""

OF_HARMONY = {
    "history": None,
    "turns": None,
    "call_format": None,
    "mask_generation_prompt": False,
    "max_tokens": None,
    "disk_check": True,
    "renderer": defaults.RENDERER,
    "audit_fraction": defaults.AUDIT_FRACTION,
    "tokenizer": None,
}
"""Options that only builds for gpt-oss have, and their default values."""

_CALLED = {"variables": "set", "disk_check": "no_disk_check"}
"""Options with another name in the command."""


def build(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    valid_fraction: float = defaults.VALID_FRACTION,
    train: str | None = None,
    history: Literal["serve", "openai-harmony", "keep"] | None = None,
    turns: Literal["all", "last"] | None = None,
    call_format: Literal["constrain", "json", "as-served"] | None = None,
    mask_generation_prompt: bool = False,
    thinking: Literal["auto", "on", "off"] | None = None,
    inline_think: bool = False,
    boundary: Literal["served", "refuse"] | None = None,
    stop: Sequence[str | int] = (),
    date: str | None = None,
    variables: Mapping[str, Any] | None = None,
    emission: str | None = None,
    max_rows: int | None = defaults.MAX_ROWS,
    max_rows_per_shard: int | None = defaults.MAX_ROWS_PER_SHARD,
    max_tokens: int | None = defaults.MAX_TOKENS,
    max_rejects: int | str = defaults.MAX_REJECTS,
    on_duplicate: Literal["error", "keep"] = defaults.ON_DUPLICATE,
    renderer: Literal["fast", "harmony"] = defaults.RENDERER,
    audit_fraction: float = defaults.AUDIT_FRACTION,
    tokenizer: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    workers: int | None = None,
    deep: int = defaults.DEEP,
    reader: Literal["auto", "megatron", "independent"] = "auto",
    resume: bool = True,
    overwrite: bool = False,
    keep_work: bool = False,
    disk_check: bool = True,
    allow_unknown_sha: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    control_texts: Literal["refuse", "as-served", "text"] | None = None,
) -> "BuildResult":
    """Builds a dataset of the folder `source`, and validates it. Prints nothing.

    source          output of `spanloom.convert` or of `spanloom convert-synth`: a folder or a URI
    out             root of the dataset; None: below data/megatron, see `spanloom build --help`
    model           a Hugging Face model's folder, or its URI; None: documents for gpt-oss
    valid_fraction  share of conversations in the split valid, chosen by a hash of their ids
    train           trained spans, separated by commas: "final" leaves the reasoning untrained
    reader          the reader of validation; auto: Megatron's own if it is installed, otherwise the independent one

    The other keywords are the options of `spanloom build`, with its defaults; `spanloom build --help` documents each.
    The same source, options and code give the same files for any number of `workers`. An interrupted build resumes,
    and a finished one is only validated again.

    Returns a `BuildResult`: `root`, `manifest`, `report`. Raises FindingsError if validation found something, and
    other SpanloomErrors for what stops the build; they name the fault, the place and a remedy.
    """
    arguments = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in locals().items()
    }
    paths = {name: _path(arguments[name]) for name in ("out", "tokenizer", "scratch")}
    from spanloom.findings import FindingsError
    from spanloom.report.progress import Mode, Progress

    result = built({**arguments, **paths, "max_rejects": str(max_rejects)}, Progress(mode=Mode.SILENT))
    if not result.report.clean:
        raise FindingsError(result.report, str(result.root))
    return result


def _path(place: str | None) -> Path | None:
    return None if place is None else Path(place)


def built(arguments: Mapping[str, Any], progress: "Progress") -> "BuildResult":
    """Runs the build of these keywords of `build`. Findings do not raise: they are in the report."""
    check_options(arguments)
    return (_built_for_harmony if arguments["model"] is None else _built_for_model)(arguments, progress)


def check_options(arguments: Mapping[str, Any]) -> None:
    """Raises SpanloomError for model options without a model, and for Harmony options with a model."""
    if arguments["model"] is None:
        wrong = [name for name in OF_MODELS if arguments[name]]
        remedy = "give --model DIR, or leave them out"
    else:
        wrong = [name for name, absent in OF_HARMONY.items() if arguments[name] != absent]
        remedy = "leave them out: they are for gpt-oss, without --model"
    if wrong:
        wrong_options = ", ".join(f"--{_CALLED.get(name, name).replace('_', '-')}" for name in wrong)
        raise SpanloomError(f"{wrong_options} cannot be combined with what is built", remedy=remedy)


def _built_for_harmony(arguments: Mapping[str, Any], progress: "Progress") -> "BuildResult":
    from spanloom.megatron.validator import validating_process

    with validating_process(arguments["reader"]) as validator:  # starts before the imports of this process
        from spanloom.families.harmony.build import build as run
        from spanloom.families.harmony.contract.caps import Caps
        from spanloom.families.harmony.contract.source import local_source
        from spanloom.families.harmony.options import BuildOptions
        from spanloom.provenance import library_versions

        rules = cut_rules(**{name: arguments[name] for name in _OF_CUTTING})
        with local_source(arguments["source"], arguments["scratch"]) as folder:
            options = BuildOptions(
                **{name: arguments[name] for name in _OF_BOTH},
                source=folder,
                source_as_given=arguments["source"],
                tokenizer=arguments["tokenizer"],
                rules=rules,
                caps=Caps(**{name: arguments[name] for name in ("max_rows", "max_rows_per_shard", "max_tokens")}),
                valid_fraction=arguments["valid_fraction"],
                renderer=arguments["renderer"],
                audit_fraction=arguments["audit_fraction"],
                check_disk=arguments["disk_check"],
            )
            progress.detail(f"{options}")
            progress.detail(", ".join(f"{name} {version}" for name, version in library_versions().items()))
            return run(options, progress, validator)


_OF_CUTTING = ("history", "train", "turns", "call_format", "mask_generation_prompt")
_OF_BOTH = (
    *("out", "shards", "max_rejects", "on_duplicate", "workers", "deep"),
    *("reader", "resume", "overwrite", "keep_work", "allow_unknown_sha"),
)
"""Options that a build has for gpt-oss and for other models."""


def cut_rules(
    history: str | None, train: str | None, turns: str | None, call_format: str | None, mask_generation_prompt: bool
) -> "CutRules | None":
    """The rules for cutting conversations; None if no option sets one. Raises SpanloomError for an invalid value."""
    from spanloom.families.harmony.contract.history import CutRules, parsed_train

    if history is None and train is None and turns is None and call_format is None and not mask_generation_prompt:
        return None
    return CutRules(
        history=history or defaults.HISTORY,
        train=parsed_train(defaults.TRAIN if train is None else train),
        turns=turns or defaults.TURNS,
        call_format=call_format or defaults.CALL_FORMAT,
        mask_generation_prompt=mask_generation_prompt,
    )


def _built_for_model(arguments: Mapping[str, Any], progress: "Progress") -> "BuildResult":
    from spanloom.conversations.source.caps import RowCaps
    from spanloom.families.models.build import BuildOptions
    from spanloom.families.models.build import build as run
    from spanloom.families.models.places import local_model
    from spanloom.families.models.source.formats import local_source

    scratch = arguments["scratch"]
    with local_source(arguments["source"], scratch) as folder, local_model(arguments["model"], scratch) as model:
        options = BuildOptions(
            **{name: arguments[name] for name in _OF_BOTH},
            source=folder,
            source_as_given=arguments["source"],
            model=model,
            model_as_given=arguments["model"],
            rules=model_rules(arguments),
            caps=RowCaps(max_rows=arguments["max_rows"], max_rows_per_shard=arguments["max_rows_per_shard"]),
        )
        progress.detail(f"{options}")
        return run(options, progress)


def model_rules(arguments: Mapping[str, Any]) -> "ModelRules":
    """The rules from options by name; `variables` are values, `stop` are texts or ids.

    Raises OptionError or ModelError for an invalid value.
    """
    from spanloom.families.models.documents.rules import ModelRules, parsed_train

    emission = arguments["emission"]
    day_of(arguments["date"])  # raises for an invalid day
    return ModelRules(
        thinking=arguments["thinking"] or model_defaults.THINKING[0],
        inline_think=arguments["inline_think"],
        boundary=arguments["boundary"] or model_defaults.BOUNDARY[0],
        stops=tuple(map(str, arguments["stop"] or ())),
        date=arguments["date"],
        variables=dict(arguments["variables"] or {}),
        train=model_defaults.SPAN_NAMES[1:] if arguments["train"] is None else parsed_train(arguments["train"]),
        # A shell passes a line feed as the two characters \n.
        control_texts=arguments["control_texts"] or model_defaults.CONTROL_TEXTS[0],
        emission=None if emission is None else emission.replace("\\n", "\n"),
        valid_fraction=arguments["valid_fraction"],
    )


def day_of(text: str | None) -> datetime | None:
    """Parses a day, such as 2025-01-31. Raises OptionError for any other text."""
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise OptionError(f"--date: {text!r} is not a date", remedy="give a day as 2025-01-31")
