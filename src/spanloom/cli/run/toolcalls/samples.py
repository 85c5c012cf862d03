"""`spanloom toolcalls validate`, `merge`, `sample`, `batches`: samples → checked, merged, shown, paired."""

import json
import sys
from functools import partial
from pathlib import Path

import typer

from spanloom.cli.app import print_json, say
from spanloom.cli.outputs import write_page
from spanloom.cli.toolcalls.samples import Batches, Merge, Sample, Validate
from spanloom.errors import EXIT_FAILURE
from spanloom.families.toolcalls.format.source import SampleFile, check_outside, files_below, one_file, read_samples
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.merge.compatible import MergedAsOriginal, merge_as_original
from spanloom.families.toolcalls.merge.merged import MergeOptions, lines_of_samples
from spanloom.families.toolcalls.merge.merged import merge as merge_samples
from spanloom.families.toolcalls.merge.spot_check import page, spot_check, text_lines
from spanloom.families.toolcalls.report import exit_code, html_report, json_report, text_report
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.tokens.batches import batch_rows, pair
from spanloom.families.toolcalls.validation import validate_files
from spanloom.storage import write_atomically
from spanloom.storage.folders.repeated import already_there
from spanloom.storage.folders.repeated_files import all_written_once, written_once


def sample_files(data: str | None, data_dir: str | None) -> tuple[str, list[SampleFile]]:
    """The one of two options that is given, and its files. Raises BadParameter for both and for none."""
    if (data is None) == (data_dir is None):
        raise typer.BadParameter("give either --data or --data-dir")
    target = str(data if data is not None else data_dir)
    return target, one_file(Path(target)) if data is not None else files_below(Path(target))


def say_same(output: Path) -> None:
    """Says that the command was run before with the same result."""
    say(already_there(output), file=sys.stderr)


def validate(given: Validate) -> None:
    target, files = sample_files(given.data, given.data_dir)
    rules = Rules(
        registries=load_registries(given.tools_dir),
        require_system=given.strict if given.require_system is None else given.require_system,
        split=given.split,
        allow_markdown_in_arguments=given.allow_markdown_in_arguments,
    )
    run = validate_files(files, rules)
    if not run.samples:
        say(f"warning: there are no samples in {target}", file=sys.stderr)
    if missing := sum(each.finding.code == "F1" and each.finding.path == "assistant_raw" for each in run.findings):
        say(
            f"warning: {missing:,} of {run.samples:,} rows have no assistant_raw and are no samples; "
            "`spanloom toolcalls convert --from messages` makes samples of OpenAI messages",
            file=sys.stderr,
        )
    if given.report is not None:
        values = json.dumps(json_report(run, target, strict=given.strict), ensure_ascii=False, indent=1) + "\n"
        written = html_report(run, target) if given.report.suffix in {".html", ".htm"} else values
        write_atomically(given.report, written.encode())
    if given.form == "json":
        print_json(json_report(run, target, strict=given.strict))
    else:
        say(text_report(run, target, strict=given.strict) if given.form == "text" else html_report(run, target), end="")
    if given.form == "text" and given.report is None and run.findings:
        say("where each finding is: --format json, or --report FILE.html", file=sys.stderr)
    if run.errors and not given.strict:
        say("errors end the command with 0 unless --strict is given, with 4 then", file=sys.stderr)
    if code := exit_code(run, strict=given.strict):
        raise typer.Exit(code)


def merge(given: Merge) -> None:
    if given.mix.eval_fraction and given.eval_output is None and not given.compat:
        raise typer.BadParameter("--eval-fraction holds samples out: say where with --eval-output")
    options = MergeOptions(**vars(given.mix), **vars(given.chosen), **vars(given.gates.usual()))
    for written in (given.output, given.eval_output):
        if written is not None:
            check_outside(written, given.harmful_dir, given.retain_dir)
    merged = (merge_as_original if given.compat else merge_samples)(given.harmful_dir, given.retain_dir, options)
    contents = {
        given.output: lines_of_samples(merged.train),
        given.eval_output: lines_of_samples(merged.evaluation),
        given.stats: (json.dumps(merged.stats, ensure_ascii=False, indent=2) + "\n").encode(),
    }
    paths = [path for path in contents if path is not None]
    same = partial(say_same, given.output)
    with all_written_once(paths, overwrite=given.overwrite or given.compat, on_same=same) as streams:
        for path, stream in zip(paths, streams, strict=True):
            stream.write(contents[path])
    print_json(merged.stats)
    if isinstance(merged, MergedAsOriginal) and given.gates.validate and merged.failed_gates:
        say("gates: " + "; ".join(merged.failed_gates), file=sys.stderr)
        raise typer.Exit(EXIT_FAILURE)


def sample(given: Sample) -> None:
    target, files = sample_files(given.data, given.data_dir)
    shown = spot_check(files, given.per_source, given.seed)
    if given.html is not None:
        write_page(given.html, page(shown, f"Samples of {target}"))
        return
    for line in text_lines(shown):
        say(line)


def batches(given: Batches) -> None:
    samples = [sample for file in one_file(given.data) for _, sample in read_samples(file)]
    paired = pair(
        samples,
        benign_per_harmful=given.benign_per_harmful,
        seed=given.seed,
        require_tool_calls=given.require_tool_calls_harmful,
        max_harmful=given.max_harmful,
    )
    replaces = given.overwrite or given.compat  # the original program replaces its files
    with written_once(given.output, overwrite=replaces, on_same=partial(say_same, given.output)) as stream:
        stream.write(lines_of_samples(list(batch_rows(paired, with_id=not given.compat))))
    say(f"{given.output}: {len(paired):,} batches of 1 harmful and {given.benign_per_harmful} retain samples")
