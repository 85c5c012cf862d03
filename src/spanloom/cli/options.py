"""Options and arguments that several commands share, each with the help that it shows everywhere."""

from pathlib import Path
from typing import Annotated, Literal

import typer

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
        help="fast: wrappers from a table, content through fastokens, audited; harmony: openai-harmony alone."
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


def _on_this_machine(place: str) -> Path:
    if "://" in place:
        raise typer.BadParameter(f"this reads a local folder; bring the dataset first: spanloom fetch {place} DIR")
    return Path(place)


LocalRootArgument = Annotated[
    Path,
    typer.Argument(metavar="ROOT", help="Root of a dataset, a folder.", show_default=False, parser=_on_this_machine),
]
RootOption = Annotated[str, typer.Option(metavar="PLACE", help="Root of the dataset, a folder or a URI.")]
