"""Commands that make, check and bring datasets."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from spanloom.cli.app import app, exit_by, make_progress, print_json
from spanloom.cli.options import (
    AllowUnknownShaOption,
    AuditFractionOption,
    DatasetTokenizerOption,
    JsonOption,
    MaxRejectsOption,
    MaxRowsOption,
    MaxRowsPerShardOption,
    MaxTokensOption,
    OnDuplicateOption,
    QuietOption,
    RendererOption,
    ResumeOption,
    RootArgument,
    ScratchOption,
    ShardsOption,
    SourceOption,
    TokenizerOption,
    ValidFractionOption,
    VerboseOption,
    WorkersOption,
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and the git SHA, and exit.")] = False,
) -> None:
    if version:
        from spanloom import __version__
        from spanloom.provenance import git_sha

        print(f"spanloom {__version__} ({git_sha()})")
        raise typer.Exit


@app.command()
def build(
    source: SourceOption = "data/synth_harmony",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Root of the dataset. Default: data/megatron/synth_kd_v1, or synth_kd_v1_smoke when the run is capped."
        ),
    ] = None,
    valid_fraction: ValidFractionOption = 0.001,
    workers: WorkersOption = None,
    max_rows: MaxRowsOption = None,
    max_rows_per_shard: MaxRowsPerShardOption = None,
    max_tokens: MaxTokensOption = None,
    max_rejects: MaxRejectsOption = "0",
    on_duplicate: OnDuplicateOption = "error",
    resume: ResumeOption = True,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a dataset at --out; it is kept until the new one is validated."),
    ] = False,
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Leave the intermediates in OUT/.work.")] = False,
    renderer: RendererOption = "fast",
    audit_fraction: AuditFractionOption = 0.001,
    tokenizer: TokenizerOption = None,
    shards: ShardsOption = 4,
    deep: Annotated[int, typer.Option(help="Rows that validation renders again through openai-harmony.", min=0)] = 64,
    allow_unknown_sha: AllowUnknownShaOption = False,
    no_disk_check: Annotated[bool, typer.Option("--no-disk-check", help="Begin even if the disk looks small.")] = False,
    scratch: ScratchOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Build and validate a SYNTH KD dataset on this machine.

    Renders every conversation through openai-harmony, marks which tokens are reasoning and which are answer, splits by
    id, writes Megatron IndexedDatasets (tokens, lossmask, span) and validates them through Megatron's own reader.
    The same source and options give the same bytes, whatever the workers. Run it again after an interruption.

    Example: `spanloom build --source data/synth_harmony --out data/megatron/synth_kd_v1 --valid-fraction 0.001`
    """
    from spanloom.build import BuildOptions
    from spanloom.build import build as run
    from spanloom.harmony.caps import Caps
    from spanloom.places import local_source
    from spanloom.provenance import library_versions
    from spanloom.report.summary import result_json, show_result

    progress = make_progress(quiet, verbose)
    with local_source(source, scratch) as source_folder:
        options = BuildOptions(
            source=source_folder,
            source_as_given=source,
            out=out,
            tokenizer=tokenizer,
            shards=shards,
            valid_fraction=valid_fraction,
            caps=Caps(max_rows=max_rows, max_rows_per_shard=max_rows_per_shard, max_tokens=max_tokens),
            max_rejects=max_rejects,
            on_duplicate=on_duplicate,
            renderer=renderer,
            audit_fraction=audit_fraction,
            workers=workers,
            deep=deep,
            resume=resume,
            overwrite=overwrite,
            keep_work=keep_work,
            allow_unknown_sha=allow_unknown_sha,
            check_disk=not no_disk_check,
        )
        progress.detail(f"{options}")
        progress.detail(", ".join(f"{name} {found}" for name, found in library_versions().items()))
        result = run(options, progress)
    if as_json:
        print_json(result_json(result.root, result.manifest, result.report))
    else:
        show_result(Console(), result.root, result.manifest, result.report)
    exit_by(result.report)


