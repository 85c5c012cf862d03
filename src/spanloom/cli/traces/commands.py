"""`spanloom traces …`: traces in a store, datasets of them, exports, token datasets, the HTTP service."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanloom.cli import options
from spanloom.cli.app import print_json, traces_app
from spanloom.cli.streams import reader_may_leave
from spanloom.cli.traces.options import (
    Places,
    SelectionOptions,
    build_request,
    key_values,
    require,
)
from spanloom.errors import EXIT_FAILURE, SpanloomError
from spanloom.options.option import option
from spanloom.text import visible, visible_line

if TYPE_CHECKING:
    pass


@traces_app.command("list")
def list_traces(
    *,
    places: Places,
    limit: Annotated[int, option("How many.", min=1, max=100_000)] = 20,
    offset: Annotated[int, option("Number of the newest traces to skip.", min=0)] = 0,
    datasets: Annotated[bool, option("The datasets instead, with their counts.", "--datasets")] = False,
    as_json: options.Json = False,
) -> None:
    """List traces, newest first; or the datasets."""
    if datasets:
        from spanloom.families.traces.store.catalogue import dataset_list

        entries = dataset_list(places.folder)
        with reader_may_leave():
            if as_json:
                print_json(entries)
                return
            for entry in entries:
                count = f"{entry['trace_count']:,} traces" if entry["valid"] else "invalid manifest"
                print(f"{visible(entry['dataset_key'])}  {count}")
        return
    with places.opened() as opened, opened.snapshot() as snapshot:
        from spanloom.families.traces.store.database import list_item

        total = snapshot.count()
        heads = snapshot.previews(limit=limit, offset=offset)
    with reader_may_leave():
        if as_json:
            data = [{**list_item(head), "prompt": head.prompt, "source": head.source} for head in heads]
            print_json({"data": data, "total": total, "limit": limit, "offset": offset})
            return
        for head in heads:
            source, prompt = visible_line(head.source), visible_line(head.prompt)
            print(f"{head.id}  {list_item(head)['created_at']:27}  {source}  {prompt}".rstrip())
    print(f"{len(heads):,} of {total:,} traces", file=sys.stderr)


@traces_app.command("show")
def show(
    *,
    name: Annotated[str, typer.Argument(metavar="ID|KEY", help="The id of a trace, or the key of a dataset.")],
    places: Places,
    as_json: options.Json = False,
) -> None:
    """Show a trace with its steps, or the manifest of a dataset."""
    from uuid import UUID

    from spanloom.families.traces.store.manifest import read_manifest

    try:
        trace_id = str(UUID(name))
    except ValueError:
        print_json(read_manifest(places.folder, name).as_dict())
        return
    with places.opened() as opened, opened.snapshot() as snapshot:
        from spanloom.families.traces.store.database import detail

        trace = snapshot.get(trace_id)
    if trace is None:
        raise SpanloomError(f"Trace {trace_id} not found", remedy="`spanloom traces list` shows what is there")
    if as_json:
        print_json(detail(trace))
        return
    from spanloom.families.traces.store.catalogue import trace_lines

    for line in trace_lines(trace):
        print(line)


@traces_app.command("delete")
def delete(
    *,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of traces.")],
    places: Places,
    as_json: options.Json = False,
) -> None:
    """Delete traces. Manifests keep their ids; exports have no line for them any more. Exits with 1 for unknown ids."""
    from uuid import UUID

    wanted = []
    for trace_id in ids:
        try:
            wanted.append(str(UUID(trace_id)))
        except ValueError:
            raise typer.BadParameter(
                f"{trace_id!r} is not the id of a trace, which is a UUID", param_hint="ID"
            ) from None
    with places.opened() as opened, opened.writing() as writer:
        gone = writer.delete(wanted)
    unknown = [trace_id for trace_id in dict.fromkeys(wanted) if trace_id not in gone]
    for trace_id in unknown:
        print(f"Trace {trace_id} not found", file=sys.stderr)
    if as_json:
        print_json({"deleted": len(gone), "not_found": unknown})
    else:
        print(f"{len(gone):,} deleted")
    if unknown:
        raise typer.Exit(EXIT_FAILURE)


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
def build(
    *,
    selection: SelectionOptions,
    filters: Annotated[
        dict[str, Any] | None,
        option(
            "A key of meta and its value, as JSON; repeatable: all hold.",
            "--filter",
            metavar="KEY=JSON",
            takes=list[str] | None,
            read=key_values,
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        option(
            "A number that a trace must have, or no duplicates: 'reward >= 0.5' (a key of meta), 'count(steps) <= 40', "
            "'count(characters) < 20000', 'unique(prompt)', 'unique(content)'; repeatable: all hold.",
            metavar="CONDITION",
        ),
    ] = None,
    seed: Annotated[int | None, option("Of a random sample.")] = None,
    recorded: RecordedOptions,
    reproducible: Annotated[
        bool, option("The build's id and times follow from what is built.", "--reproducible")
    ] = False,
    places: Places,
    as_json: options.Json = False,
) -> None:
    """Freeze a selection of the store in a manifest, in place of one of the same key.

    Example: `spanloom traces build --name math --version v1 --filter 'source="import"' --strategy random --seed 1`
    """
    require("sqlalchemy", "traces")
    from spanloom.families.traces.build import build_dataset
    from spanloom.families.traces.store.manifest import built

    conditions = {"filters": filters or {}, "where": where or [], "seed": seed}
    request = build_request(selection, **conditions, **vars(recorded))
    with places.opened() as opened:
        manifest, path = build_dataset(opened, places.folder, request, reproducible=reproducible)
    if as_json:
        print_json(built(manifest, path))
    else:
        print(f"{manifest.dataset_key}: {manifest.trace_count:,} traces, {path}")
