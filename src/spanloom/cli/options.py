"""Options and arguments that several commands share, with their help texts."""

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from spanloom.options.option import option, place, running

Made = TypeVar("Made")


def made_of(what: Callable[..., Made], options: Mapping[str, Any], /, **others: Any) -> Made:
    """Calls a function or class with the options that have the names of its parameters; `others` take precedence."""
    named = {name: options[name] for name in signature(what).parameters if name in options}
    return what(**{**named, **others})


Scratch = Annotated[
    Path | None,
    running(
        "Folder for what is staged from URIs and made for them; kept when the command fails, to resume. "
        "Default: $SPANLOOM_SCRATCH, else a temporary folder."
    ),
]
Report = Annotated[str | None, place("File or URI for the report (JSON); replaces an existing one.")]
TokenizerPlace = Annotated[
    str | None,
    place(
        "The asset o200k_base.tiktoken, its folder, or a URI of either. Default: $O200K_HARMONY_VOCAB_PATH, "
        "$TIKTOKEN_ENCODINGS_BASE, ~/.cache/spanloom, then data/tokenizer."
    ),
]
DatasetTokenizer = Annotated[
    Path | None,
    option(
        "The tokenizer of the dataset. SYNTH KD: the asset o200k_base.tiktoken or its folder, by default where "
        "--tokenizer of `build` looks; packed chat: the file that `chat pack` was given."
    ),
]
Workers = Annotated[
    int | None,
    running(
        "Worker processes. Default: one for each usable CPU, if memory allows; `build` takes fewer for few rows.", min=1
    ),
]
AllowUnknownSha = Annotated[
    bool, running("Build even if the git SHA of this Spanloom is unknown.", "--allow-unknown-sha")
]
Resume = Annotated[bool, running("Resume where an interrupted run stopped, or discard what it left and start over.")]
Reader = Annotated[
    Literal["auto", "megatron", "independent"],
    option(
        "The reader of the arrays: Megatron's own, or one in numpy that shares no code with the writer and "
        "needs no Megatron. auto: Megatron's if it is installed."
    ),
]
Json = Annotated[bool, running("Print the result as JSON on stdout.", "--json")]
Quiet = Annotated[bool, running("Print only results and errors.", "--quiet", "-q")]
Verbose = Annotated[bool, running("Print more: options, versions, tracebacks.", "--verbose", "-v")]


RootArgument = Annotated[str, typer.Argument(metavar="ROOT", help="Root of a dataset, a folder or a URI.")]


def _on_this_machine(place: str) -> Path:
    if "://" in place:
        from spanloom.storage.uri import parse_uri

        parse_uri(place)
        raise typer.BadParameter(f"this reads a local folder; bring the dataset first: spanloom fetch {place} DIR")
    return Path(place)


LocalRootArgument = Annotated[
    Path,
    typer.Argument(metavar="ROOT", help="Root of a dataset, a folder.", parser=_on_this_machine),
]
Root = Annotated[str, place("Root of the dataset, a folder or a URI.")]
Inventories = Annotated[list[str], place("A shard's inventory; give one for each shard, in order.", "--inventory")]
Inventory = Annotated[str, place("File or URI for the shard's inventory.")]
HtmlPlace = Annotated[str | None, place("File or URI for the report (a page); replaces an existing one.")]
Host = Annotated[str, option("Address to listen on; any but the loopback address needs a token.")]
Port = Annotated[int, option("0: a free port, which is printed.", min=0, max=65535)]
AllowedHost = Annotated[
    list[str] | None,
    option(
        "A host name served without a token, beside those of the loopback interface. Repeatable.",
        "--allowed-host",
        metavar="NAME",
    ),
]
Bodies = Annotated[
    int,
    option(
        "All bodies in progress together; a request beyond it gets 503. Memory is at most 30 times this.",
        "--bodies-max-bytes",
        min=1024,
    ),
]
HeaderSeconds = Annotated[float, option("Time limit for the header of a request.", min=0.1)]
BodySeconds = Annotated[float, option("Time limit for a body, plus one second for each 64 KiB of it.", min=0.1)]
