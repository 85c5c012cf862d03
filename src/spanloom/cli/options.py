"""Options and arguments that several commands share, each with the help that it shows everywhere."""

from pathlib import Path
from typing import Annotated, Any

import typer


def place(help: str, *names: str) -> Any:
    """An option that takes a path or a URI."""
    return typer.Option(*names, metavar="PLACE", help=help)


ScratchOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for what is staged from URIs and made for them; kept when the command fails, to go on with. "
        "Default: $SPANLOOM_SCRATCH, else a temporary folder."
    ),
]
ReportOption = Annotated[str | None, place("File or URI for the report (JSON); replaces one that is there.")]
TokenizerPlaceOption = Annotated[
    str | None,
    place(
        "The asset o200k_base.tiktoken, its folder, or a URI of either. Default: $O200K_HARMONY_VOCAB_PATH, "
        "$TIKTOKEN_ENCODINGS_BASE, then data/tokenizer."
    ),
]
DatasetTokenizerOption = Annotated[
    Path | None,
    typer.Option(
        help="The tokenizer of the dataset. SYNTH KD: the asset o200k_base.tiktoken or its folder, by default where "
        "--tokenizer of `build` looks; packed chat: the file that `chat pack` was given."
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(help="Worker processes. Default: one for each core; `build` takes fewer for few rows.", min=1),
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
RootOption = Annotated[str, place("Root of the dataset, a folder or a URI.")]
InventoriesOption = Annotated[
    list[str], place("A shard's inventory; give one for each shard, in order.", "--inventory")
]
InventoryOption = Annotated[str, place("File or URI for the shard's inventory.")]
HtmlPlaceOption = Annotated[str | None, place("File or URI for the report (a page); replaces one that is there.")]
