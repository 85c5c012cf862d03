"""The steps of the trace family: `spanloom step ingest-traces` and the others."""

import json
from typing import Annotated, Any, Literal

import typer

from spanloom.cli.app import finish_step, step_app
from spanloom.cli.options import AllowUnknownShaOption, ReportOption, RootOption, ScratchOption, place
from spanloom.cli.traces_options import (
    ControlTokensOption,
    CreatedAtOption,
    FormatOption,
    IdsOption,
    LimitOption,
    NameOption,
    StrategyOption,
    ValidFractionOption,
    VersionOption,
    build_request,
    export_options,
)
from spanloom.errors import EXIT_FINDINGS
from spanloom.families.traces import defaults

StorePlaceOption = Annotated[str, place("The store: a file, a URI of one, or a database's URL.", "--store")]
ManifestPlaceOption = Annotated[str, place("File or URI of the dataset's manifest.json.", "--manifest")]
ExportPlaceOption = Annotated[str | None, place("File or URI of the export in this format.")]
Switch = Literal["0", "1"]


@step_app.command("ingest-traces")
def step_ingest(
    source: Annotated[str, place("JSON Lines: a file, a folder of them, or a URI.")],
    store: Annotated[str, place("File or URI for the store, always a new one.")],
    source_name: Annotated[str, typer.Option(help="What meta.source says of these traces.")],
    ids: IdsOption = defaults.IDS,
    strict: Annotated[Switch, typer.Option(help="1: a line that is no trace stops.")] = "0",
    created_at: CreatedAtOption = None,
    scratch: ScratchOption = None,
) -> None:
    """Traces, step 1: JSON Lines → a store in a file."""
    from spanloom.families.traces.steps import ingest_traces

    result = ingest_traces.run(
        source=source,
        store=store,
        source_name=source_name,
        ids=ids,
        strict=strict == "1",
        created_at=created_at or None,
        scratch=scratch,
    )
    finish_step(result, ingest_traces.artifact_metadata)


@step_app.command("build-traces")
def step_build(
    store: StorePlaceOption,
    manifest: Annotated[str, place("File or URI for the manifest.")],
    name: NameOption,
    version: VersionOption,
    filters: Annotated[
        str, typer.Option("--filters", metavar="JSON", help="A JSON object of keys of meta and their values.")
    ] = "{}",
    limit: LimitOption = defaults.LIMIT,
    strategy: StrategyOption = defaults.STRATEGY,
    seed: Annotated[str, typer.Option(help="Of a random sample; empty for none.")] = "",
    reproducible: Annotated[
        Switch, typer.Option(help="1: the build's id and times follow from what is built.")
    ] = defaults.STEP_REPRODUCIBLE,
    scratch: ScratchOption = None,
) -> None:
    """Traces, step 2: a selection of the store → a manifest."""
    from spanloom.families.traces.steps import build_traces

    try:
        wanted, number = json.loads(filters), int(seed) if seed else None
    except ValueError as fault:
        raise typer.BadParameter(f"--filters is a JSON object and --seed a number: {fault}") from None
    request = build_request(
        dataset_name=name,
        dataset_version=version,
        filters=wanted,
        limit=limit,
        selection_strategy=strategy,
        seed=number,
    )
    result = build_traces.run(
        store=store, manifest=manifest, request=request, reproducible=reproducible == "1", scratch=scratch
    )
    finish_step(result, build_traces.artifact_metadata)


@step_app.command("export-traces")
def step_export(
    store: StorePlaceOption,
    manifest: ManifestPlaceOption,
    out: Annotated[str, place("File or URI for the export.")],
    form: FormatOption,
    control_tokens: ControlTokensOption = defaults.CONTROL_TOKENS,
    protect_metadata: Annotated[Switch, typer.Option(help="0: clashing keys of meta win.")] = "1",
    scratch: ScratchOption = None,
) -> None:
    """Traces, step 3, once a format: a dataset → one export."""
    from spanloom.families.traces.steps import export_traces

    options = export_options(protect_metadata == "1", control_tokens, False, None)
    result = export_traces.run(store=store, manifest=manifest, out=out, form=form, options=options, scratch=scratch)
    finish_step(result, export_traces.artifact_metadata)


@step_app.command("validate-traces")
def step_validate(
    trace: ExportPlaceOption = None,
    tunix_sft: ExportPlaceOption = None,
    training_example: ExportPlaceOption = None,
    manifest: Annotated[str | None, place("File or URI of the dataset's manifest.json.")] = None,
    report: ReportOption = None,
    scratch: ScratchOption = None,
) -> None:
    """Traces, step 4: exports held against their rules and their manifest. Exits with 4 on errors."""
    from spanloom.families.traces.steps import validate_traces

    given = {"trace": trace, "tunix_sft": tunix_sft, "training_example": training_example}
    exports: dict[Any, str] = {form: place for form, place in given.items() if place is not None}
    if not exports:
        raise typer.BadParameter("give at least one export")
    result = validate_traces.run(exports=exports, manifest=manifest, report=report, scratch=scratch)
    finish_step(result, validate_traces.artifact_metadata)
    if not result["clean"]:
        raise typer.Exit(EXIT_FINDINGS)


@step_app.command("tokenize-traces")
def step_tokenize(
    store: StorePlaceOption,
    manifest: ManifestPlaceOption,
    tokenizer: Annotated[str, place("A tokenizer.json, a file or a URI.")],
    root: RootOption,
    asset: Annotated[str | None, place("For a copy of the tokenizer.")] = None,
    form: Annotated[
        Literal["tunix_sft", "training_example"], typer.Option("--format", help="Which export the tokens are of.")
    ] = defaults.TOKENIZE_FORMAT,
    eod: Annotated[str, typer.Option(metavar="TOKEN", help="The token that ends a document; empty: the usual.")] = "",
    control_tokens: ControlTokensOption = defaults.TOKENIZE_CONTROL_TOKENS,
    valid_fraction: ValidFractionOption = defaults.VALID_FRACTION,
    allow_unknown_sha: AllowUnknownShaOption = False,
    scratch: ScratchOption = None,
) -> None:
    """Traces, step 5: a dataset → tokens, loss mask and spans; no dataset before validate-alignment has passed."""
    from spanloom.families.traces.steps import tokenize_traces

    rules = tokenize_traces.TokenizeRules(
        form=form,
        eod=eod or None,
        options=export_options(defaults.PROTECT_METADATA, control_tokens, False, None),
        valid_fraction=valid_fraction,
    )
    result = tokenize_traces.run(
        store=store,
        dataset=manifest,
        root=root,
        tokenizer=tokenizer,
        rules=rules,
        asset=asset,
        allow_unknown_sha=allow_unknown_sha,
        scratch=scratch,
    )
    finish_step(result, tokenize_traces.artifact_metadata)
