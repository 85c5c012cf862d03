"""SYNTH KD and harmony_chat: `spanloom sample`, `convert-synth`, `build`, and the steps of their pipeline."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import MAKE, PIPELINE, app, counted, finish_build, make_progress, print_json, say
from spanloom.cli.models import build as for_model
from spanloom.cli.options import made_of
from spanloom.cli.steps import step
from spanloom.families.harmony import defaults
from spanloom.options.option import option, place, running
from spanloom.text import visible_line

if TYPE_CHECKING:
    from spanloom.families.harmony.convert.synth import Conversion

of_conversations = partial(option, rich_help_panel="Conversations (not SYNTH)")
of_amount = partial(option, rich_help_panel="How much, and for which split")

SourceOption = Annotated[
    str,
    place(
        "Folder of `conversations_v1`, `harmony_conversations_v1` or `synth_harmony_v1` shards with their "
        "manifest.json, or its URI. "
        "The manifest says which of them it is."
    ),
]
ShardsOption = Annotated[
    int | None,
    option(
        f"How many shards the source must have. Default: {defaults.SHARDS} of `synth_harmony_v1`, "
        "of conversations as many as its manifest lists.",
        min=1,
    ),
]
HistoryOption = Annotated[
    Literal["serve", "openai-harmony", "keep"] | None,
    of_conversations(
        "Which earlier reasoning a document shows. serve: none before the last "
        "final answer, as on servers; openai-harmony: as its render for completion does; keep: one document a "
        f"conversation, with all of it. Default: {defaults.HISTORY}."
    ),
]
TrainOption = Annotated[
    str | None,
    of_conversations(
        f"The spans that are trained, with commas; the others are context. Default: {defaults.TRAIN}.",
        metavar="SPANS",
    ),
]
TurnsOption = Annotated[
    Literal["all", "last"] | None,
    of_conversations(
        f"Train every turn, or what follows the last question that is answered. Default: {defaults.TURNS}."
    ),
]
CallFormatOption = Annotated[
    Literal["constrain", "json", "as-served"] | None,
    of_conversations(
        "The header of a call. constrain: as the model emits it, <|constrain|>json; json: as servers "
        "show it, commentary json; as-served: trained as emitted, shown before later runs as served, which takes a "
        f"document for each call. Default: {defaults.CALL_FORMAT}."
    ),
]
MaskOption = Annotated[
    bool,
    of_conversations(
        "Do not train <|start|>assistant at the start of an answer: a server writes it, not the model.",
        "--mask-generation-prompt",
    ),
]
MaxRowsOption = Annotated[int | None, of_amount("Read at most this many rows, divided evenly over the shards.", min=0)]
MaxRowsPerShardOption = Annotated[int | None, of_amount("Read at most this many rows of each shard.", min=0)]
MaxTokensOption = Annotated[
    int | None, of_amount("Write at most this many tokens, divided evenly over the shards; no document is cut.", min=0)
]
MaxRejectsOption = Annotated[
    str,
    of_amount(
        "Bad rows that each shard may set aside (under rejects/): a number, or a share such as 0.1%. "
        "0 stops at the first.",
        metavar="N|P%",
    ),
]
ValidFractionOption = Annotated[
    float, of_amount("Share of the ids held out for validation; the id alone decides.", min=0, max=1)
]
OnDuplicateOption = Annotated[
    Literal["error", "keep"], of_amount("If two rows have the same id: stop, or keep both and count them.")
]
RendererOption = Annotated[
    Literal["fast", "harmony"],
    option("fast: wrappers from a table, content through fastokens, audited; harmony: openai-harmony alone."),
]
AuditFractionOption = Annotated[
    float, option("Share of fast rows that openai-harmony renders again (at least 64 a shard; 0: none).", min=0, max=1)
]
RawOption = Annotated[str, place("Raw SYNTH: a Parquet file, or a folder of them, or a URI of either.")]
IdentityOption = Annotated[str, option('Model identity in the system message; "" for none.')]
EffortOption = Annotated[str, option("Reasoning effort.", metavar="low|medium|high")]
DateOption = Annotated[str, option('Conversation start date; "" for none.')]
CutoffOption = Annotated[str, option('Knowledge cutoff; "" for none.')]
DeveloperOption = Annotated[str | None, option("Developer instructions. Default: no developer message.")]
SeedTextOption = Annotated[
    bool, option("Add query_seed_text to the prompt; by default it stays out.", "--with-seed-text")
]
DatasetOption = Annotated[
    str | None, option("Name of the data, for manifest, card and report: `PleIAs/SYNTH`. Default: not stated.")
]
LicenseOption = Annotated[str | None, option("Its licence, for the manifest.")]


@app.command(rich_help_panel=MAKE)
def build(
    source: SourceOption = defaults.SOURCE,
    out: Annotated[
        Path | None,
        option(
            "Root of the dataset. Default: data/megatron/synth_kd_v1, harmony_chat_v1 there of conversations, or "
            "model_chat_v1 with --model; with the suffix _smoke if the run is capped."
        ),
    ] = None,
    history: HistoryOption = None,
    train: TrainOption = None,
    turns: TurnsOption = None,
    call_format: CallFormatOption = None,
    mask_generation_prompt: MaskOption = False,
    model: for_model.ModelOption = None,
    thinking: for_model.ThinkingOption = None,
    inline_think: for_model.InlineThinkOption = False,
    boundary: for_model.BoundaryOption = None,
    stop: for_model.StopsOption = None,
    date: for_model.DateOption = None,
    variables: for_model.VariablesOption = None,
    emission: for_model.EmissionOption = None,
    control_texts: for_model.ControlTextsOption = None,
    valid_fraction: ValidFractionOption = defaults.VALID_FRACTION,
    workers: options.Workers = None,
    max_rows: MaxRowsOption = defaults.MAX_ROWS,
    max_rows_per_shard: MaxRowsPerShardOption = defaults.MAX_ROWS_PER_SHARD,
    max_tokens: MaxTokensOption = defaults.MAX_TOKENS,
    max_rejects: MaxRejectsOption = defaults.MAX_REJECTS,
    on_duplicate: OnDuplicateOption = defaults.ON_DUPLICATE,
    resume: options.Resume = True,
    overwrite: Annotated[
        bool, running("Replace a dataset at --out; it is kept until the new one is validated.", "--overwrite")
    ] = False,
    keep_work: Annotated[bool, running("Leave the intermediates in OUT/.work.", "--keep-work")] = False,
    renderer: RendererOption = defaults.RENDERER,
    audit_fraction: AuditFractionOption = defaults.AUDIT_FRACTION,
    tokenizer: Annotated[
        Path | None,
        option(
            "The asset o200k_base.tiktoken, or its folder. Default: $O200K_HARMONY_VOCAB_PATH, "
            "$TIKTOKEN_ENCODINGS_BASE, ~/.cache/spanloom, then data/tokenizer."
        ),
    ] = None,
    shards: ShardsOption = None,
    deep: Annotated[
        int, option("Rows that validation renders again, by openai-harmony or the model's template.", min=0)
    ] = defaults.DEEP,
    reader: options.Reader = "auto",
    allow_unknown_sha: options.AllowUnknownSha = False,
    no_disk_check: Annotated[bool, running("Start even if the disk seems too small.", "--no-disk-check")] = False,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Build and validate a dataset of SYNTH, or of conversations, on this machine.

    Renders every conversation through openai-harmony, marks which tokens are reasoning and which are answer (of
    conversations also commentary, which holds the tool calls), splits by id, writes Megatron IndexedDatasets (tokens,
    lossmask, span) and validates them through Megatron's own reader, or an independent one where it is not installed.
    The same source and options give the same bytes, whatever the workers. Run it again after an interruption.

    Example: `spanloom build --source data/synth_harmony --out data/megatron/synth_kd_v1 --valid-fraction 0.001`
    """
    arguments = locals()
    from spanloom.api.building import built, check_options

    arguments["disk_check"] = not no_disk_check
    if variables:
        from spanloom.cli.models.commands import variables_of

        arguments["variables"] = variables_of(variables)
    check_options(arguments)
    progress = make_progress(quiet, verbose)
    progress.say(f"checking {visible_line(source)} …")
    result = built(arguments, progress)
    from spanloom.families import dataset_family

    family = dataset_family(result.manifest.content.family)
    finish_build(family, result.root, result.manifest, result.report, as_json=as_json)


