"""`spanloom audit`: checks any token dataset against the model that it trains."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import LOOK, Printed, app
from spanloom.cli.models.commands import TemplateOptions
from spanloom.cli.outputs import file_option
from spanloom.options.option import option


@app.command("audit", rich_help_panel=LOOK)
@dataclass(frozen=True, kw_only=True)
class Audit:
    """Find where the mask of a token dataset differs from what the model samples. Exits with 4 on any finding.

    Example: `spanloom audit trl_prepared/ --model Qwen3-0.6B --messages chat.jsonl --html audit.html`
    """

    data: Annotated[
        Path,
        typer.Argument(
            help="Parquet (a file or a folder), a folder of `save_to_disk`, `.bin` and `.idx` with a mask beside, "
            "or a root of Spanloom; each also at hf://datasets/….",
            metavar="DATA",
            parser=options.on_this_machine_or_hub,
        ),
    ]
    model: Annotated[Path, option("The model's folder, with tokenizer.json and its chat template.", metavar="DIR")]
    messages: Annotated[
        Path | None,
        option(
            "The conversations that it was made from: anything that `convert` reads, or a source folder. Each document "
            "is proven by three methods and compared token by token. Without it frames are read off the tokens.",
            metavar="PLACE",
            parser=options.on_this_machine_or_hub,
        ),
    ] = None
    rendering: TemplateOptions
    mask: Annotated[
        str | None,
        option(
            "The column that is the mask, or the ending of the mask's files. Default: labels, completion_mask, "
            "assistant_masks, loss_mask; _lossmask, _mask.",
            metavar="NAME",
        ),
    ] = None
    aligned: Annotated[
        Literal["tokens", "labels"] | None,
        option(
            "Whether position t of the mask belongs to token t or to the next token. Default: labels for .bin and .idx "
            "and Megatron-Bridge, else tokens."
        ),
    ] = None
    declare: Annotated[
        list[str] | None,
        option("A class of findings that is intended: reported as a note. Repeatable.", metavar="CLASS"),
    ] = None
    fail_on: Annotated[
        list[str] | None,
        option(
            "Exit with 4 only if more than this share of the documents has the class, such as `duplicate=1%`. Other "
            "classes still fail with one document. Repeatable.",
            metavar="CLASS=SHARE",
        ),
    ] = None
    sample: Annotated[int | None, option("Read this many rows, drawn by --seed.", min=1)] = None
    seed: Annotated[int, option("Seed of --sample.", min=0)] = 0
    workers: options.Workers = None
    html: Annotated[Path | None, file_option("Write a page with the first coloured documents of each class.")] = None
    rows: Annotated[
        Path | None, file_option("Write all findings as lines of JSON: file, row, class, token, what it should be.")
    ] = None
    printed: Printed
