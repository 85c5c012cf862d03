"""`spanloom traces …`: traces in a store, datasets of them, exports, token datasets, the HTTP service."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanloom.cli import options
from spanloom.cli.app import Printed, finish_build, make_progress, print_json, traces_app
from spanloom.cli.outputs import file_option, folder_option, output_file
from spanloom.cli.streams import give_up_results
from spanloom.cli.traces import options as traces_options
from spanloom.cli.traces.options import (
    Format,
    LineOptions,
    Places,
    SelectionOptions,
    build_request,
    key_values,
    require,
)
from spanloom.errors import EXIT_FAILURE, OutputError, SpanloomError
from spanloom.families.traces import defaults
from spanloom.options.option import listing, option, place
from spanloom.text import visible, visible_line

if TYPE_CHECKING:
    from spanloom.families.traces.forms.form import TraceForm
    from spanloom.families.traces.store.source import FormChoice


@traces_app.callback()
def traces(context: typer.Context, root: traces_options.Root = None, store: traces_options.Store = None) -> None:
    """Reasoning traces: a store, reproducible datasets of it, exports, token datasets."""
    context.obj = {"root": root, "store": store}


@traces_app.command("sample")
def sample(
    out: Annotated[str, place("File or URI for the traces: JSON Lines.")],
    traces: Annotated[int, option("How many.", min=1)] = defaults.SAMPLE_TRACES,
    tokenizer: Annotated[str | None, place("File or URI for a small tokenizer.json of their text.")] = None,
    scratch: options.Scratch = None,
) -> None:
    """Write small traces of our own, and a tokenizer to try token datasets with."""
    from spanloom.families.traces.sample import run

    run(out=out, traces=traces, tokenizer=tokenizer, scratch=scratch)
    print(out)


@traces_app.command("ingest")
def ingest(
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="PLACE...",
            help="Files (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also .gz or .zst), folders of them, folders of "
            "`save_to_disk`, patterns; - is stdin; or URIs.",
        ),
    ],
    source_name: Annotated[str, option("Value of meta.source of these traces.")],
    places: Places,
    maps: Annotated[
        tuple[str, ...],
        listing(
            "Which key of your records is the prompt, the answer, the steps; `a.b` reaches into objects, `a+b` joins "
            "texts. Default: the form of the first record, where it is known.",
            "--map",
            metavar="MEANING=KEY,…",
        ),
    ] = (),
    preview: Annotated[bool, option("Show the form and the first trace of each file, and stop.", "--preview")] = False,
    max_step_characters: traces_options.MaxStepCharacters = None,
    ids: traces_options.Ids = defaults.IDS,
    strict: Annotated[bool, option("Stop at a line that is not a trace, and store nothing.", "--strict")] = False,
    created_at: traces_options.CreatedAt = None,
    scratch: options.Scratch = None,
    printed: Printed,
) -> None:
    """Store the traces of files: one transaction a file, all of it or nothing.

    Takes traces, and the forms of published data: `<think>` tags, `reasoning_content`, OpenThoughts, OpenR1, s1K, LIMO,
    GSM8K, PRM800K; says which it found. Records that give no trace are skipped and reported with the reason. A file
    ingested twice changes nothing.

    Example: `spanloom traces ingest s1k.parquet --source-name s1k --max-step-characters 200000`
    """
    require("sqlalchemy", "traces")
    from spanloom.families.traces.forms.mapped import mapped_form
    from spanloom.families.traces.places import trace_files
    from spanloom.families.traces.store import timestamps
    from spanloom.families.traces.store.ingest import ingest_file
    from spanloom.families.traces.store.source import FormChoice
    from spanloom.records.files import passed_over_line
    from spanloom.storage.scratch import scratch_for

    progress = make_progress(printed.quiet or printed.as_json, printed.verbose)
    began = None if created_at is None else timestamps.given(created_at)
    form = mapped_form(maps) if maps else None
    results: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    unread: list[str] = []
    with scratch_for("ingest", files, scratch) as staging, trace_files(staging, files, unread) as found:
        if unread and not printed.as_json:
            print(visible(passed_over_line(unread)), file=sys.stderr)
        if preview:
            for place in found:
                choice = FormChoice(form=form, recognise=True, on_form=_say_form)
                _preview(place.path, place.called, choice, max_step_characters)
            return
        choice = FormChoice(form=form, recognise=True, on_form=None if printed.quiet or printed.as_json else _say_form)
        with places.opened(create=True) as opened:
            if max_step_characters is not None:
                opened.remember_step_limit(max_step_characters)
            for place in found:
                with progress.stage(f"ingest {place.called}"), progress.counting("ingest", "bytes") as on_progress:
                    ingested = ingest_file(
                        opened,
                        place.path,
                        source_name=source_name,
                        ids=ids,
                        strict=strict,
                        created_at=began,
                        choice=choice,
                        called=place.called,
                        on_progress=on_progress,
                    )
                if began is not None:
                    began = timestamps.later(began, ingested.ingested_count + ingested.skipped_existing)
                results.append({"file": place.called, **ingested.as_dict()})
                left_out += ingested.left_out
    _print_ingested(results, left_out, unread, as_json=printed.as_json)


def _say_form(form: "TraceForm", record: Any) -> None:
    """Prints a description of the records' form on stderr."""
    for line in form.described():
        print(visible(line), file=sys.stderr)


