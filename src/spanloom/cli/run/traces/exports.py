"""`spanloom traces export`, `validate`, `tokenize`, `serve`: what is made of stored traces."""

import sys
from pathlib import Path

import typer

from spanloom.cli.app import make_progress, print_json
from spanloom.cli.outputs import output_file
from spanloom.cli.streams import reader_may_leave
from spanloom.cli.traces.exports import Export, Validate
from spanloom.errors import SpanloomError
from spanloom.families.traces.encoding.tokenizer import load_tokenizer
from spanloom.families.traces.export.file import ExportCounts, TokenColumns, records, write_file, write_lines
from spanloom.families.traces.export.lines import ExportOptions
from spanloom.families.traces.store.manifest import load_ids, read_manifest
from spanloom.families.traces.verify.export import check_export
from spanloom.provenance import readable_json
from spanloom.storage import write_atomically
from spanloom.storage.folders.repeated import already_there
from spanloom.text import visible


def export(given: Export) -> None:
    out, printed = given.out, given.printed
    if (given.offsets or given.max_length is not None) and given.tokenizer is None:
        raise typer.BadParameter("--offsets and --max-length need --tokenizer")
    if given.lines.system and given.form == "trace":
        raise typer.BadParameter("--system is put before the prompt of the other formats; trace has the prompt alone")
    if printed.as_json and out == "-":
        raise typer.BadParameter("--json prints on stdout, where the export goes: give --out FILE")
    if out != "-":
        output_file(Path(out))
    progress = make_progress(printed.quiet or out == "-", printed.verbose)
    with given.places.opened() as opened:
        ids = read_manifest(given.places.folder, given.key).ids
        rules = ExportOptions(
            control_tokens=given.control_tokens,
            protect_metadata=given.protect_metadata,
            sort_steps=given.lines.sort_steps,
            system=given.lines.system or None,
        )
        tokens = None
        if given.tokenizer is not None:
            tokens = TokenColumns(
                tokenizer=load_tokenizer(given.tokenizer), offsets=given.offsets, max_length=given.max_length
            )
        counts = ExportCounts()
        with opened.snapshot() as snapshot:
            rows = records(snapshot, ids, given.form, rules, tokens, counts)
            if out == "-":
                with reader_may_leave():
                    write_lines(sys.stdout.buffer, rows, len(ids))
            else:
                with progress.stage("export"), progress.counting("export", "traces") as on_progress:
                    write_file(
                        Path(out),
                        rows,
                        given.form,
                        len(ids),
                        tokens,
                        on_progress,
                        overwrite=given.overwrite,
                        on_same=lambda: progress.say(already_there(out)),
                    )
    totals = counts.as_dict(tokens=tokens is not None)
    if printed.as_json:
        print_json({"dataset_key": given.key, "format": given.form, "file": out, **totals})
    elif not printed.quiet:
        print(", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in totals.items()), file=sys.stderr)


def validate(given: Validate) -> None:
    if not given.file.is_file():
        raise SpanloomError("there is no such file", where=str(given.file))
    checked = check_export(given.file, given.form, None if given.manifest is None else load_ids(given.manifest))
    result = checked.as_dict()
    if given.report is not None:
        write_atomically(given.report, readable_json(result))
    if given.as_json:
        print_json(result)
    else:
        for finding in checked.report.findings:
            prefix = f"line {finding.line}: " if finding.line else ""
            print(visible(f"{prefix}{finding.code} {finding.message}"))
        print(f"{checked.lines:,} lines, {result['errors']:,} errors, {result['warnings']:,} warnings", file=sys.stderr)
    if checked.report.exit_code:
        raise typer.Exit(checked.report.exit_code)
