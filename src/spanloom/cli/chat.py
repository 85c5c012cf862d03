"""`spanloom chat …`: conversations → transcripts → packed blocks."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spanloom.cli.app import app, exit_by, make_progress, print_json
from spanloom.cli.options import (
    AllowUnknownShaOption,
    BlockSizeOption,
    ChatShardsOption,
    ChatTokenizerOption,
    JsonOption,
    KeepLosslessOption,
    OnErrorOption,
    PadTailOption,
    PostTrainingOption,
    QuietOption,
    ScratchOption,
    StrictUserOption,
    VerboseOption,
)

chat_app = typer.Typer(
    no_args_is_help=True, help="Packed chat: transcripts, and blocks with loss on the answers alone."
)
app.add_typer(chat_app, name="chat")


@chat_app.command("pack")
def pack(
    source: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PLACE",
            help="Transcripts: a .parquet, .jsonl or .txt file, or a folder of them; or a URI.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Root of the dataset, new or empty.")],
    tokenizer: ChatTokenizerOption = None,
    block_size: BlockSizeOption = 1024,
    post_training: PostTrainingOption = False,
    strict_user: StrictUserOption = False,
    keep_lossless: KeepLosslessOption = True,
    pad_tail: PadTailOption = False,
    shards: ChatShardsOption = 1,
    on_error: OnErrorOption = "raise",
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that tokenise. Default: one for each core, fewer for little text.", min=1),
    ] = None,
    deep: Annotated[
        int, typer.Option(help="Blocks of each shard that validation packs again, token by token.", min=0)
    ] = 64,
    allow_unknown_sha: AllowUnknownShaOption = False,
    scratch: ScratchOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Tokenise transcripts, pack them into blocks, and validate the dataset.

    With --post-training loss lies on the assistant's complete spans alone, a block that begins inside a user span
    opens with the system span and USER, and a user span longer than a block gives up its conversation. Without it every
    token counts and the stream is simply cut. The same transcripts and options give the same bytes, whatever the
    workers. Run it again after an interruption.

    Example: `spanloom chat pack --input transcripts.parquet --out data/chat --tokenizer tokenizer.json --post-training`
    """
    from spanloom.build_chat import PackOptions, build_chat
    from spanloom.places import local_transcripts
    from spanloom.report.summary import result_json, show_result
    from spanloom.steps.pack_chat import PackingRules

    progress = make_progress(quiet, verbose)
    rules = PackingRules(
        block_size=block_size,
        post_training=post_training,
        strict_user=strict_user,
        keep_lossless=keep_lossless,
        pad_tail=pad_tail,
        shards=shards,
    )
    if post_training:
        progress.say("post-training: loss on the assistant's complete spans alone")
    else:
        progress.say("post-training is off: plain packing, every token counts (--post-training or POST_TRAINING=1)")
    with local_transcripts(source, scratch) as transcripts:
        result = build_chat(
            PackOptions(
                transcripts=transcripts,
                root=out,
                tokenizer=tokenizer,
                rules=rules,
                source_as_given=source,
                workers=workers,
                deep=deep,
                on_error=on_error,
                allow_unknown_sha=allow_unknown_sha,
            ),
            progress,
        )
    if as_json:
        print_json(result_json(result.root, result.manifest, result.report))
    else:
        show_result(Console(), result.root, result.manifest, result.report)
    exit_by(result.report)
