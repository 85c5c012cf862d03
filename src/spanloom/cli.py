"""The `spanloom` command: one function call a subcommand, and the one place where errors become exit codes.

Exit codes: 0 fine · 1 stopped with an error · 2 wrong usage · 4 validation found something · 130 interrupted.
stdout carries results (a table, or JSON with `--json`), stderr everything else.
"""

import errno
import json
import sys
import traceback
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from spanloom.errors import EXIT_FAILURE, EXIT_FINDINGS, EXIT_INTERRUPTED, SpanloomError
from spanloom.kfp_io import Executor, split_arguments

if TYPE_CHECKING:  # imported where they are used: `--help` should not wait for pyarrow and openai-harmony
    from spanloom.findings import Report
    from spanloom.report.progress import Progress

app = typer.Typer(
    name="spanloom",
    help="Training-ready token datasets whose supervision is aligned token by token.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
step_app = typer.Typer(no_args_is_help=True, help="Run one step of the pipeline, as its container does.")
manifest_app = typer.Typer(no_args_is_help=True, help="Look at dataset manifests.")
app.add_typer(step_app, name="step")
app.add_typer(manifest_app, name="manifest")

executor_here: ContextVar[Executor | None] = ContextVar("executor_here", default=None)
"""What Kubeflow said of the task that this process is; None outside a pipeline."""

SourceOption = Annotated[
    str, typer.Option(metavar="PLACE", help="Folder of `synth_harmony_v1` shards with their manifest.json, or its URI.")
]
ScratchOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for what is staged from URIs and made for them; kept when the command fails, to go on with. "
        "Default: $SPANLOOM_SCRATCH, else a temporary folder."
    ),
]
ReportOption = Annotated[
    str | None, typer.Option(metavar="PLACE", help="File or URI for the report (JSON); replaces one that is there.")
]
TokenizerPlaceOption = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="The asset o200k_base.tiktoken, its folder, or a URI of either. Default: $O200K_HARMONY_VOCAB_PATH, "
        "$TIKTOKEN_ENCODINGS_BASE, then data/tokenizer.",
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(
        help="The asset o200k_base.tiktoken, or its folder. Default: $O200K_HARMONY_VOCAB_PATH, "
        "$TIKTOKEN_ENCODINGS_BASE, then data/tokenizer."
    ),
]
ShardsOption = Annotated[int, typer.Option(help="How many shards the source must have.", min=1)]
WorkersOption = Annotated[
    int | None,
    typer.Option(help="Worker processes. Default: one for each core; `build` takes fewer for few rows.", min=1),
]
MaxRowsOption = Annotated[
    int | None, typer.Option(help="Read at most so many rows, divided evenly over the shards.", min=0)
]
MaxRowsPerShardOption = Annotated[int | None, typer.Option(help="Read at most so many rows of each shard.", min=0)]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(help="Write at most so many tokens, divided evenly over the shards; no document is cut.", min=0),
]
MaxRejectsOption = Annotated[
    str,
    typer.Option(
        metavar="N|P%",
        help="Bad rows that each shard may set aside (under rejects/): a number, or a share such as 0.1%. "
        "0 stops at the first.",
    ),
]
ValidFractionOption = Annotated[
    float, typer.Option(help="Share of the ids held out for validation; the id alone decides.", min=0, max=1)
]
OnDuplicateOption = Annotated[
    Literal["error", "keep"], typer.Option(help="A synth_id that stands twice: stop, or keep both and count.")
]
RendererOption = Annotated[
    Literal["fast", "harmony"],
    typer.Option(
        help="fast: wrappers from a table, content through gigatoken, audited; harmony: openai-harmony alone."
    ),
]
AuditFractionOption = Annotated[
    float,
    typer.Option(
        help="Share of fast rows that openai-harmony renders again (at least 64 a shard; 0: none).", min=0, max=1
    ),
]
ResumeOption = Annotated[
    bool, typer.Option(help="Go on where an interrupted run stopped, or discard what it left and begin anew.")
]
AllowUnknownShaOption = Annotated[
    bool, typer.Option("--allow-unknown-sha", help="Build although the git SHA of this Spanloom is not known.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: options, versions, tracebacks.")]
