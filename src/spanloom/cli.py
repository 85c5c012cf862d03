"""The `spanloom` command: one function call a subcommand, and the one place where errors become exit codes.

Exit codes: 0 fine · 1 stopped with an error · 2 wrong usage · 4 validation found something · 130 interrupted.
stdout carries results (a table, or JSON with `--json`), stderr everything else.
"""

import errno
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from spanloom.errors import EXIT_FAILURE, EXIT_FINDINGS, EXIT_INTERRUPTED, SpanloomError

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

SourceOption = Annotated[Path, typer.Option(help="Folder of `synth_harmony_v1` shards with their manifest.json.")]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(
        help="The asset o200k_base.tiktoken, or its folder. Default: $O200K_HARMONY_VOCAB_PATH, "
        "$TIKTOKEN_ENCODINGS_BASE, then data/tokenizer."
    ),
]
ShardsOption = Annotated[int, typer.Option(help="How many shards the source must have.", min=1)]
WorkersOption = Annotated[int | None, typer.Option(help="Worker processes. Default: one for each core.", min=1)]
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
RootArgument = Annotated[Path, typer.Argument(help="Root of a dataset.", show_default=False)]


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
    source: SourceOption = Path("data/synth_harmony"),
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
    from spanloom.provenance import library_versions
    from spanloom.report.summary import result_json, show_result

    options = BuildOptions(
        source=source,
        out=out,
        tokenizer=tokenizer,
        shards=shards,
        valid_fraction=valid_fraction,
        caps=Caps(max_rows=max_rows, max_rows_per_shard=max_rows_per_shard, max_tokens=max_tokens),
        max_rejects=max_rejects,
        on_duplicate=on_duplicate,
        renderer=renderer,
        audit_fraction=audit_fraction,
        workers=workers or os.cpu_count() or 1,
        deep=deep,
        resume=resume,
        overwrite=overwrite,
        keep_work=keep_work,
        allow_unknown_sha=allow_unknown_sha,
        check_disk=not no_disk_check,
    )
    progress = _progress(quiet, verbose)
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
        Path | None, typer.Option(help="The folder it was built from: sampled rows are looked up and checked.")
    ] = None,
    deep: Annotated[
        int | None,
        typer.Option(help="Source rows to render again through openai-harmony. Default: 64 with --source.", min=0),
    ] = None,
    tokenizer: TokenizerOption = None,
    report_file: Annotated[Path | None, typer.Option("--report", help="Write the report here, as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report here, as a page.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check a dataset: files against the manifest, every token and label, the split. Writes nothing to the dataset.

    Reads through Megatron's own IndexedDataset and reads spans off the tokens alone. Exits with 4 on any finding.

    Example: `spanloom validate data/megatron/synth_kd_v1 --source data/synth_harmony --deep 1000 --html report.html`
    """
    from spanloom import manifest
    from spanloom.megatron.indexed import load_reader
    from spanloom.report.facts import dataset_facts
    from spanloom.report.summary import findings_text, result_json
    from spanloom.report.views import write_report
    from spanloom.steps.validate_alignment import validate_dataset

    if deep and source is None:
        raise typer.BadParameter("--deep needs --source: the rows to render again come from there")
    written = manifest.read_any(root)
    load_reader()
    progress = _progress(quiet, verbose)
    with progress.stage("validate"), progress.counting("validate", "documents") as on_progress:
        report = validate_dataset(
            root,
            source=source,
            deep=64 if deep is None and source is not None else deep or 0,
            tokenizer=tokenizer,
            on_progress=on_progress,
        )
    if report_file is not None or html is not None:
        facts = dataset_facts(root, written, report, timings=progress.timings)
        write_report(facts, json_file=report_file, html_file=html)
    if as_json:
        _print_json(result_json(root, written, report))
    else:
        Console().print(findings_text(report), soft_wrap=True, highlight=False)
    _exit_by(report)


@app.command()
def convert_synth(
    raw: Annotated[Path, typer.Option(help="Raw SYNTH: a Parquet file, or a folder of them.")],
    out: Annotated[Path, typer.Option(help="Folder for the `synth_harmony_v1` shards; must be empty or new.")] = Path(
        "data/synth_harmony"
    ),
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
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Turn raw SYNTH Parquet into Harmony conversations (`synth_harmony_v1`), streaming.

    query → user, synthetic_reasoning → assistant/analysis, synthetic_answer → assistant/final. Rows that lack one of
    them are skipped and counted. The same input and options give the same bytes.

    Example: `spanloom convert-synth --raw SYNTH/ --out data/synth_harmony`
    """
    from spanloom.harmony.synth import Conversion, convert_synth

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
        written = convert_synth(raw=raw, out=out, conversion=conversion, max_rows=max_rows, on_progress=on_progress)
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
    root: RootArgument,
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
    root: RootArgument,
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
    root: RootArgument,
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


@manifest_app.command("show")
def manifest_show(
    path: Annotated[Path, typer.Argument(help="A dataset root, or a manifest file.")], as_json: JsonOption = False
) -> None:
    """Show what a dataset is made of."""
    from spanloom import manifest
    from spanloom.report.summary import show_manifest

    written = manifest.read(path)
    if as_json:
        _print_json(written)
    else:
        show_manifest(Console(), written)


@manifest_app.command("diff")
def manifest_diff(
    a: Annotated[Path, typer.Argument(help="A dataset root, or a manifest file.")],
    b: Annotated[Path, typer.Argument(help="Another.")],
    as_json: JsonOption = False,
) -> None:
    """Show where the `content` of two manifests differs. Exits with 1 when it does, like diff."""
    from spanloom import manifest

    differences = list(manifest.diff(manifest.read(a)["content"], manifest.read(b)["content"]))
    if as_json:
        _print_json([{"path": path, "a": before, "b": after} for path, before, after in differences])
    else:
        for path, before, after in differences:
            print(f"{path}\n  - {json.dumps(before, ensure_ascii=False)}\n  + {json.dumps(after, ensure_ascii=False)}")
        if not differences:
            print("same content")
    raise typer.Exit(1 if differences else 0)


@step_app.command("verify-tokenizer")
def step_verify_tokenizer(tokenizer: TokenizerOption = None) -> None:
    """Step 1: verify the tokenizer asset and load it."""
    from dataclasses import asdict

    from spanloom.steps.verify_tokenizer import verify_tokenizer

    _print_json({**asdict(verified := verify_tokenizer(tokenizer)), "path": str(verified.path)})


@step_app.command("render-shard")
def step_render_shard(
    shard: Annotated[int, typer.Option(help="Which shard, from 0.", min=0)],
    rendered: Annotated[Path, typer.Option(help="Folder for the rendered shard.")],
    ids: Annotated[Path, typer.Option(help="Folder for its ids.")],
    source: SourceOption = Path("data/synth_harmony"),
    tokenizer: TokenizerOption = None,
    shards: ShardsOption = 4,
    renderer: RendererOption = "fast",
    audit_fraction: AuditFractionOption = 0.001,
    max_rows: MaxRowsOption = None,
    max_rows_per_shard: MaxRowsPerShardOption = None,
    max_tokens: MaxTokensOption = None,
    max_rejects: MaxRejectsOption = "0",
    workers: WorkersOption = None,
    resume: ResumeOption = True,
    quiet: QuietOption = False,
) -> None:
    """Step 2, once a shard: conversations → tokens with spans. Caps are those of the whole run."""
    from spanloom.harmony.caps import Caps
    from spanloom.harmony.source import open_source
    from spanloom.steps.render_shard import render_shard
    from spanloom.workers import Counters, process_pool

    counters = Counters(shards)
    caps = Caps(max_rows=max_rows, max_rows_per_shard=max_rows_per_shard, max_tokens=max_tokens)
    rows = [0] * shards
    if shard < shards:
        share = caps.share(shard, shards).rows
        there = open_source(source, shards=shards).shards[shard].rows
        rows[shard] = there if share is None else min(there, share)
    else:
        raise typer.BadParameter(f"shard {shard} of {shards}: shards count from 0")
    with (
        process_pool(workers or os.cpu_count() or 1, counters) as pool,
        _progress(quiet, False).rendering(counters, rows),
    ):
        _print_json(
            render_shard(
                source=source,
                shard=shard,
                rendered=rendered,
                ids=ids,
                pool=pool,
                tokenizer=tokenizer,
                shards=shards,
                renderer=renderer,
                audit_fraction=audit_fraction,
                caps=caps,
                max_rejects=max_rejects,
                resume=resume,
            )
        )


@step_app.command("assemble-split")
def step_assemble_split(
    ids: Annotated[list[Path], typer.Option(help="The ids folder of a shard; give one for each shard, in order.")],
    split: Annotated[Path, typer.Option(help="Folder for the split.")],
    valid_fraction: ValidFractionOption = 0.001,
    on_duplicate: OnDuplicateOption = "error",
) -> None:
    """Step 3: decide which rows are valid, and look for ids that stand twice."""
    from spanloom.steps.assemble_split import assemble_split

    _print_json(assemble_split(ids=ids, split=split, valid_fraction=valid_fraction, on_duplicate=on_duplicate))


@step_app.command("write-indexed")
def step_write_indexed(
    rendered: Annotated[Path, typer.Option(help="Folder of the rendered shard.")],
    ids: Annotated[Path, typer.Option(help="Folder of its ids.")],
    split: Annotated[Path, typer.Option(help="Folder of the split.")],
    root: Annotated[Path, typer.Option(help="Root of the dataset.")],
    inventory: Annotated[Path, typer.Option(help="File for the shard's inventory.")],
    resume: ResumeOption = True,
) -> None:
    """Step 4, once a shard: write tokens, lossmask and span as IndexedDatasets, shifted to labels."""
    from spanloom.steps.write_indexed import write_indexed

    _print_json(write_indexed(rendered=rendered, ids=ids, split=split, root=root, inventory=inventory, resume=resume))


@step_app.command("assemble-manifest")
def step_assemble_manifest(
    inventory: Annotated[list[Path], typer.Option(help="A shard's inventory; give one for each shard, in order.")],
    root: Annotated[Path, typer.Option(help="Root of the dataset.")],
    allow_unknown_sha: AllowUnknownShaOption = False,
) -> None:
    """Step 5: write manifest.pending.json. It is no dataset before validate-alignment has passed."""
    from spanloom.steps.assemble_manifest import assemble_manifest

    _print_json(assemble_manifest(inventories=inventory, root=root, allow_unknown_sha=allow_unknown_sha))


@step_app.command("validate-alignment")
def step_validate_alignment(
    root: Annotated[Path, typer.Option(help="Root of the dataset.")],
    source: Annotated[Path | None, typer.Option(help="The folder it was built from.")] = None,
    deep: Annotated[int, typer.Option(help="Source rows to render again; needs --source.", min=0)] = 64,
    tokenizer: TokenizerOption = None,
    report: Annotated[Path | None, typer.Option(help="File for the report (JSON).")] = None,
    html: Annotated[Path | None, typer.Option(help="File for the report (a page).")] = None,
    quiet: QuietOption = False,
) -> None:
    """Step 6: validate, and turn the pending manifest into the manifest when nothing was found. Exits with 4 else."""
    from spanloom.megatron.indexed import load_reader
    from spanloom.steps.validate_alignment import validate_alignment

    load_reader()
    with _progress(quiet, False).counting("validate", "documents") as on_progress:
        result = validate_alignment(
            root=root,
            source=source,
            deep=deep if source is not None else 0,
            tokenizer=tokenizer,
            report_file=report,
            html_file=html,
            on_progress=on_progress,
        )
    _print_json(result.as_dict())
    _exit_by(result)


def main() -> None:
    """Runs the command and turns errors into messages and exit codes."""
    try:
        app()
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


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _progress(quiet: bool, verbose: bool) -> "Progress":
    from spanloom.report.progress import Mode, Progress

    return Progress(mode=Mode.SILENT if quiet else None, verbose=verbose)


if __name__ == "__main__":
    main()
