"""`spanloom chat …`: conversations → transcripts → packed blocks."""

from typing import Annotated, Literal

import typer

from spanloom.cli.app import app, make_progress, print_json
from spanloom.cli.options import JsonOption, QuietOption, ReportOption, ScratchOption, VerboseOption

chat_app = typer.Typer(
    no_args_is_help=True, help="Packed chat: transcripts, and blocks with loss on the answers alone."
)
app.add_typer(chat_app, name="chat")


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
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="A `tokenizers` JSON file with the control strings as tokens, or a URI of one. Default: the asset "
            "o200k_base.tiktoken, with the control strings added.",
        ),
    ] = None,
    context_len: Annotated[
        int, typer.Option(help="Tokens that the first pair may have with its system span, and each later pair.", min=1)
    ] = 1024,
    on_error: Annotated[
        Literal["raise", "skip"] | None,
        typer.Option(
            help="A record that cannot be read, a control string in a text: stop at both, or skip and count both. "
            "Default: stop at the first, skip the second."
        ),
    ] = None,
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
    print(f"skipped: {skipped}; shortened: {done['conversations_shortened']:,} ({done['pairs_dropped']:,} pairs)")
