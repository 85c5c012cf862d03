"""`spanloom traces …`: traces in a store, datasets of them, exports, token datasets, the HTTP service."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from spanloom.cli import options
from spanloom.cli.app import traces_app
from spanloom.cli.traces.options import Places, SelectionOptions, key_values
from spanloom.options.option import option
from spanloom.options.shared import OverwriteFile


@traces_app.command("list")
@dataclass(frozen=True, kw_only=True)
class ListTraces:
    """List traces, newest first; or the datasets."""

    places: Places
    limit: Annotated[int, option("How many.", min=1, max=100_000)] = 20
    offset: Annotated[int, option("Number of the newest traces to skip.", min=0)] = 0
    datasets: Annotated[bool, option("The datasets instead, with their counts.", "--datasets")] = False
    as_json: options.Json = False


@traces_app.command("show")
@dataclass(frozen=True, kw_only=True)
class Show:
    """Show a trace with its steps, or the manifest of a dataset."""

    name: Annotated[str, typer.Argument(metavar="ID|KEY", help="The id of a trace, or the key of a dataset.")]
    places: Places
    as_json: options.Json = False


@traces_app.command("delete")
@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete traces. Manifests keep their ids; exports have no line for them any more. Exits with 1 for unknown ids."""

    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of traces.")]
    places: Places
    as_json: options.Json = False


@dataclass(frozen=True, kw_only=True)
class RecordedOptions:
    """What the manifest of a dataset records for others."""

    session_id: Annotated[str | None, option("Recorded in the manifest.")] = None
    parent_dataset_id: Annotated[str | None, option("Recorded in the manifest.")] = None
    training_run_id: Annotated[str | None, option("Recorded in the manifest.")] = None
    provenance: Annotated[
        dict[str, Any],
        option("Recorded in the manifest; repeatable.", metavar="KEY=JSON", takes=list[str] | None, read=key_values),
    ] = field(default_factory=dict)


@traces_app.command("build")
@dataclass(frozen=True, kw_only=True)
class Build:
    """Freeze a selection of the store in a manifest. The same selection again keeps the one that is there.

    Example: `spanloom traces build --name math --version v1 --filter 'source="import"' --strategy random --seed 1`
    """

    selection: SelectionOptions
    filters: Annotated[
        dict[str, Any] | None,
        option(
            "A key of meta and its value, as JSON; repeatable: all hold.",
            "--filter",
            metavar="KEY=JSON",
            takes=list[str] | None,
            read=key_values,
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        option(
            "A number that a trace must have, or no duplicates: 'reward >= 0.5' (a key of meta), 'count(steps) <= 40', "
            "'count(characters) < 20000', 'unique(prompt)', 'unique(content)'; repeatable: all hold.",
            metavar="CONDITION",
        ),
    ] = None
    seed: Annotated[int | None, option("Of a random sample.")] = None
    recorded: RecordedOptions
    reproducible: Annotated[bool, option("The build's id and times follow from what is built.", "--reproducible")] = (
        False
    )
    places: Places
    overwrite: OverwriteFile = False
    as_json: options.Json = False
