"""The steps of the trace family: `spanloom step ingest-traces` and the others."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from spanloom.cli import options
from spanloom.cli.declared import switch
from spanloom.cli.options import DealtTask
from spanloom.cli.steps import step
from spanloom.cli.traces import options as traces_options
from spanloom.families.traces import defaults
from spanloom.options.option import names_in, option, place
from spanloom.options.shared import OnDuplicate

StorePlaceOption = Annotated[str, place("The store: a file, a URI of one, or a database's URL.", "--store")]
ManifestPlaceOption = Annotated[str, place("File or URI of the dataset's manifest.json.", "--manifest")]
ExportPlaceOption = Annotated[str | None, place("File or URI of the export in this format.")]


@step("ingest-traces", "families.traces.steps.ingest_traces")
def step_ingest(
    source: Annotated[str, place("Records as `traces ingest` reads them: a file, a folder, or a URI.")],
    store: Annotated[str, place("File or URI for the store, always a new one.")],
    source_name: Annotated[str, option("Value of meta.source of these traces.")],
    ids: traces_options.Ids = defaults.IDS,
    strict: Annotated[bool, switch("1: stop at a line that is not a trace.")] = False,
    created_at: traces_options.CreatedAt = None,
    maps: Annotated[
        list[str],
        option(
            "Which keys are prompt, answer and steps; empty: the form of a file's first record.",
            "--map",
            metavar="PAIRS",
            takes=str,
            given="",
            read=names_in,
        ),
    ] = [],  # noqa: B006 - typer reads it
    max_step_characters: Annotated[
        int, option("How long a step may be; 0: 20,000 characters.", min=0, max=1_000_000)
    ] = 0,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Traces, step 1: records of any known form → a store in a file."""
    return {"created_at": created_at or None, "max_step_characters": max_step_characters or None}


@step("build-traces", "families.traces.steps.build_traces", own=("filters", "seed"))
def step_build(
    *,
    store: StorePlaceOption,
    manifest: Annotated[str, place("File or URI for the manifest.")],
    selection: traces_options.SelectionOptions,
    filters: Annotated[str, option("A JSON object of keys of meta and their values.", metavar="JSON")] = "{}",
    seed: Annotated[str, option("Of a random sample; empty for none.")] = "",
    reproducible: Annotated[bool, switch("1: the build's id and times follow from what is built.")] = (
        defaults.STEP_REPRODUCIBLE == "1"
    ),
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Traces, step 2: a selection of the store → a manifest."""
    try:
        wanted, number = json.loads(filters), int(seed) if seed else None
    except ValueError as fault:
        raise typer.BadParameter(f"--filters is a JSON object and --seed a number: {fault}") from None
    return {"request": traces_options.build_request(selection, filters=wanted, seed=number)}


@step("export-traces", "families.traces.steps.export_traces", own=("control_tokens", "protect_metadata"))
def step_export(
    store: StorePlaceOption,
    manifest: ManifestPlaceOption,
    out: Annotated[str, place("File or URI for the export.")],
    form: traces_options.FormatOption,
    control_tokens: traces_options.ControlTokens = defaults.CONTROL_TOKENS,
    protect_metadata: Annotated[bool, switch("0: clashing keys of meta win.")] = True,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Traces, step 3, once a format: a dataset → one export."""
    from spanloom.families.traces.export.lines import ExportOptions

    return {"options": ExportOptions(control_tokens=control_tokens, protect_metadata=protect_metadata)}


@step("validate-traces", "families.traces.steps.validate_traces", own=("trace", "tunix_sft", "training_example"))
def step_validate(
    trace: ExportPlaceOption = None,
    tunix_sft: ExportPlaceOption = None,
    training_example: ExportPlaceOption = None,
    manifest: Annotated[str | None, place("File or URI of the dataset's manifest.json.")] = None,
    report: options.Report = None,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Traces, step 4: exports checked against their rules and their manifest. Exits with 4 on errors."""
    places = {"trace": trace, "tunix_sft": tunix_sft, "training_example": training_example}
    exports = {form: place for form, place in places.items() if place is not None}
    if not exports:
        raise typer.BadParameter("give at least one export")
    return {"exports": exports}


@dataclass(frozen=True, kw_only=True)
class TokenizeTask(DealtTask):
    """As `TokenizeRunning` has it."""

    on_duplicate: OnDuplicate = "keep"


@step(
    "tokenize-traces",
    "families.traces.steps.tokenize_traces",
    own=("manifest", "form", "eod", "control_tokens", "valid_fraction"),
)
def step_tokenize(
    *,
    store: StorePlaceOption,
    manifest: ManifestPlaceOption,
    tokenizer: Annotated[str, place("A tokenizer.json, a file or a URI.")],
    root: options.Root,
    asset: Annotated[str | None, place("For a copy of the tokenizer.")] = None,
    form: traces_options.TokenizeFormat = defaults.TOKENIZE_FORMAT,
    eod: Annotated[str, option("The token that ends a document; empty: the usual.", metavar="TOKEN")] = "",
    control_tokens: traces_options.TokenizeControls = defaults.TOKENIZE_CONTROL_TOKENS,
    valid_fraction: traces_options.ValidFraction = defaults.VALID_FRACTION,
    task: TokenizeTask,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Traces, step 5: a dataset → tokens, loss mask and spans; no dataset before validate-alignment has passed."""
    from spanloom.families.traces.export.lines import ExportOptions
    from spanloom.families.traces.steps.tokenize_traces import TokenizeRules

    exported = ExportOptions(control_tokens=control_tokens)
    rules = TokenizeRules(
        form=form,
        eod=eod or None,
        options=exported,
        valid_fraction=valid_fraction,
        max_rows=task.max_rows,
        longest=task.longest,
    )
    return {"task": task.as_task(), "shards": task.shards, "dataset": manifest, "rules": rules}