def _preview(path: Path, called: str, choice: "FormChoice", max_step_characters: int | None) -> None:
    from spanloom.families.traces.store.catalogue import payload_lines
    from spanloom.families.traces.store.source import first_trace

    trace = first_trace(path, called, choice, max_step_characters or defaults.MAX_STEP_CHARACTERS)
    if trace is None:
        raise SpanloomError("no record gives a valid trace", where=called, remedy="run it without --preview: reasons")
    print(visible(called))
    for line in payload_lines(trace.payload, _PREVIEW_CHARACTERS):
        print(line)


_PREVIEW_CHARACTERS = 2000
"""Characters of each text of a trace that a preview shows."""


def _print_ingested(results: list[dict[str, Any]], left_out: Counter[str], unread: list[str], *, as_json: bool) -> None:
    from spanloom.families.traces.store.ingest import SKIPPED_KEPT

    for result in results:
        for line in result["skipped"]:
            print(visible(f"skipped: {result['file']}, line {line['line']}: {line['reason']}"), file=sys.stderr)
    counts = {name: sum(result[name] for result in results) for name in ("skipped_count", "skipped_existing")}
    ids_stored = [trace_id for result in results for trace_id in result["trace_ids"]]
    if as_json:
        skipped = [{"file": result["file"], **line} for result in results for line in result["skipped"]]
        print_json(
            {
                "ingested_count": len(ids_stored),
                "trace_ids": ids_stored,
                "skipped": skipped[:SKIPPED_KEPT],
                "left_out": dict(left_out),
                **({"not_read": unread} if unread else {}),
                **counts,
                "files": [{"file": result["file"], "ingested_count": result["ingested_count"]} for result in results],
            }
        )
        return
    print(
        f"{len(ids_stored):,} traces stored, {counts['skipped_existing']:,} were there already, "
        f"{counts['skipped_count']:,} lines skipped"
    )
    for reason, count in left_out.most_common():
        print(visible(f"skipped for one reason: {count:,} {reason}"), file=sys.stderr)


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
        with _reader_may_leave():
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
    with _reader_may_leave():
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