@app.command(rich_help_panel=MAKE)
def convert_synth(
    raw: RawOption,
    out: Annotated[
        str, place("Folder or URI for the `synth_harmony_v1` shards; must be empty or new.")
    ] = defaults.SOURCE,
    shards: Annotated[int, option("How many shards to write.", min=1)] = defaults.SHARDS,
    assignment: Annotated[
        Literal["round-robin", "contiguous"], option("How source rows are assigned to shards.")
    ] = defaults.ASSIGNMENT,
    identity: IdentityOption = defaults.MODEL_IDENTITY,
    effort: EffortOption = defaults.REASONING_EFFORT,
    date: DateOption = defaults.START_DATE,
    cutoff: CutoffOption = defaults.KNOWLEDGE_CUTOFF,
    developer: DeveloperOption = None,
    with_seed_text: SeedTextOption = False,
    dataset: DatasetOption = None,
    license: LicenseOption = None,
    max_rows: Annotated[int | None, option("Read at most this many rows.", min=1)] = None,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Turn raw SYNTH Parquet into Harmony conversations (`synth_harmony_v1`), streaming.

    query → user, synthetic_reasoning → assistant/analysis, synthetic_answer → assistant/final. Rows that lack one of
    them are skipped and counted. The same input and options give the same bytes.

    Example: `spanloom convert-synth --raw SYNTH/ --out data/synth_harmony`
    """
    arguments = locals()
    from spanloom.families.harmony.convert.synth import run

    conversion = _conversion(arguments)
    progress = make_progress(quiet, verbose)
    with progress.stage("convert"), progress.counting("convert", "rows") as on_progress:
        written = made_of(run, arguments, conversion=conversion, on_progress=on_progress)
    if as_json:
        print_json(written)
        return
    facts = written["conversion"]
    say(f"{facts['rows_written']:,} conversations in {shards} shards under {out} ({facts['rows_read']:,} rows read)")
    say(f"skipped: {counted(facts['skipped'])}")
    note = " (the default; --identity says another)" if identity == defaults.MODEL_IDENTITY else ""
    say(f"identity in each system message: {identity or 'none'}{note}")


def _conversion(arguments: Mapping[str, Any], **others: Any) -> "Conversion":
    """The options of a conversion; an empty text means none."""
    from spanloom.families.harmony.convert.synth import Conversion

    return made_of(
        Conversion,
        arguments,
        model_identity=arguments["identity"] or None,
        reasoning_effort=arguments["effort"],
        start_date=arguments["date"] or None,
        knowledge_cutoff=arguments["cutoff"] or None,
        developer_instructions=arguments["developer"] or None,
        dataset=arguments["dataset"] or None,
        **others,
    )


@app.command(rich_help_panel=MAKE)
def sample(
    out: Annotated[str, place("Folder or URI for the sample.")] = defaults.RAW_SAMPLE,
    rows: Annotated[
        int, option(f"Number of raw rows, at most {defaults.SAMPLE_ROWS}.", min=1, max=defaults.SAMPLE_ROWS)
    ] = defaults.SAMPLE_ROWS,
    scratch: options.Scratch = None,
) -> None:
    """Write a small raw SYNTH sample of our own: many languages, code, maths, emoji, very short and long answers."""
    from spanloom.families.harmony.sample import run

    say(run(out=out, rows=rows, scratch=scratch))


@app.command(rich_help_panel=PIPELINE)
def fetch_tokenizer(
    destination: Annotated[
        Path | None,
        option(
            "Where to write the asset. Default: the user's cache, ~/.cache/spanloom; in a checkout of Spanloom, "
            "data/tokenizer/o200k_base.tiktoken."
        ),
    ] = None,
) -> None:
    """Fetch the tokenizer asset, once, at set-up. Always checked by sha256; a build itself needs no network."""
    from spanloom.tokenizers.o200k.asset import fetched_asset
    from spanloom.tokenizers.o200k.fetch import fetch_asset

    fetch_asset(destination or fetched_asset(), say=lambda line: say(line, file=sys.stderr))


@step("convert-shard", "harmony.convert.convert_shard")
def step_convert_shard(
    raw: RawOption,
    shard: Annotated[int, option("Which shard, from 0.", min=0)],
    out: Annotated[str, place("Folder or URI of the source, one for all shards.")],
    inventory: options.Inventory,
    shards: Annotated[int, option("Out of how many.", min=1)] = defaults.SHARDS,
    identity: IdentityOption = defaults.MODEL_IDENTITY,
    effort: EffortOption = defaults.REASONING_EFFORT,
    date: DateOption = defaults.START_DATE,
    cutoff: CutoffOption = defaults.KNOWLEDGE_CUTOFF,
    developer: DeveloperOption = None,
    with_seed_text: SeedTextOption = False,
    dataset: DatasetOption = None,
    license: LicenseOption = None,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> dict[str, Any]:
    """Before step 1, once a shard: the shard that `convert-synth --assignment contiguous` makes.

    Of raw objects only those with rows of this shard are read. assemble-source joins the shards.
    """
    arguments = locals()
    if shard >= shards:
        raise typer.BadParameter(f"shard {shard} of {shards}: shards count from 0")
    return {
        "conversion": _conversion(arguments, assignment="contiguous"),
        "progress": make_progress(quiet, False),
    }


@step("assemble-source", "harmony.convert.assemble_source")
def step_assemble_source(
    inventories: options.Inventories,
    out: Annotated[str, place("Folder or URI of the source with the shards.")],
    scratch: options.Scratch = None,
) -> None:
    """Before step 1: write the manifest of a source whose shards convert-shard has made."""


@step("verify-tokenizer", "harmony.steps.verify_tokenizer")
def step_verify_tokenizer(
    tokenizer: options.TokenizerPlace = None,
    asset: Annotated[str | None, place("File or URI for a copy of the verified asset.")] = None,
    report: options.Report = None,
    scratch: options.Scratch = None,
) -> None:
    """Step 1: verify the tokenizer asset and load it."""


@step("render-shard", "harmony.steps.render_shard")
def step_render_shard(
    shard: Annotated[int, option("Which shard, from 0.", min=0)],
    rendered: Annotated[str, place("File or URI for the manifest of the rendered shard, of a few KiB.")],
    work: Annotated[
        str | None,
        place("Folder or URI that the rendered shard is published below, by the hash of source and options."),
    ] = None,
    root: Annotated[
        str | None,
        place("The dataset's root. Without --work, work goes to ROOT.work; the canonical root takes no caps."),
    ] = None,
    source: SourceOption = defaults.SOURCE,
    tokenizer: options.TokenizerPlace = None,
    shards: ShardsOption = None,
    history: HistoryOption = None,
    train: TrainOption = None,
    turns: TurnsOption = None,
    call_format: CallFormatOption = None,
    mask_generation_prompt: MaskOption = False,
    renderer: RendererOption = defaults.RENDERER,
    audit_fraction: AuditFractionOption = defaults.AUDIT_FRACTION,
    max_rows: MaxRowsOption = defaults.MAX_ROWS,
    max_rows_per_shard: MaxRowsPerShardOption = defaults.MAX_ROWS_PER_SHARD,
    max_tokens: MaxTokensOption = defaults.MAX_TOKENS,
    max_rejects: MaxRejectsOption = defaults.MAX_REJECTS,
    workers: options.Workers = None,
    resume: options.Resume = True,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> dict[str, Any]:
    """Step 2, once a shard: conversations → tokens with spans. Caps are those of the whole run.

    Of the source only manifest.json and this shard are read. A second try resumes after what the first published;
    `spanloom work clear` removes it.
    """
    arguments = locals()
    from spanloom.api.building import cut_rules
    from spanloom.families.harmony.contract.caps import Caps

    if shards is not None and shard >= shards:
        raise typer.BadParameter(f"shard {shard} of {shards}: shards count from 0")
    return {
        "rules": cut_rules(history, train, turns, call_format, mask_generation_prompt),
        "caps": made_of(Caps, arguments),
        "progress": make_progress(quiet, False),
    }


@step("assemble-split", "harmony.steps.assemble_split")
def step_assemble_split(
    rendered: Annotated[
        list[str], place("The manifest of a rendered shard; give one for each shard, in order.", "--rendered")
    ],
    split: Annotated[str, place("File or URI for the split.")],
    valid_fraction: ValidFractionOption = defaults.VALID_FRACTION,
    on_duplicate: OnDuplicateOption = defaults.ON_DUPLICATE,
    scratch: options.Scratch = None,
) -> None:
    """Step 3: look for repeated ids, and count which rows are valid."""


@step("write-indexed", "harmony.steps.write_indexed")
def step_write_indexed(
    rendered: Annotated[str, place("File or URI of the manifest of the rendered shard.")],
    root: options.Root,
    inventory: options.Inventory,
    valid_fraction: ValidFractionOption = defaults.VALID_FRACTION,
    resume: options.Resume = True,
    scratch: options.Scratch = None,
) -> None:
    """Step 4, once a shard: write tokens, lossmask and span as IndexedDatasets, shifted to labels.

    Every file is created, never overwritten. A root at a URI is claimed for this build first (claim.json).
    """


@step("assemble-manifest", "harmony.steps.assemble_manifest")
def step_assemble_manifest(
    inventories: options.Inventories,
    split: Annotated[str, place("File or URI of the split.")],
    root: options.Root,
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
) -> None:
    """Step 5: write manifest.pending.json. It is no dataset before validate-alignment has passed."""
