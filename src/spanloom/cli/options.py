"""Options and arguments that several commands share, with their help texts."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanloom.options.option import option, place, running
from spanloom.options.places import HtmlPlace as HtmlPlace
from spanloom.options.places import Inventories as Inventories
from spanloom.options.places import Inventory as Inventory
from spanloom.options.places import Report as Report
from spanloom.options.places import Root as Root
from spanloom.options.places import TokenizerPlace as TokenizerPlace
from spanloom.options.shared import AllowUnknownSha as AllowUnknownSha
from spanloom.options.shared import Longest, MaxRejects, MaxRows, OnDuplicate, Shards
from spanloom.options.shared import Reader as Reader
from spanloom.options.shared import Resume as Resume
from spanloom.options.shared import Scratch as Scratch
from spanloom.options.shared import Workers as Workers
from spanloom.service import defaults as service
from spanloom.storage.hub import local_copy
from spanloom.storage.uri import is_hub, parse_uri

if TYPE_CHECKING:
    from fastapi import FastAPI

    from spanloom.building.steps import StepTask
    from spanloom.service.application import Guards

DatasetTokenizer = Annotated[
    Path | None,
    option(
        "The tokenizer of the dataset. SYNTH KD: the asset o200k_base.tiktoken or its folder, by default where "
        "--tokenizer of `build` looks; packed chat: the file that `chat pack` was given."
    ),
]
Json = Annotated[bool, running("Print the result as JSON on stdout.", "--json")]
Quiet = Annotated[bool, running("Print only results and errors.", "--quiet", "-q")]
Verbose = Annotated[bool, running("Print more: options, versions, tracebacks.", "--verbose", "-v")]


RootArgument = Annotated[str, typer.Argument(metavar="ROOT", help="Root of a dataset, a folder or a URI.")]


def _on_this_machine(place: str) -> Path:
    if "://" in place:
        parse_uri(place)
        raise typer.BadParameter(f"this reads a local folder; bring the dataset first: spanloom fetch {place} DIR")
    return Path(place)


def on_this_machine_or_hub(place: str) -> Path:
    """The local path of a place, which may be of the Hugging Face Hub."""
    return local_copy(place) if is_hub(place) else _on_this_machine(place)


HubRootArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ROOT", help="Root of a dataset, a folder or hf://datasets/….", parser=on_this_machine_or_hub
    ),
]
LocalRootArgument = Annotated[
    Path,
    typer.Argument(metavar="ROOT", help="Root of a dataset, a folder.", parser=_on_this_machine),
]
OneShard = Annotated[
    int | None,
    option(
        "Make this shard alone, from 0; assemble-dataset joins the shards. Default: the whole dataset in one task.",
        min=0,
    ),
]
OneInventory = Annotated[str | None, place("With --shard: file or URI for the shard's inventory.")]


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """Which shard a task makes, and the places of what it hands on."""

    shard: OneShard = None
    rendered: Annotated[
        str | None, place("With --shard: file or URI for the manifest of the shard's parts, of a few KiB.")
    ] = None
    inventory: OneInventory = None
    work: Annotated[
        str | None,
        place("With --shard: folder or URI that the shard's parts are published below. Default: ROOT.work."),
    ] = None
    resume: Resume = True
    workers: Workers = None
    allow_unknown_sha: AllowUnknownSha = False

    def as_task(self, **options: Any) -> "StepTask":
        """For the step. `options`: further ones of `RunOptions`."""
        from spanloom.building.steps import StepTask

        own = {field.name for field in fields(StepTask)}
        return StepTask(**{name: value for name, value in vars(self).items() if name in own}, **options)


@dataclass(frozen=True, kw_only=True)
class DealtTask(ShardTask):
    """The same for a source that is one file, whose rows are dealt to shards."""

    shards: Shards = 1
    max_rows: MaxRows = None
    longest: Longest = None
    max_rejects: MaxRejects = None
    on_duplicate: OnDuplicate = "error"


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The options of an HTTP service."""

    host: Annotated[str, option("Address to listen on; any but the loopback address needs a token.")] = service.HOST
    port: Annotated[int, option("0: a free port, which is printed.", min=0, max=65535)] = service.PORT
    bodies_max_bytes: Annotated[
        int,
        option(
            "All bodies in progress together; a request beyond it gets 503. Memory is at most 30 times this.", min=1024
        ),
    ] = service.BODIES_MAX_BYTES
    header_seconds: Annotated[float, option("Time limit for the header of a request.", min=0.1)] = (
        service.HEADER_SECONDS
    )
    body_seconds: Annotated[float, option("Time limit for a body, plus one second for each 64 KiB of it.", min=0.1)] = (
        service.BODY_SECONDS
    )
    allowed_host: Annotated[
        tuple[str, ...],
        option(
            "A host name served without a token, beside those of the loopback interface. Repeatable.",
            metavar="NAME",
            takes=list[str] | None,
            read=tuple,
        ),
    ] = ()
    token_file: Annotated[
        Path | None,
        option("A file with the bearer token. Default: $SPANLOOM_SERVICE_TOKEN, else none.", metavar="FILE"),
    ] = None

    def token(self) -> str | None:
        """The token of the service. Raises SpanloomError if others could reach it without one."""
        from spanloom.service.access import check_address, read_token

        token = read_token(self.token_file)
        check_address(self.host, token)
        return token

    def run(self, application: "FastAPI", what: str) -> None:
        from spanloom.service.serving import serve

        serve(application, host=self.host, port=self.port, what=what, header_seconds=self.header_seconds)

    def guards(self) -> "Guards":
        from spanloom.service.application import Guards

        return Guards(
            allowed_hosts=self.allowed_host, bodies_bytes=self.bodies_max_bytes, body_seconds=self.body_seconds
        )
