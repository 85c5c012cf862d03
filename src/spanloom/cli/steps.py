"""`spanloom step …`: one step of the pipeline, as its container runs it."""

from typing import Annotated, Literal

import typer

from spanloom.cli.app import exit_by, finish_step, make_progress, step_app
from spanloom.cli.options import (
    AllowUnknownShaOption,
    AuditFractionOption,
    BlockSizeOption,
    ChatShardsOption,
    ChatTokenizerPlaceOption,
    ContextLengthOption,
    GeneratorOnErrorOption,
    MaxRejectsOption,
    MaxRowsOption,
    MaxRowsPerShardOption,
    MaxTokensOption,
    OnDuplicateOption,
    OnErrorOption,
    QuietOption,
    RendererOption,
    ReportOption,
    ResumeOption,
    RootOption,
    ScratchOption,
    ShardsOption,
    SourceOption,
    TokenizerPlaceOption,
    ValidFractionOption,
    WorkersOption,
)


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

    finish_step(verify_tokenizer(tokenizer=tokenizer, asset=asset, report=report, scratch=scratch))


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
    finish_step(
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
            progress=make_progress(quiet, False),
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

    finish_step(
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

    finish_step(
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

    finish_step(
        assemble_manifest(inventories=inventory, root=root, allow_unknown_sha=allow_unknown_sha, scratch=scratch)
    )


@step_app.command("validate-alignment")
def step_validate_alignment(
    root: RootOption,
    source: Annotated[
        str | None, typer.Option(metavar="PLACE", help="The folder, file or URI it was built from.")
    ] = None,
    deep: Annotated[
        int,
        typer.Option(help="Source rows to render again, or blocks of each shard to pack again; needs --source.", min=0),
    ] = 64,
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
    with make_progress(quiet, False).counting("validate", "documents") as on_progress:
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
    finish_step(result.as_dict())
    exit_by(result)


@step_app.command("generate-chat")
def step_generate_chat(
    source: Annotated[
        str, typer.Option(metavar="PLACE", help="Conversations: a .jsonl or .parquet file, a folder of them, or a URI.")
    ],
    out: Annotated[
        str, typer.Option(metavar="PLACE", help="File or URI for the transcripts: .parquet, .jsonl or .txt.")
    ],
    tokenizer: ChatTokenizerPlaceOption = None,
    context_len: ContextLengthOption = 1024,
    on_error: GeneratorOnErrorOption = None,
    report: ReportOption = None,
    scratch: ScratchOption = None,
    quiet: QuietOption = False,
) -> None:
    """Packed chat, step 1: conversations → transcripts that fit, and a report of what does not."""
    from spanloom.places import generate_chat
    from spanloom.steps.generate_chat import GeneratorRules

    with make_progress(quiet, False).counting("generate", "conversations") as on_progress:
        result = generate_chat(
            source=source,
            out=out,
            tokenizer=tokenizer,
            rules=GeneratorRules(context_len=context_len, on_error=on_error),
            report=report,
            on_progress=on_progress,
            scratch=scratch,
        )
    finish_step(result)


@step_app.command("pack-chat")
def step_pack_chat(
    transcripts: Annotated[str, typer.Option(metavar="PLACE", help="Transcripts: a file, a folder of them, or a URI.")],
    root: RootOption,
    tokenizer: ChatTokenizerPlaceOption = None,
    asset: Annotated[
        str | None, typer.Option(metavar="PLACE", help="File or URI for a copy of the tokenizer, for validation.")
    ] = None,
    block_size: BlockSizeOption = 1024,
    post_training: Annotated[
        Literal["0", "1"],
        typer.Option(
            envvar="POST_TRAINING", help="1: loss on the assistant's complete spans alone; 0: on every token."
        ),
    ] = "0",
    strict_user: Annotated[
        Literal["0", "1"], typer.Option(help="1: no loss after a user span that a block's border cut.")
    ] = "0",
    keep_lossless: Annotated[Literal["0", "1"], typer.Option(help="0: drop blocks without any loss.")] = "1",
    pad_tail: Annotated[
        Literal["0", "1"], typer.Option(help="1: pad the last, shorter block of each shard instead of dropping it.")
    ] = "0",
    shards: ChatShardsOption = 1,
    on_error: OnErrorOption = "raise",
    workers: WorkersOption = None,
    allow_unknown_sha: AllowUnknownShaOption = False,
    scratch: ScratchOption = None,
    quiet: QuietOption = False,
) -> None:
    """Packed chat, step 2: transcripts → blocks under the dataset root, and manifest.pending.json.

    It is no dataset before validate-alignment has passed. Switches take a value, as a pipeline's parameters have one.
    Every file is created, never overwritten. A root at a URI is claimed for this dataset first (claim.json).
    """
    from spanloom.places import pack_chat
    from spanloom.steps.pack_chat import PackingRules

    rules = PackingRules(
        block_size=block_size,
        post_training=post_training == "1",
        strict_user=strict_user == "1",
        keep_lossless=keep_lossless == "1",
        pad_tail=pad_tail == "1",
        shards=shards,
    )
    with make_progress(quiet, False).counting("pack", "bytes") as on_progress:
        result = pack_chat(
            transcripts=transcripts,
            root=root,
            rules=rules,
            tokenizer=tokenizer,
            asset=asset,
            workers=workers,
            on_error=on_error,
            allow_unknown_sha=allow_unknown_sha,
            on_progress=on_progress,
            scratch=scratch,
        )
    finish_step(result)
