"""`spanloom work clear`: removes data that passed between the steps of pipelines."""

from typing import Annotated

import typer

from spanloom.cli.app import say, work_app
from spanloom.options.option import option
from spanloom.text import visible_line


@work_app.command("clear")
def clear(
    work: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="The work place: `work_uri` of the pipeline, else DATASET_ROOT.work; or --work of `spanloom tasks`.",
        ),
    ],
    *,
    yes: Annotated[bool, option("Remove it. Without it the command only says what it would remove.", "--yes")] = False,
) -> None:
    """Remove what tasks handed on at a work place: rendered shards, inventories, digests. Reports, exports and files of
    others stay.

    Run it when no pipeline that uses the place is running. A pipeline that is run again renders all shards again.

    Example: `spanloom work clear gs://bucket/synth_kd_v1.work`, then the same with `--yes`
    """
    from spanloom.building.parts.clear import clear_work

    cleared = clear_work(work, remove=False)
    for folder, (files, size) in cleared.folders.items():
        say(f"{folder}: {files:,} files, {size / 1e6:,.1f} MB")
    for name in cleared.kept:
        say(f"{visible_line(name)} stays: it is a result, or not Spanloom's")
    total = f"{cleared.files:,} files, {cleared.bytes / 1e6:,.1f} MB, below {visible_line(work)}"
    if not yes:
        say(f"would remove {total}; give --yes to remove them")
        return
    clear_work(work)
    say(f"removed {total}")
