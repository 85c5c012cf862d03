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
    ChatTokenizerPlaceOption,
    ContextLengthOption,
    GeneratorOnErrorOption,
    JsonOption,
    KeepLosslessOption,
    OnErrorOption,
    PadTailOption,
    PostTrainingOption,
    QuietOption,
    ReportOption,
    ScratchOption,
    StrictUserOption,
    VerboseOption,
)

chat_app = typer.Typer(
    no_args_is_help=True, help="Packed chat: transcripts, and blocks with loss on the answers alone."
)
app.add_typer(chat_app, name="chat")


@chat_app.command("sample")
def sample(
    out: Annotated[str, typer.Option(metavar="PLACE", help="File or URI for the conversations: JSONL.")],
    conversations: Annotated[int, typer.Option(help="How many.", min=1)] = 240,
    scratch: ScratchOption = None,
) -> None:
    """Write small conversations of our own: several languages, code, and some of what `generate` leaves out."""
    from spanloom.places import chat_sample

    chat_sample(out=out, conversations=conversations, scratch=scratch)
    print(out)


@chat_app.command("generate")
def generate(
    source: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PLACE",
            help="Conversations: a .jsonl, .jsonl.gz or .parquet file, or a folder of them; or a URI.",
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="File or URI for the transcripts; its ending says which kind: .parquet, .jsonl or .txt.",
        ),
    ],
    tokenizer: ChatTokenizerPlaceOption = None,
    context_len: ContextLengthOption = 1024,
    on_error: GeneratorOnErrorOption = None,
    report: ReportOption = None,
    scratch: ScratchOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Turn conversations into transcripts, and leave out what does not fit.

    A record is a list of messages, by itself or as messages, conversations, conversation or turns; a message has a role
    (role, from, speaker) and a text (content, text, value). The first pair of user and assistant must fit into the
    context together with the system text, each later pair by itself; a conversation ends before the first that does
    not. What was left out, and why, is in the report.

    Example: `spanloom chat generate --input chats.jsonl --out transcripts.parquet --report left_out.json`
    """
    from spanloom.places import generate_chat
    from spanloom.steps.generate_chat import GeneratorRules

    progress = make_progress(quiet, verbose)
    with progress.stage("generate"), progress.counting("generate", "conversations") as on_progress:
        done = generate_chat(
            source=source,
            out=out,
            tokenizer=tokenizer,
            rules=GeneratorRules(context_len=context_len, on_error=on_error),
            report=report,
            on_progress=on_progress,
            scratch=scratch,
        )
    if as_json:
        print_json(done)
        return
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in done["conversations_skipped"].items()) or "none"
    print(f"{done['conversations_written']:,} transcripts in {out} ({done['conversations_read']:,} conversations read)")
    print(
        f"skipped: {skipped}; shortened: {done['conversations_shortened']:,} ({done['pairs_dropped']:,} pairs); "
        f"ended at a user without an answer: {done['conversations_ended_early']:,}"
    )


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
    tokenizer: ChatTokenizerPlaceOption = None,
    block_size: BlockSizeOption = 1024,
    post_training: PostTrainingOption = False,
    strict_user: StrictUserOption = False,
    keep_lossless: KeepLosslessOption = True,
    pad_tail: PadTailOption = False,
    shards: ChatShardsOption = 1,
    on_error: OnErrorOption = "raise",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that tokenise. Default: one for each core, fewer for little text; with o200k, one.",
            min=1,
        ),
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
    with local_transcripts(source, tokenizer, scratch) as (transcripts, tokenizer_file):
        result = build_chat(
            PackOptions(
                transcripts=transcripts,
                root=out,
                tokenizer=tokenizer_file,
                tokenizer_as_given=tokenizer,
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