@app.command()
def validate(
    root: RootArgument,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="The folder, file or URI it was built from: samples of it are built again and compared.",
        ),
    ] = None,
    deep: Annotated[
        int | None,
        typer.Option(
            help="Source rows to render again through openai-harmony; of packed chat, blocks of each shard to pack "
            "again. Default: 64 with --source.",
            min=0,
        ),
    ] = None,
    tokenizer: DatasetTokenizerOption = None,
    report_file: Annotated[Path | None, typer.Option("--report", help="Write the report here, as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report here, as a page.")] = None,
    scratch: ScratchOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check a dataset: files against the manifest, every token and label, the split. Writes nothing to the dataset.

    Reads through Megatron's own IndexedDataset and works the loss mask out of the tokens alone. Exits with 4 on any
    finding.
    Of a dataset at a URI everything is staged to scratch and checked there.

    Example: `spanloom validate data/megatron/synth_kd_v1 --source data/synth_harmony --deep 1000 --html report.html`
    """
    from spanloom import manifest
    from spanloom.megatron.indexed import load_reader
    from spanloom.places import local_input, local_root
    from spanloom.report.facts import dataset_facts
    from spanloom.report.summary import findings_text, result_json
    from spanloom.report.views import write_report
    from spanloom.steps.validate_alignment import validate_dataset

    if deep and source is None:
        raise typer.BadParameter("--deep needs --source: the rows to render again come from there")
    progress = make_progress(quiet, verbose)
    with ExitStack() as places:
        folder = places.enter_context(local_root(root, scratch))
        written = manifest.read_any(folder)
        family = written["content"]["family"]
        source_folder = None if source is None else places.enter_context(local_input(source, family, scratch))
        load_reader()
        with progress.stage("validate"), progress.counting("validate", "documents") as on_progress:
            report = validate_dataset(
                folder,
                source=source_folder,
                deep=64 if deep is None and source is not None else deep or 0,
                tokenizer=tokenizer,
                on_progress=on_progress,
            )
        result = result_json(folder, written, report)
        if report_file is not None or html is not None:
            facts = dataset_facts(folder, written, report, timings=progress.timings)
            write_report(facts, json_file=report_file, html_file=html)
    if as_json:
        print_json({**result, "root": root, "manifest": result["manifest"] and f"{root.rstrip('/')}/manifest.json"})
    else:
        Console().print(findings_text(report), soft_wrap=True, highlight=False)
        if report.clean and result["manifest"] is None:
            print("but it is not finished, and no dataset yet: run the build again, which promotes its manifest")
    exit_by(report)


@app.command()
def fetch(
    uri: Annotated[str, typer.Argument(metavar="URI", help="Root of a dataset: gs://bucket/path or s3://bucket/path.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for it; made when it is not there.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring a dataset from a bucket to this machine, every file checked by the manifest's size and sha256.

    manifest.json is read first (a dataset that was not validated is refused) and written last: until it stands in DIR
    there is no dataset there. Run the same command again after an interruption: files that stand are kept, a broken
    download goes on where it stopped. Nothing is overwritten.

    gs:// takes Google's application-default credentials, s3:// those of AWS (and AWS_ENDPOINT_URL for other stores).
    SPANLOOM_STORAGE_DEADLINE says for how many seconds a store may fail before this gives up (300).

    Example: `spanloom fetch gs://my-bucket/synth_kd_v1 /data/synth_kd_v1`
    """
    from spanloom.fetch import fetch as run

    progress = make_progress(quiet, verbose)
    with progress.stage("fetch"), progress.counting("fetch", "bytes") as on_progress:
        fetched = run(uri, directory, on_progress)
    counts = {name: getattr(fetched, name) for name in ("files_fetched", "bytes_fetched", "files_kept", "bytes_kept")}
    if as_json:
        print_json({"root": str(directory), "uri": uri, **counts})
    else:
        print(
            f"{directory}: {fetched.files_fetched} files fetched ({fetched.bytes_fetched / 1e6:,.1f} MB), "
            f"{fetched.files_kept} kept ({fetched.bytes_kept / 1e6:,.1f} MB), all sizes and sha256 as the manifest says"
        )