@traces_app.command("export")
def export(
    *,
    key: traces_options.Key,
    form: traces_options.FormatOption = defaults.FORMAT,
    out: Annotated[str, option("A file, .parquet for Parquet; - is stdout.", metavar="FILE|-")] = "-",
    tokenizer: Annotated[
        Path | None, option("A tokenizer.json: adds input_ids and loss_mask to each row.", metavar="FILE")
    ] = None,
    offsets: Annotated[bool, option("With --tokenizer: the place of each token.", "--offsets")] = False,
    max_length: Annotated[int | None, option("With --tokenizer: truncate rows to this many tokens.", min=1)] = None,
    control_tokens: traces_options.ControlTokens = defaults.CONTROL_TOKENS,
    lines: LineOptions,
    protect_metadata: Annotated[
        bool,
        option(
            "created_at and the like are the exporter's; clashing keys of meta move to metadata.meta. Without: "
            "meta wins.",
            "--protect-metadata/--no-protect-metadata",
        ),
    ] = defaults.PROTECT_METADATA,
    places: Places,
    printed: Printed,
) -> None:
    """Write a dataset as JSON Lines or Parquet. A file appears only when it is complete.

    Example: `spanloom traces export math-v1 --format tunix_sft --out math.jsonl`
    """
    if (offsets or max_length is not None) and tokenizer is None:
        raise typer.BadParameter("--offsets and --max-length need --tokenizer")
    if lines.system and form == "trace":
        raise typer.BadParameter("--system is put before the prompt of the other formats; trace has the prompt alone")
    if printed.as_json and out == "-":
        raise typer.BadParameter("--json prints on stdout, where the export goes: give --out FILE")
    if out != "-":
        output_file(Path(out))
    progress = make_progress(printed.quiet or out == "-", printed.verbose)
    with places.opened() as opened:
        from spanloom.families.traces.encoding.tokenizer import load_tokenizer
        from spanloom.families.traces.export.file import ExportCounts, TokenColumns, records, write_file, write_lines
        from spanloom.families.traces.export.lines import ExportOptions
        from spanloom.families.traces.store.manifest import read_manifest

        ids = read_manifest(places.folder, key).ids
        rules = ExportOptions(
            control_tokens=control_tokens,
            protect_metadata=protect_metadata,
            sort_steps=lines.sort_steps,
            system=lines.system or None,
        )
        tokens = None
        if tokenizer is not None:
            tokens = TokenColumns(tokenizer=load_tokenizer(tokenizer), offsets=offsets, max_length=max_length)
        counts = ExportCounts()
        with opened.snapshot() as snapshot:
            rows = records(snapshot, ids, form, rules, tokens, counts)
            if out == "-":
                with _reader_may_leave():
                    write_lines(sys.stdout.buffer, rows, len(ids))
            else:
                with progress.stage("export"), progress.counting("export", "traces") as on_progress:
                    write_file(Path(out), rows, form, len(ids), tokens, on_progress)
    totals = counts.as_dict(tokens=tokens is not None)
    if printed.as_json:
        print_json({"dataset_key": key, "format": form, "file": out, **totals})
    elif not printed.quiet:
        print(", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in totals.items()), file=sys.stderr)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """For `| head`: if the reader closes the pipe, the command ends silently."""
    try:
        yield
        sys.stdout.flush()
    except (OSError, OutputError) as fault:
        if not isinstance(fault, BrokenPipeError) and not isinstance(fault.__context__, BrokenPipeError):
            if isinstance(fault, OutputError) or fault.filename is not None:
                raise
            remedy = "free some space, or give another place, and run the same command again"
            raise OutputError(f"the result could not be written: {fault}", where="stdout", remedy=remedy) from None
        give_up_results()
        raise typer.Exit(EXIT_FAILURE) from None


@traces_app.command("validate")
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export: JSON Lines.")],
    form: Annotated[Format, option("Which of the exports it is.", "--format")],
    manifest: Annotated[Path | None, option("manifest.json of its dataset: order and ids are compared.")] = None,
    report: Annotated[Path | None, file_option("Write all findings here, as JSON.", metavar="OUT.json")] = None,
    as_json: options.Json = False,
) -> None:
    """Check an exported file. Exits with 4 on errors; warnings alone do not count."""
    require("sqlalchemy", "traces")
    from spanloom.families.traces.store.manifest import load_ids
    from spanloom.families.traces.verify.export import check_export
    from spanloom.provenance import readable_json
    from spanloom.storage import write_atomically

    if not file.is_file():
        raise SpanloomError("there is no such file", where=str(file))
    checked = check_export(file, form, None if manifest is None else load_ids(manifest))
    result = checked.as_dict()
    if report is not None:
        write_atomically(report, readable_json(result))
    if as_json:
        print_json(result)
    else:
        for finding in checked.report.findings:
            prefix = f"line {finding.line}: " if finding.line else ""
            print(visible(f"{prefix}{finding.code} {finding.message}"))
        print(f"{checked.lines:,} lines, {result['errors']:,} errors, {result['warnings']:,} warnings", file=sys.stderr)
    if checked.report.exit_code:
        raise typer.Exit(checked.report.exit_code)


@traces_app.command("tokenize")
def tokenize(
    *,
    key: traces_options.Key,
    tokenizer: Annotated[Path, option("A tokenizer.json; it is copied into the root.", metavar="FILE")],
    out: Annotated[Path, folder_option("Root of the token dataset, a folder.", metavar="ROOT")],
    form: traces_options.TokenizeFormat = defaults.TOKENIZE_FORMAT,
    eod: traces_options.Eod = None,
    control_tokens: traces_options.TokenizeControls = defaults.TOKENIZE_CONTROL_TOKENS,
    lines: LineOptions,
    valid_fraction: traces_options.ValidFraction = defaults.VALID_FRACTION,
    weight: Annotated[
        str | None,
        option(
            "A key of meta, such as reward or rating, whose number becomes the weight of the document.", metavar="KEY"
        ),
    ] = None,
    running: traces_options.TokenizeRunning,
    places: Places,
    printed: Printed,
) -> None:
    """Make a validated token dataset: tokens, loss mask, and the spans reasoning and answer.

    Example: `spanloom traces tokenize math-v1 --tokenizer tokenizer.json --out data/megatron/math_v1`
    """
    with places.opened() as opened:
        from spanloom.families.traces import dataset as family
        from spanloom.families.traces.export.lines import ExportOptions
        from spanloom.families.traces.steps.tokenize_traces import TokenizeRules
        from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens

        exported = ExportOptions(
            control_tokens=control_tokens, sort_steps=lines.sort_steps, system=lines.system or None
        )
        rules = TokenizeRules(form=form, eod=eod, options=exported, valid_fraction=valid_fraction, weight=weight)
        options = TokenBuildOptions(
            root=places.folder,
            key=key,
            tokenizer=tokenizer,
            out=out,
            rules=rules,
            **vars(running),
        )
        result = build_tokens(opened, options, printed.progress())
    finish_build(family, out, result.manifest, result.report, as_json=printed.as_json)


@traces_app.command("serve")
def serve(
    *,
    serving: options.Serving,
    token_file: Annotated[
        Path | None,
        option("A file with the bearer token. Default: $SPANLOOM_SERVICE_TOKEN, else none.", metavar="FILE"),
    ] = None,
    ingest_dir: Annotated[
        Path | None, option("Files are ingested from below this folder alone. Default: ROOT/ingest.", metavar="DIR")
    ] = None,
    trace_max_bytes: Annotated[
        int,
        option(
            "The largest body of one trace.",
            envvar="TRACE_MAX_BYTES",
            min=defaults.TRACE_BYTES[0],
            max=defaults.TRACE_BYTES[1],
        ),
    ] = defaults.TRACE_MAX_BYTES,
    batch_max_bytes: Annotated[int, option("The largest body of a batch.", min=1024)] = defaults.BATCH_MAX_BYTES,
    max_step_characters: traces_options.MaxStepCharacters = None,
    places: Places,
) -> None:
    """Serve traces, datasets and exports over HTTP, with pages to read them, and the routes of `toolcalls serve`.

    /docs lists all requests.

    Needs `pip install 'spanloom[serve]'`. Logs are lines of JSON on stderr; no payload is logged.
    """
    for module in ("fastapi", "uvicorn", "prometheus_client", "yaml"):
        require(module, "serve")
    from spanloom.families.toolcalls.service.routes import body_limits as toolcalls_limits
    from spanloom.families.toolcalls.service.routes import toolcalls_router
    from spanloom.families.traces.service.application import traces_application
    from spanloom.service.access import check_address, read_token
    from spanloom.service.serving import serve as serve_application

    token = read_token(token_file)
    check_address(serving.host, token)
    with places.opened(create=True) as opened:
        if max_step_characters is not None:
            opened.remember_step_limit(max_step_characters)
        application = traces_application(
            opened,
            places.folder,
            ingest_dir=ingest_dir,
            token=token,
            trace_max_bytes=trace_max_bytes,
            batch_max_bytes=batch_max_bytes,
            guards=serving.guards(),
            more_routers=[toolcalls_router()],
            more_limits=toolcalls_limits(),
        )
        serve_application(
            application,
            host=serving.host,
            port=serving.port,
            what=f"traces of {opened.called}",
            header_seconds=serving.header_seconds,
        )