RootArgument = Annotated[
    str, typer.Argument(metavar="ROOT", help="Root of a dataset, a folder or a URI.", show_default=False)
]
LocalRootArgument = Annotated[
    Path, typer.Argument(metavar="ROOT", help="Root of a dataset, a folder.", show_default=False)
]
RootOption = Annotated[str, typer.Option(metavar="PLACE", help="Root of the dataset, a folder or a URI.")]


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

    progress = _progress(quiet, verbose)
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
        _print_json(result_json(result.root, result.manifest, result.report))
    else:
        show_result(Console(), result.root, result.manifest, result.report)
    _exit_by(result.report)


@app.command()
def validate(
    root: RootArgument,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="The folder or URI it was built from: sampled rows are looked up and checked."
        ),
    ] = None,
    deep: Annotated[
        int | None,
        typer.Option(help="Source rows to render again through openai-harmony. Default: 64 with --source.", min=0),
    ] = None,
    tokenizer: TokenizerOption = None,
    report_file: Annotated[Path | None, typer.Option("--report", help="Write the report here, as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report here, as a page.")] = None,
    scratch: ScratchOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check a dataset: files against the manifest, every token and label, the split. Writes nothing to the dataset.

    Reads through Megatron's own IndexedDataset and reads spans off the tokens alone. Exits with 4 on any finding.
    Of a dataset at a URI everything is staged to scratch and checked there.

    Example: `spanloom validate data/megatron/synth_kd_v1 --source data/synth_harmony --deep 1000 --html report.html`
    """
    from spanloom import manifest
    from spanloom.megatron.indexed import load_reader
    from spanloom.places import local_root, local_source
    from spanloom.report.facts import dataset_facts
    from spanloom.report.summary import findings_text, result_json
    from spanloom.report.views import write_report
    from spanloom.steps.validate_alignment import validate_dataset

    if deep and source is None:
        raise typer.BadParameter("--deep needs --source: the rows to render again come from there")
    progress = _progress(quiet, verbose)
    with ExitStack() as places:
        folder = places.enter_context(local_root(root, scratch))
        source_folder = None if source is None else places.enter_context(local_source(source, scratch))
        written = manifest.read_any(folder)
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
        _print_json({**result, "root": root, "manifest": result["manifest"] and f"{root.rstrip('/')}/manifest.json"})
    else:
        Console().print(findings_text(report), soft_wrap=True, highlight=False)
    _exit_by(report)


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

    progress = _progress(quiet, verbose)
    with progress.stage("fetch"), progress.counting("fetch", "bytes") as on_progress:
        fetched = run(uri, directory, on_progress)
    counts = {name: getattr(fetched, name) for name in ("files_fetched", "bytes_fetched", "files_kept", "bytes_kept")}
    if as_json:
        _print_json({"root": str(directory), "uri": uri, **counts})
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
    dataset: Annotated[str, typer.Option(help="Name of the data, for the manifest.")] = "PleIAs/SYNTH",
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
        dataset=dataset,
        license=license,
    )
    progress = _progress(quiet, verbose)
    with progress.stage("convert"), progress.counting("convert", "rows") as on_progress:
        written = convert_synth(
            raw=raw, out=out, conversion=conversion, max_rows=max_rows, on_progress=on_progress, scratch=scratch
        )
    if as_json:
        _print_json(written)
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
    """Fetch the tokenizer asset, once, at set-up: the only command that uses the network. Always checked by sha256."""
    from spanloom.harmony.fetch import fetch_asset

    fetch_asset(destination, say=lambda line: print(line, file=sys.stderr))


@app.command()
def inspect(
    root: LocalRootArgument,
    document: Annotated[
        list[str] | None,
        typer.Argument(help="Documents by place: SPLIT/SHARD/SEQUENCE, such as `train/0/17`.", show_default=False),
    ] = None,
    synth_id: Annotated[list[str] | None, typer.Option("--id", help="A document by its synth_id; repeatable.")] = None,
    pick: Annotated[
        Literal["random", "first", "longest", "shortest"], typer.Option(help="Which, when none is named.")
    ] = "random",
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="How many. Default: 1, or 20 with --html.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other documents.", min=0)] = 0,
    split: Annotated[str | None, typer.Option(help="Only of this split.")] = None,
    shard: Annotated[int | None, typer.Option(help="Only of this shard.", min=0)] = None,
    language: Annotated[str | None, typer.Option(help="Only in this language.")] = None,
    exercise: Annotated[str | None, typer.Option(help="Only of this exercise.")] = None,
    no_reasoning: Annotated[bool, typer.Option("--no-reasoning", help="Only documents without reasoning.")] = False,
    special_text: Annotated[
        bool, typer.Option("--special-text", help="Only documents whose text holds the likes of <|end|>.")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show where tokens end.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Show token ids.")] = False,
    labels: Annotated[bool, typer.Option("--labels", help="Show which label each position learns.")] = False,
    max_tokens: Annotated[
        int, typer.Option(help="Show at most so many tokens of a document, first and last; 0: all.", min=0)
    ] = 2000,
    html: Annotated[Path | None, typer.Option(help="Write one page that stands alone.")] = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Look at documents: what is read, what is learned as reasoning and what as answer, token by token.

    Context is dimmed, special tokens are visible, and a mark at the margin says the span without colours too.
    What is in the text is shown, never obeyed: escapes, bidi controls, HTML.

    Example: `spanloom inspect data/megatron/synth_kd_v1 --language de --labels`
    """
    from spanloom import manifest
    from spanloom.harmony.tokenizer import locate_asset
    from spanloom.harmony.vocabulary import load_vocabulary
    from spanloom.inspection import Selection, pick_documents
    from spanloom.report.documents_page import documents_page
    from spanloom.report.terminal import Shown, print_documents
    from spanloom.storage import write_atomically

    content = manifest.read_any(root)["content"]
    selection = Selection(
        addresses=tuple(document or ()),
        synth_ids=tuple(synth_id or ()),
        pick=pick,
        count=count or (1 if html is None else 20),
        seed=seed,
        split=split,
        shard=shard,
        language=language,
        exercise=exercise,
        without="analysis" if no_reasoning else None,
        special_text=special_text,
    )
    documents = pick_documents(root, content, selection, load_vocabulary(locate_asset(tokenizer)))
    if not documents:
        raise SpanloomError("no document passes these filters", where=str(root))
    shown = Shown(tokens=tokens, ids=ids, labels=labels, most=max_tokens)
    if html is None:
        print_documents(Console(highlight=False), documents, shown)
    else:
        there = sum(counts["sequences"] for counts in content["totals"]["splits"].values())
        write_atomically(html, documents_page(root.resolve().name, documents, sequences=there, shown=shown).encode())
        print(html)