@app.command()
def convert_synth(
    raw: Annotated[
        str, typer.Option(metavar="PLACE", help="Raw SYNTH: a Parquet file, or a folder of them, or a URI of either.")
    ],
    out: Annotated[
        str,
        typer.Option(metavar="PLACE", help="Folder or URI for the `synth_harmony_v1` shards; must be empty or new."),
    ] = "data/synth_harmony",
    shards: Annotated[int, typer.Option(help="How many shards to write.", min=1)] = 4,
    assignment: Annotated[
        Literal["round-robin", "contiguous"], typer.Option(help="How source rows are dealt to shards.")
    ] = "round-robin",
    identity: Annotated[
        str, typer.Option(help='Model identity in the system message; "" for none.')
    ] = "You are ChatGPT, a large language model trained by OpenAI.",
    effort: Annotated[str, typer.Option(metavar="low|medium|high", help="Reasoning effort.")] = "high",
    date: Annotated[str, typer.Option(help='Conversation start date; "" for none.')] = "2026-01-01",
    cutoff: Annotated[str, typer.Option(help='Knowledge cutoff; "" for none.')] = "2024-06",
    developer: Annotated[
        str | None, typer.Option(help="Developer instructions. Default: no developer message.")
    ] = None,
    with_seed_text: Annotated[
        bool, typer.Option("--with-seed-text", help="Add query_seed_text to the prompt; by default it stays out.")
    ] = False,
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the data, for manifest, card and report: `PleIAs/SYNTH`. Default: not stated."),
    ] = None,
    license: Annotated[str | None, typer.Option(help="Its licence, for the manifest.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Read at most so many rows.", min=1)] = None,
    scratch: ScratchOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Turn raw SYNTH Parquet into Harmony conversations (`synth_harmony_v1`), streaming.

    query → user, synthetic_reasoning → assistant/analysis, synthetic_answer → assistant/final. Rows that lack one of
    them are skipped and counted. The same input and options give the same bytes.

    Example: `spanloom convert-synth --raw SYNTH/ --out data/synth_harmony`
    """
    from spanloom.harmony.synth import Conversion
    from spanloom.places import convert_synth

    conversion = Conversion(
        model_identity=identity or None,
        reasoning_effort=effort,
        start_date=date or None,
        knowledge_cutoff=cutoff or None,
        developer_instructions=developer or None,
        with_seed_text=with_seed_text,
        shards=shards,
        assignment=assignment,
        dataset=dataset or None,
        license=license,
    )
    progress = make_progress(quiet, verbose)
    with progress.stage("convert"), progress.counting("convert", "rows") as on_progress:
        written = convert_synth(
            raw=raw, out=out, conversion=conversion, max_rows=max_rows, on_progress=on_progress, scratch=scratch
        )
    if as_json:
        print_json(written)
        return
    done = written["conversion"]
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in done["skipped"].items()) or "none"
    print(f"{done['rows_written']:,} conversations in {shards} shards under {out} ({done['rows_read']:,} rows read)")
    print(f"skipped: {skipped}")


@app.command()
def sample(
    out: Annotated[Path, typer.Option(help="Folder for the sample.")] = Path("data/synth_raw_sample"),
    rows: Annotated[int, typer.Option(help="How many raw rows.", min=1)] = 240,
) -> None:
    """Write a small raw SYNTH sample of our own: many languages, code, maths, emoji, very short and long answers."""
    from spanloom.harmony.sample import write_sample

    print(write_sample(out, rows))


@app.command()
def fetch_tokenizer(
    destination: Annotated[Path, typer.Option(help="Where the asset goes.")] = Path(
        "data/tokenizer/o200k_base.tiktoken"
    ),
) -> None:
    """Fetch the tokenizer asset, once, at set-up. Always checked by sha256; a build itself needs no network."""
    from spanloom.o200k.fetch import fetch_asset

    fetch_asset(destination, say=lambda line: print(line, file=sys.stderr))
