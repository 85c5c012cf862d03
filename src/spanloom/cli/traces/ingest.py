"""`spanloom traces sample` and `ingest`: files of traces, or of forms of published data → the store."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanloom.cli import options
from spanloom.cli.app import Printed, make_progress, print_json, traces_app
from spanloom.cli.traces import options as traces_options
from spanloom.cli.traces.options import (
    Places,
    require,
)
from spanloom.errors import SpanloomError
from spanloom.families.traces import defaults
from spanloom.options.option import listing, option, place
from spanloom.text import visible

if TYPE_CHECKING:
    from spanloom.families.traces.forms.form import TraceForm
    from spanloom.families.traces.store.source import FormChoice


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
