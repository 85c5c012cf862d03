"""`spanloom work clear`: removes data that passed between the steps of pipelines."""

from typing import Annotated

import typer

from spanloom.cli.app import say, work_app
from spanloom.text import visible_line


@work_app.command("clear")
def clear(
    work: Annotated[
        str, typer.Argument(metavar="PLACE", help="The work place: `work_uri` of the pipeline, else DATASET_ROOT.work.")
    ],
) -> None:
    """Remove the rendered shards at a work place. What Spanloom did not write there stays.

    Run it when no pipeline that uses the place is running. A pipeline that is run again renders all shards again.

    Example: `spanloom work clear gs://bucket/synth_kd_v1.work`
    """
    from spanloom.building.parts.clear import clear_work

    cleared = clear_work(work)
    say(f"removed {cleared.files:,} files, {cleared.bytes / 1e6:,.1f} MB, below {visible_line(work)}")
    for name in cleared.kept:
        say(f"warning: {visible_line(name)} was not made by Spanloom; it stays")