@app.command()
def stats(
    root: LocalRootArgument,
    by: Annotated[
        str, typer.Option(help="Group by any of split, shard, language, exercise, with commas; empty: all in one.")
    ] = "split",
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout.")] = False,
) -> None:
    """Count documents and tokens by split, shard, language, exercise.

    Example: `spanloom stats data/megatron/synth_kd_v1 --by split,language`
    """
    from spanloom import manifest
    from spanloom.report.stats import stats_csv, stats_lines, stats_table
    from spanloom.report.terminal import print_whole
    from spanloom.statistics import collect

    names = tuple(name.strip() for name in by.split(",") if name.strip())
    groups = collect(root, manifest.read(root)["content"], [names])[names]
    if as_json:
        _print_json(stats_lines(names, groups))
    elif as_csv:
        print(stats_csv(stats_lines(names, groups)), end="")
    else:
        print_whole(Console(highlight=False), stats_table(names, groups))


@app.command()
def export(
    root: LocalRootArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the export, empty or new. Default: ROOT_parquet, beside ROOT."),
    ] = None,
    to: Annotated[Literal["parquet"], typer.Option(help="Form of the export.")] = "parquet",
    tokens_per_file: Annotated[int, typer.Option(help="Begin a new file after so many tokens.", min=1)] = 64 << 20,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the dataset as Parquet for Hugging Face `datasets` and TRL, streaming.

    Columns, all token-aligned: input_ids, labels (-100 where nothing is trained), loss_mask, assistant_masks, span_id,
    synth_id.

    Example: `spanloom export data/megatron/synth_kd_v1 --to parquet --out data/synth_kd_parquet`
    """
    from spanloom import manifest
    from spanloom.export import export_parquet

    content = manifest.read(root)["content"]
    out = out or root.resolve().with_name(f"{root.resolve().name}_{to}")
    with _progress(quiet, False).counting("export", "documents") as on_progress:
        exported = export_parquet(root, content, out, tokens_per_file=tokens_per_file, on_progress=on_progress)
    if as_json:
        _print_json(exported)
        return
    documents = sum(counts["sequences"] for counts in exported["splits"].values())
    print(f"{documents:,} documents in {len(exported['files']):,} files under {out}")


@app.command("blend")
def print_blend(
    root: Annotated[Path, typer.Argument(help="Root of a dataset.", show_default=False)],
    mount: Annotated[
        str | None, typer.Option(help="Where the trainer sees the dataset. Default: ROOT, as an absolute path.")
    ] = None,
    sequence_length: Annotated[
        int, typer.Option(help="Tokens in a sample: shards that give none are left out.", min=2)
    ] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Write the file for Megatron's `--per-split-data-args-path` here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what Megatron's data flags take: the shards of train and valid, weighted by their tokens.

    Several prefixes without weights would stop after one epoch. `--data-path` takes one distribution for all splits,
    so it gets train alone; `--per-split-data-args-path` takes both.

    Example: `spanloom blend data/megatron/synth_kd_v1 --sequence-length 4096 --out blend.json`
    """
    from spanloom.megatron.blend import blend, per_split
    from spanloom.megatron.shard import read_content
    from spanloom.storage import write_atomically

    content = read_content(root)
    there = mount or root.resolve()
    splits = [split for split, counts in content["totals"]["splits"].items() if counts["tokens"]]
    blends = {split: blend(content, there, split, sequence_length=sequence_length) for split in splits}
    for left_out in (prefix for each in blends.values() for prefix in each.left_out):
        print(f"left out, too short for a sample: {left_out}", file=sys.stderr)
    text = json.dumps(per_split(blends), indent=2) + "\n"
    if out is not None:
        write_atomically(out, text.encode())
    if as_json:
        print(text, end="")
        return
    if "train" in blends:
        print(f"--data-path {' '.join(blends['train'].flat())} --split 100,0,0")
    if out is not None:
        print(f"--per-split-data-args-path {out}")
    else:
        for split, each in blends.items():
            print(f"--{split}-data-path {' '.join(each.flat())}")


