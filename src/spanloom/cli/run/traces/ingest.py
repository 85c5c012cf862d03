"""`spanloom traces sample` and `ingest`: files of traces, or of forms of published data → the store."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanloom.cli.app import make_progress, print_json
from spanloom.cli.traces.ingest import Ingest
from spanloom.errors import SpanloomError
from spanloom.families.traces import defaults
from spanloom.families.traces.forms.form import TraceForm
from spanloom.families.traces.forms.mapped import mapped_form
from spanloom.families.traces.places import trace_files
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.catalogue import payload_lines
from spanloom.families.traces.store.ingest import SKIPPED_KEPT, ingest_file
from spanloom.families.traces.store.source import FormChoice, first_trace, unread_columns_at
from spanloom.records.files import passed_over_line
from spanloom.records.record_files import unread_line
from spanloom.storage.scratch import scratch_for
from spanloom.text import visible


def ingest(given: Ingest) -> None:
    files, printed = given.files, given.printed
    progress = make_progress(printed.quiet or printed.as_json, printed.verbose)
    began = None if given.created_at is None else timestamps.given(given.created_at)
    form = mapped_form(given.maps) if given.maps else None
    results: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    unread: list[str] = []
    choice = FormChoice(form=form, recognise=True, on_form=None if printed.quiet or printed.as_json else _say_form)
    with scratch_for("ingest", files, given.scratch) as staging, trace_files(staging, files, unread) as found:
        if unread and not printed.as_json:
            print(visible(passed_over_line(unread)), file=sys.stderr)
        if given.preview:
            for place in found:
                _preview(place.path, place.called, replace(choice, on_form=_say_form), given.max_step_characters)
            return
        with given.places.opened(create=True) as opened:
            if given.max_step_characters is not None:
                opened.remember_step_limit(given.max_step_characters)
            for place in found:
                columns = unread_columns_at(place.path)
                if columns and not printed.as_json:
                    print(visible(f"{place.called}: {unread_line(columns)}"), file=sys.stderr)
                with progress.stage(f"ingest {place.called}"), progress.counting("ingest", "bytes") as on_progress:
                    ingested = ingest_file(
                        opened,
                        place.path,
                        source_name=given.source_name,
                        ids=given.ids,
                        strict=given.strict,
                        created_at=began,
                        choice=choice,
                        called=place.called,
                        on_progress=on_progress,
                    )
                if began is not None:
                    began = timestamps.later(began, ingested.ingested_count + ingested.skipped_existing)
                named = {"columns_not_read": columns} if columns else {}
                results.append({"file": place.called, **ingested.as_dict(), **named})
                left_out += ingested.left_out
    _print_ingested(results, left_out, unread, as_json=printed.as_json)


def _say_form(form: TraceForm, record: Any) -> None:
    """Prints a description of the records' form on stderr."""
    for line in form.described():
        print(visible(line), file=sys.stderr)


def _preview(path: Path, called: str, choice: FormChoice, max_step_characters: int | None) -> None:
    trace = first_trace(path, called, choice, max_step_characters or defaults.MAX_STEP_CHARACTERS)
    if trace is None:
        raise SpanloomError("no record gives a valid trace", where=called, remedy="run it without --preview: reasons")
    print(visible(called))
    for line in payload_lines(trace.payload, _PREVIEW_CHARACTERS):
        print(line)


_PREVIEW_CHARACTERS = 2000
"""Characters of each text of a trace that a preview shows."""


def _print_ingested(results: list[dict[str, Any]], left_out: Counter[str], unread: list[str], *, as_json: bool) -> None:
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
