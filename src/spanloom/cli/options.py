"""Options and arguments that several commands share, each with the help that it shows everywhere."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

Made = TypeVar("Made")
Switch = Literal["0", "1"]
"""A switch as the parameters of a pipeline have it."""


def made_of(kind: type[Made], options: Mapping[str, Any], /, **others: Any) -> Made:
    """A dataclass of the options that have the names of its fields; `others` are fields that are no option as such."""
    named = {field.name: options[field.name] for field in fields(kind) if field.name in options}  # type: ignore[arg-type]
    return kind(**{**named, **others})


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
HostOption = Annotated[str, typer.Option(help="Address to listen on; another than this machine's own needs a token.")]
PortOption = Annotated[int, typer.Option(help="0: a free one, which is said.", min=0, max=65535)]
AllowedHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        help="A name that is answered without a token, beside those of this machine's loopback. May come again.",
        metavar="NAME",
    ),
]
BodiesOption = Annotated[
    int,
    typer.Option(
        "--bodies-max-bytes",
        help="Of the bodies of all requests under way; one more gets 503. Memory is at most 30 times this.",
        min=1024,
    ),
]
HeaderSecondsOption = Annotated[float, typer.Option(help="For the head of a request to come in.", min=0.1)]
BodySecondsOption = Annotated[
    float, typer.Option(help="For a body to come in, and one more for each 64 KiB of it.", min=0.1)
]