@manifest_app.command("show")
def manifest_show(
    place: Annotated[str, typer.Argument(help="A dataset root or a manifest file, or a URI of either.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a dataset is made of."""
    from spanloom.places import read_manifest
    from spanloom.report.summary import show_manifest

    written = read_manifest(place)
    if as_json:
        _print_json(written)
    else:
        show_manifest(Console(), written)


@manifest_app.command("diff")
def manifest_diff(
    a: Annotated[str, typer.Argument(help="A dataset root or a manifest file, or a URI of either.")],
    b: Annotated[str, typer.Argument(help="Another.")],
    as_json: JsonOption = False,
) -> None:
    """Show where the `content` of two manifests differs. Exits with 1 when it does, like diff."""
    from spanloom import manifest
    from spanloom.places import read_manifest

    differences = list(manifest.diff(read_manifest(a)["content"], read_manifest(b)["content"]))
    if as_json:
        _print_json([{"path": path, "a": before, "b": after} for path, before, after in differences])
    else:
        for path, before, after in differences:
            print(f"{path}\n  - {json.dumps(before, ensure_ascii=False)}\n  + {json.dumps(after, ensure_ascii=False)}")
        if not differences:
            print("same content")
    raise typer.Exit(1 if differences else 0)


@step_app.command("verify-tokenizer")
def step_verify_tokenizer(
    tokenizer: TokenizerPlaceOption = None,
    asset: Annotated[
        str | None, typer.Option(metavar="PLACE", help="File or URI for a copy of the verified asset.")
    ] = None,
    report: ReportOption = None,
    scratch: ScratchOption = None,
) -> None:
    """Step 1: verify the tokenizer asset and load it."""
    from spanloom.places import verify_tokenizer

    _finish_step(verify_tokenizer(tokenizer=tokenizer, asset=asset, report=report, scratch=scratch))


@step_app.command("render-shard")
def step_render_shard(
    shard: Annotated[int, typer.Option(help="Which shard, from 0.", min=0)],
    rendered: Annotated[str, typer.Option(metavar="PLACE", help="Folder or URI for the rendered shard.")],
    ids: Annotated[str, typer.Option(metavar="PLACE", help="Folder or URI for its ids.")],
    source: SourceOption = "data/synth_harmony",
    tokenizer: TokenizerPlaceOption = None,
    shards: ShardsOption = 4,
    renderer: RendererOption = "fast",
    audit_fraction: AuditFractionOption = 0.001,
    max_rows: MaxRowsOption = None,
    max_rows_per_shard: MaxRowsPerShardOption = None,
    max_tokens: MaxTokensOption = None,
    max_rejects: MaxRejectsOption = "0",
    workers: WorkersOption = None,
    resume: ResumeOption = True,
    scratch: ScratchOption = None,
    quiet: QuietOption = False,
) -> None:
    """Step 2, once a shard: conversations → tokens with spans. Caps are those of the whole run.

    Of the source only manifest.json and this shard are read.
    """
    from spanloom.harmony.caps import Caps
    from spanloom.places import render_shard

    if shard >= shards:
        raise typer.BadParameter(f"shard {shard} of {shards}: shards count from 0")
    _finish_step(
        render_shard(
            source=source,
            shard=shard,
            rendered=rendered,
            ids=ids,
            tokenizer=tokenizer,
            shards=shards,
            renderer=renderer,
            audit_fraction=audit_fraction,
            caps=Caps(max_rows=max_rows, max_rows_per_shard=max_rows_per_shard, max_tokens=max_tokens),
            max_rejects=max_rejects,
            workers=workers,
            resume=resume,
            progress=_progress(quiet, False),
            scratch=scratch,
        )
    )


@step_app.command("assemble-split")
def step_assemble_split(
    ids: Annotated[
        list[str], typer.Option(metavar="PLACE", help="The ids of a shard; give one for each shard, in order.")
    ],
    split: Annotated[str, typer.Option(metavar="PLACE", help="Folder or URI for the split.")],
    valid_fraction: ValidFractionOption = 0.001,
    on_duplicate: OnDuplicateOption = "error",
    scratch: ScratchOption = None,
) -> None:
    """Step 3: decide which rows are valid, and look for ids that stand twice."""
    from spanloom.places import assemble_split

    _finish_step(
        assemble_split(ids=ids, split=split, valid_fraction=valid_fraction, on_duplicate=on_duplicate, scratch=scratch)
    )


@step_app.command("write-indexed")
def step_write_indexed(
    rendered: Annotated[str, typer.Option(metavar="PLACE", help="Folder or URI of the rendered shard.")],
    ids: Annotated[str, typer.Option(metavar="PLACE", help="Folder or URI of its ids.")],
    split: Annotated[str, typer.Option(metavar="PLACE", help="Folder or URI of the split.")],
    root: RootOption,
    inventory: Annotated[str, typer.Option(metavar="PLACE", help="File or URI for the shard's inventory.")],
    resume: ResumeOption = True,
    scratch: ScratchOption = None,
) -> None:
    """Step 4, once a shard: write tokens, lossmask and span as IndexedDatasets, shifted to labels.

    Every file is created, never overwritten. A root at a URI is claimed for this build first (claim.json).
    """
    from spanloom.places import write_indexed

    _finish_step(
        write_indexed(
            rendered=rendered, ids=ids, split=split, root=root, inventory=inventory, resume=resume, scratch=scratch
        )
    )


@step_app.command("assemble-manifest")
def step_assemble_manifest(
    inventory: Annotated[
        list[str], typer.Option(metavar="PLACE", help="A shard's inventory; give one for each shard, in order.")
    ],
    root: RootOption,
    allow_unknown_sha: AllowUnknownShaOption = False,
    scratch: ScratchOption = None,
) -> None:
    """Step 5: write manifest.pending.json. It is no dataset before validate-alignment has passed."""
    from spanloom.places import assemble_manifest

    _finish_step(
        assemble_manifest(inventories=inventory, root=root, allow_unknown_sha=allow_unknown_sha, scratch=scratch)
    )


@step_app.command("validate-alignment")
def step_validate_alignment(
    root: RootOption,
    source: Annotated[str | None, typer.Option(metavar="PLACE", help="The folder or URI it was built from.")] = None,
    deep: Annotated[int, typer.Option(help="Source rows to render again; needs --source.", min=0)] = 64,
    tokenizer: TokenizerPlaceOption = None,
    report: ReportOption = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="File or URI for the report (a page); replaces one that is there."),
    ] = None,
    scratch: ScratchOption = None,
    quiet: QuietOption = False,
) -> None:
    """Step 6: validate, and turn the pending manifest into the manifest when nothing was found. Exits with 4 else."""
    from spanloom.megatron.indexed import load_reader
    from spanloom.places import validate_alignment

    load_reader()
    with _progress(quiet, False).counting("validate", "documents") as on_progress:
        result = validate_alignment(
            root=root,
            source=source,
            deep=deep if source is not None else 0,
            tokenizer=tokenizer,
            report=report,
            html=html,
            on_progress=on_progress,
            scratch=scratch,
        )
    _finish_step(result.as_dict())
    _exit_by(result)


def main() -> None:
    """Runs the command and turns errors into messages and exit codes."""
    try:
        arguments, executor = split_arguments(sys.argv[1:])
        executor_here.set(executor)
        app(arguments)
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            print("interrupted: finished parts are kept; run the same command again to go on", file=sys.stderr)
        raise
    except SpanloomError as error:
        _fail(str(error))
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space and run the same command again: finished parts are kept",
            errno.EDQUOT: "your quota is used up: free some space and run the same command again",
            errno.EACCES: "give a place that you may write to",
            errno.EPERM: "give a place that you may write to",
            errno.EROFS: "the file system is mounted read-only: give another place",
        }
        if error.errno not in remedies and not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
        where = error.filename or "(unknown)"
        remedy = remedies.get(error.errno or 0, "check the path")
        _fail(str(SpanloomError(error.strerror or str(error), where=str(where), remedy=remedy)))


def _fail(message: str) -> None:
    Console(stderr=True).print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exc()
    sys.exit(EXIT_FAILURE)


def _exit_by(report: "Report") -> None:
    if not report.clean:
        raise typer.Exit(EXIT_FINDINGS)


def _finish_step(result: dict[str, Any]) -> None:
    """Prints what a step made, and tells Kubeflow where it runs there."""
    _print_json(result)
    if executor := executor_here.get():
        executor.write(result)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _progress(quiet: bool, verbose: bool) -> "Progress":
    from spanloom.report.progress import Mode, Progress

    return Progress(mode=Mode.SILENT if quiet else None, verbose=verbose)


if __name__ == "__main__":
    main()
