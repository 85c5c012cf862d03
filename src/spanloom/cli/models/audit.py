"""`spanloom audit`: checks any token dataset against the model that it trains."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from spanloom.api.building import day_of
from spanloom.cli import options
from spanloom.cli.app import LOOK, Printed, app, make_progress, print_json, say
from spanloom.cli.models.commands import TemplateOptions
from spanloom.cli.outputs import file_option, write_page
from spanloom.families.models import defaults
from spanloom.options.option import option

if TYPE_CHECKING:
    from spanloom.audit.result import Result

AROUND = 30
"""Tokens that a terminal shows before and after a finding."""


@app.command("audit", rich_help_panel=LOOK)
def audit(
    *,
    data: Annotated[
        Path,
        typer.Argument(
            help="Parquet (a file or a folder), a folder of `save_to_disk`, `.bin` and `.idx` with a mask beside, "
            "or a root of Spanloom.",
            metavar="DATA",
        ),
    ],
    model: Annotated[Path, option("The model's folder, with tokenizer.json and its chat template.", metavar="DIR")],
    messages: Annotated[
        Path | None,
        option(
            "The conversations that it was made from: anything that `convert` reads, or a source folder. Each document "
            "is proven by three methods and compared token by token. Without it frames are read off the tokens.",
            metavar="PLACE",
        ),
    ] = None,
    rendering: TemplateOptions,
    mask: Annotated[
        str | None,
        option(
            "The column that is the mask, or the ending of the mask's files. Default: labels, completion_mask, "
            "assistant_masks, loss_mask; _lossmask, _mask.",
            metavar="NAME",
        ),
    ] = None,
    aligned: Annotated[
        Literal["tokens", "labels"] | None,
        option(
            "Whether position t of the mask belongs to token t or to the next token. Default: labels for .bin and .idx "
            "and Megatron-Bridge, else tokens."
        ),
    ] = None,
    declare: Annotated[
        list[str] | None,
        option("A class of findings that is intended: reported as a note. Repeatable.", metavar="CLASS"),
    ] = None,
    sample: Annotated[int | None, option("Read this many rows, drawn by --seed.", min=1)] = None,
    seed: Annotated[int, option("Seed of --sample.", min=0)] = 0,
    workers: options.Workers = None,
    html: Annotated[Path | None, file_option("Write a page with the first coloured documents of each class.")] = None,
    printed: Printed,
) -> None:
    """Find where the mask of a token dataset differs from what the model samples. Exits with 4 on any finding.

    Example: `spanloom audit trl_prepared/ --model Qwen3-0.6B --messages chat.jsonl --html audit.html`
    """
    from spanloom.audit.auditor import ModelOptions
    from spanloom.audit.classes import NAMES
    from spanloom.audit.page import audit_page
    from spanloom.audit.readers.unit import Reading
    from spanloom.audit.result import as_json as json_of
    from spanloom.audit.result import as_lines
    from spanloom.audit.run import AuditOptions
    from spanloom.audit.run import audit as run_audit

    unknown = [name for name in declare or () if name not in NAMES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is not a class: {', '.join(NAMES)}", param_hint="--declare")
    progress = make_progress(printed.quiet or printed.as_json, printed.verbose)
    request = AuditOptions(
        data=data,
        model=ModelOptions(
            folder=model,
            template=rendering.template,
            stops=tuple(rendering.stop),
            date=day_of(rendering.date or defaults.PROBE_DATE),
            thinking=rendering.thinking,
            variables=rendering.variables,
        ),
        messages=messages,
        reading=Reading(mask=mask, aligned=aligned),
        sample=sample,
        seed=seed,
        workers=workers,
        declare=tuple(declare or ()),
    )
    with progress.stage("audit"), progress.counting("audit", "rows") as on_progress:
        result = run_audit(request, on_progress)
    if printed.as_json:
        print_json(json_of(result))
    else:
        say("\n".join(as_lines(result)))
        _show_examples(result)
    if html is not None:
        from spanloom.storage import write_atomically

        if printed.as_json:
            write_atomically(html, audit_page(result).encode())
        else:
            write_page(html, audit_page(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _show_examples(result: "Result") -> None:
    """Prints the first document of each class, coloured."""
    from rich.console import Console

    from spanloom.audit.shown import cut
    from spanloom.report.terminal import Shown, print_documents

    first = [cut(result.examples[name][0].document, AROUND) for name in result.findings if result.examples.get(name)]
    if first:
        say("")
        print_documents(Console(), first, Shown(most=0, tokens=True))
