"""Commands that say what is in a dataset: stats, manifest."""

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from spanloom.cli import options
from spanloom.cli.app import LOOK, app, manifest_app, print_json, say
from spanloom.errors import EXIT_FAILURE
from spanloom.families import check_manifest
from spanloom.options.option import option
from spanloom.text import visible_line


@app.command(rich_help_panel=LOOK)
@dataclass(frozen=True, kw_only=True)
class Stats:
    """Count documents and tokens by split, shard, language, exercise.

    Example: `spanloom stats data/megatron/synth_kd_v1 --by split,language`
    """

    root: options.HubRootArgument
    by: Annotated[str, option("Group by any of split, shard, language, exercise, with commas; empty: all in one.")] = (
        "split"
    )
    as_json: options.Json = False
    as_csv: Annotated[bool, option("Print CSV on stdout.", "--csv")] = False


@manifest_app.command("show")
@dataclass(frozen=True, kw_only=True)
class ManifestShow:
    """Show what a dataset is made of."""

    place: Annotated[str, typer.Argument(help="A dataset root or a manifest file, or a URI of either.")]
    as_json: options.Json = False


@manifest_app.command("diff")
def manifest_diff(
    a: Annotated[str, typer.Argument(help="A dataset root or a manifest file, or a URI of either.")],
    b: Annotated[str, typer.Argument(help="Another.")],
    as_json: options.Json = False,
) -> None:
    """Show where the `content` of two manifests differs. Exits with 1 when it does, like diff."""
    from spanloom.dataset import manifest

    first, second = (manifest.read_place_as(place, check_manifest) for place in (a, b))
    differences = list(manifest.diff(first["content"], second["content"]))
    if as_json:
        print_json([{"path": path, "a": before, "b": after} for path, before, after in differences])
    else:
        for path, before, after in differences:
            was, now = (json.dumps(value, ensure_ascii=False) for value in (before, after))
            say(f"{visible_line(path)}\n  - {was}\n  + {now}")
        if not differences:
            say("same content")
    raise typer.Exit(EXIT_FAILURE if differences else 0)
