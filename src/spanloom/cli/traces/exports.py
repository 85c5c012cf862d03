"""`spanloom traces export`, `validate`, `tokenize`, `serve`: what is made of stored traces."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spanloom.cli import options
from spanloom.cli.app import Printed, finish_build, traces_app
from spanloom.cli.outputs import file_option, folder_option
from spanloom.cli.traces import options as traces_options
from spanloom.families.traces import defaults
from spanloom.options.option import option
from spanloom.options.shared import OverwriteFile


@traces_app.command("export")
@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a dataset as JSON Lines or Parquet. A file appears only when it is complete.

    Example: `spanloom traces export math-v1 --format tunix_sft --out math.jsonl`
    """

    key: traces_options.Key
    form: traces_options.FormatOption = defaults.FORMAT
    out: Annotated[str, option("A file, .parquet for Parquet; - is stdout.", metavar="FILE|-", writes=True)] = "-"
    tokenizer: Annotated[
        Path | None, option("A tokenizer.json: adds input_ids and loss_mask to each row.", metavar="FILE")
    ] = None
    offsets: Annotated[bool, option("With --tokenizer: the place of each token.", "--offsets")] = False
    max_length: Annotated[int | None, option("With --tokenizer: truncate rows to this many tokens.", min=1)] = None
    control_tokens: traces_options.ControlTokens = defaults.CONTROL_TOKENS
    lines: traces_options.LineOptions
    protect_metadata: Annotated[
        bool,
        option(
            "created_at and the like are the exporter's; clashing keys of meta move to metadata.meta. Without: "
            "meta wins.",
            "--protect-metadata/--no-protect-metadata",
        ),
    ] = defaults.PROTECT_METADATA
    overwrite: OverwriteFile = False
    places: traces_options.Places
    printed: Printed


@traces_app.command("validate")
@dataclass(frozen=True, kw_only=True)
class Validate:
    """Check an exported file. Exits with 4 on errors; warnings alone do not count."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export: JSON Lines.")]
    form: Annotated[traces_options.Format, option("Which of the exports it is.", "--format")]
    manifest: Annotated[Path | None, option("manifest.json of its dataset: order and ids are compared.")] = None
    report: Annotated[Path | None, file_option("Write all findings here, as JSON.", metavar="OUT.json")] = None
    as_json: options.Json = False


@traces_app.command("tokenize")
def tokenize(
    *,
    key: traces_options.Key,
    tokenizer: Annotated[Path, option("A tokenizer.json; it is copied into the root.", metavar="FILE")],
    out: Annotated[Path, folder_option("Root of the token dataset, a folder.", metavar="ROOT")],
    form: traces_options.TokenizeFormat = defaults.TOKENIZE_FORMAT,
    eod: traces_options.Eod = None,
    control_tokens: traces_options.TokenizeControls = defaults.TOKENIZE_CONTROL_TOKENS,
    lines: traces_options.LineOptions,
    valid_fraction: traces_options.ValidFraction = defaults.VALID_FRACTION,
    weight: Annotated[
        str | None,
        option(
            "A key of meta, such as reward or rating, whose number becomes the weight of the document.", metavar="KEY"
        ),
    ] = None,
    running: traces_options.TokenizeRunning,
    places: traces_options.Places,
    printed: Printed,
) -> None:
    """Make a validated token dataset: tokens, loss mask, and the spans reasoning and answer.

    Example: `spanloom traces tokenize math-v1 --tokenizer tokenizer.json --out data/megatron/math_v1`
    """
    with places.opened() as opened:
        from spanloom.families.traces import dataset as family
        from spanloom.families.traces.export.lines import ExportOptions
        from spanloom.families.traces.steps.tokenize_traces import TokenizeRules
        from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens

        exported = ExportOptions(
            control_tokens=control_tokens, sort_steps=lines.sort_steps, system=lines.system or None
        )
        rules = TokenizeRules(form=form, eod=eod, options=exported, valid_fraction=valid_fraction, weight=weight)
        options = TokenBuildOptions(
            root=places.folder,
            key=key,
            tokenizer=tokenizer,
            out=out,
            rules=rules,
            **vars(running),
        )
        result = build_tokens(opened, options, printed.progress())
    finish_build(family, out, result.manifest, result.report, as_json=printed.as_json)


@traces_app.command("serve")
def serve(
    *,
    serving: options.Serving,
    ingest_dir: Annotated[
        Path | None, option("Files are ingested from below this folder alone. Default: ROOT/ingest.", metavar="DIR")
    ] = None,
    trace_max_bytes: Annotated[
        int,
        option(
            "The largest body of one trace.",
            envvar="TRACE_MAX_BYTES",
            min=defaults.TRACE_BYTES[0],
            max=defaults.TRACE_BYTES[1],
        ),
    ] = defaults.TRACE_MAX_BYTES,
    batch_max_bytes: Annotated[int, option("The largest body of a batch.", min=1024)] = defaults.BATCH_MAX_BYTES,
    max_step_characters: traces_options.MaxStepCharacters = None,
    places: traces_options.Places,
) -> None:
    """Serve traces, datasets and exports over HTTP, with pages to read them, and the routes of `toolcalls serve`.

    /docs lists all requests.

    Needs `pip install 'spanloom[serve]'`. Logs are lines of JSON on stderr; no payload is logged.
    """
    from spanloom.families.toolcalls.service.routes import body_limits, toolcalls_router
    from spanloom.families.traces.service.application import traces_application

    token = serving.token()
    with places.opened(create=True) as opened:
        if max_step_characters is not None:
            opened.remember_step_limit(max_step_characters)
        application = traces_application(
            opened,
            places.folder,
            ingest_dir=ingest_dir,
            token=token,
            trace_max_bytes=trace_max_bytes,
            batch_max_bytes=batch_max_bytes,
            guards=serving.guards(),
            more_routers=[toolcalls_router()],
            more_limits=body_limits(),
        )
        serving.run(application, f"traces of {opened.called}")
