"""`spanloom traces …`: traces in a store, datasets of them, exports, token datasets, the HTTP service."""

import sys
from uuid import UUID

import typer

from spanloom.cli.app import print_json, say
from spanloom.cli.streams import reader_may_leave
from spanloom.cli.traces.commands import Build, Delete, ListTraces, Show
from spanloom.cli.traces.options import build_request
from spanloom.errors import EXIT_FAILURE, SpanloomError
from spanloom.families.traces.build import build_dataset
from spanloom.families.traces.store.catalogue import dataset_list, trace_lines
from spanloom.families.traces.store.database import detail, list_item
from spanloom.families.traces.store.manifest import built, read_manifest
from spanloom.text import visible, visible_line


def list_traces(given: ListTraces) -> None:
    if given.datasets:
        entries = dataset_list(given.places.folder)
        with reader_may_leave():
            if given.as_json:
                print_json(entries)
                return
            for entry in entries:
                count = f"{entry['trace_count']:,} traces" if entry["valid"] else "invalid manifest"
                print(f"{visible(entry['dataset_key'])}  {count}")
        return
    with given.places.opened() as opened, opened.snapshot() as snapshot:
        total = snapshot.count()
        heads = snapshot.previews(limit=given.limit, offset=given.offset)
    with reader_may_leave():
        if given.as_json:
            data = [{**list_item(head), "prompt": head.prompt, "source": head.source} for head in heads]
            print_json({"data": data, "total": total, "limit": given.limit, "offset": given.offset})
            return
        for head in heads:
            source, prompt = visible_line(head.source), visible_line(head.prompt)
            print(f"{head.id}  {list_item(head)['created_at']:27}  {source}  {prompt}".rstrip())
    print(f"{len(heads):,} of {total:,} traces", file=sys.stderr)


def show(given: Show) -> None:
    try:
        trace_id = str(UUID(given.name))
    except ValueError:
        print_json(read_manifest(given.places.folder, given.name).as_dict())
        return
    with given.places.opened() as opened, opened.snapshot() as snapshot:
        trace = snapshot.get(trace_id)
    if trace is None:
        raise SpanloomError(f"Trace {trace_id} not found", remedy="`spanloom traces list` shows what is there")
    if given.as_json:
        print_json(detail(trace))
        return

    for line in trace_lines(trace):
        print(line)


def delete(given: Delete) -> None:
    wanted = []
    for trace_id in given.ids:
        try:
            wanted.append(str(UUID(trace_id)))
        except ValueError:
            raise typer.BadParameter(
                f"{trace_id!r} is not the id of a trace, which is a UUID", param_hint="ID"
            ) from None
    with given.places.opened() as opened, opened.writing() as writer:
        gone = writer.delete(wanted)
    unknown = [trace_id for trace_id in dict.fromkeys(wanted) if trace_id not in gone]
    for trace_id in unknown:
        print(f"Trace {trace_id} not found", file=sys.stderr)
    if given.as_json:
        print_json({"deleted": len(gone), "not_found": unknown})
    else:
        print(f"{len(gone):,} deleted")
    if unknown:
        raise typer.Exit(EXIT_FAILURE)


def build(given: Build) -> None:
    conditions = {"filters": given.filters or {}, "where": given.where or [], "seed": given.seed}
    request = build_request(given.selection, **conditions, **vars(given.recorded))
    with given.places.opened() as opened:
        manifest, path = build_dataset(
            opened,
            given.places.folder,
            request,
            reproducible=given.reproducible,
            overwrite=given.overwrite,
            on_same=lambda: say("this dataset is there already; nothing was written", file=sys.stderr),
        )
    if given.as_json:
        print_json(built(manifest, path))
    else:
        print(f"{manifest.dataset_key}: {manifest.trace_count:,} traces, {path}")
