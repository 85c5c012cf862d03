"""`spanloom toolcalls validate`, `merge`, `sample`, `batches`: samples → checked, merged, shown, paired."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from spanloom.cli.app import print_json, say, toolcalls_app
from spanloom.cli.outputs import file_option, write_page
from spanloom.cli.toolcalls import options as toolcalls_options
from spanloom.cli.toolcalls.options import MixOptions, one_target, sample_files
from spanloom.families.toolcalls import defaults
from spanloom.options.option import option


@toolcalls_app.command("validate")
def validate(
    data: Annotated[str | None, option("One file of samples (JSON Lines).", metavar="FILE")] = None,
    data_dir: Annotated[str | None, option("All *.jsonl below a folder.", metavar="DIR")] = None,
    split: Annotated[Literal["harmful", "retain"] | None, option("The split that every sample must be of.")] = None,
    strict: Annotated[bool, option("Exit with 4 when there are errors.", "--strict")] = False,
    require_system: Annotated[
        bool | None,
        option(
            "A sample without a system message is an error, not a warning. Default: on with --strict.",
            "--require-system/--no-require-system",
            show_default=False,
        ),
    ] = None,
    allow_markdown_in_arguments: Annotated[
        bool, option("A fence inside the strings of a call is no error (R5).", "--allow-markdown-in-arguments")
    ] = False,
    tools_dir: toolcalls_options.ToolsDir = None,
    report: Annotated[
        Path | None, file_option("Write the report to a file too: JSON, or a page where it ends in .html.")
    ] = None,
    form: Annotated[Literal["text", "json", "html"], option("What is printed.", "--format")] = "text",
) -> None:
    """Check samples by all rules: format, fields, ids, duplicates, tools, labels. Batches are checked by member.

    Exits with 0 unless --strict is given and there are errors (4). Warnings never fail.
    """
    import json

    from spanloom.families.toolcalls.format.tools import load_registries
    from spanloom.families.toolcalls.report import exit_code, html_report, json_report, text_report
    from spanloom.families.toolcalls.rules import Rules
    from spanloom.families.toolcalls.validation import validate_files
    from spanloom.storage import write_atomically

    target = one_target(data, data_dir)
    files = sample_files(target, folder=data_dir is not None)
    system_is_required = strict if require_system is None else require_system
    rules = Rules(
        registries=load_registries(tools_dir),
        require_system=system_is_required,
        split=split,
        allow_markdown_in_arguments=allow_markdown_in_arguments,
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
    if report is not None:
        values = json.dumps(json_report(run, target, strict=strict), ensure_ascii=False, indent=1) + "\n"
        written = html_report(run, target) if report.suffix in {".html", ".htm"} else values
        write_atomically(report, written.encode())
    if form == "json":
        print_json(json_report(run, target, strict=strict))
    else:
        say(text_report(run, target, strict=strict) if form == "text" else html_report(run, target), end="")
    if form == "text" and report is None and run.findings:
        say("where each finding is: --format json, or --report FILE.html", file=sys.stderr)
    if run.errors and not strict:
        say("errors end the command with 0 unless --strict is given, with 4 then", file=sys.stderr)
    if code := exit_code(run, strict=strict):
        raise typer.Exit(code)


@dataclass(frozen=True, kw_only=True)
class ChosenOptions:
    """Which samples are taken, and how often."""

    max_per_source: Annotated[int | None, option("Use only the first N samples of each file.", min=1)] = None
    shuffle: Annotated[bool, option("Shuffle, or sort by id.", "--shuffle/--no-shuffle")] = True
    oversample: Annotated[bool, option("Repeat retain samples if there are too few.", "--oversample")] = False


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What stops a merge."""

    min_ratio: Annotated[
        float | None, option(f"Stop below this ratio; with --validate {defaults.MIN_RATIO:g} by default.")
    ] = None
    min_adversarial_safe: Annotated[
        int | None, option(f"Stop below this number; with --validate {defaults.MIN_ADVERSARIAL_SAFE} by default.")
    ] = None
    validate: Annotated[bool, option("Stop at errors in samples, and check both limits.", "--validate")] = False

    def usual(self) -> "GateOptions":
        """With the usual limits in the place of those that are not given, if samples are validated."""
        usual = {"min_ratio": defaults.MIN_RATIO, "min_adversarial_safe": defaults.MIN_ADVERSARIAL_SAFE}
        missing = {name: limit for name, limit in usual.items() if self.validate and getattr(self, name) is None}
        return replace(self, **missing)  # type: ignore[arg-type]


@toolcalls_app.command("merge")
def merge(
    *,
    output: Annotated[Path, file_option("File for the samples to train on (JSON Lines).")] = Path(defaults.MERGED),
    harmful_dir: Annotated[Path, option("Folder of files of harmful samples.")] = Path(defaults.HARMFUL_DIR),
    retain_dir: Annotated[Path, option("Folder of files of samples to retain.")] = Path(defaults.RETAIN_DIR),
    eval_output: Annotated[Path | None, file_option("File for the samples held out.")] = None,
    mix: MixOptions,
    chosen: ChosenOptions,
    gates: GateOptions,
    stats: Annotated[Path | None, file_option("File for the numbers of the merge (JSON).")] = None,
    compat: Annotated[
        bool, option("Reproduce the original program: its ids, its order, its faults.", "--compat")
    ] = False,
) -> None:
    """Merge all samples of both splits into one file, without duplicates, in a seeded order.

    Nothing is written unless all is well. An id with two contents, or a content in both splits, stops the merge.
    """
    import json

    from spanloom.errors import EXIT_FAILURE
    from spanloom.families.toolcalls.format.source import check_outside
    from spanloom.families.toolcalls.merge.compatible import MergedAsOriginal, merge_as_original
    from spanloom.families.toolcalls.merge.merged import MergeOptions, lines_of_samples
    from spanloom.families.toolcalls.merge.merged import merge as merge_samples
    from spanloom.storage import write_atomically

    if mix.eval_fraction and eval_output is None and not compat:
        raise typer.BadParameter("--eval-fraction holds samples out: say where with --eval-output")
    options = MergeOptions(**vars(mix), **vars(chosen), **vars(gates.usual()))
    for written in (output, eval_output):
        if written is not None:
            check_outside(written, harmful_dir, retain_dir)
    merged = (merge_as_original if compat else merge_samples)(harmful_dir, retain_dir, options)
    write_atomically(output, lines_of_samples(merged.train))
    if eval_output is not None:
        write_atomically(eval_output, lines_of_samples(merged.evaluation))
    if stats is not None:
        write_atomically(stats, (json.dumps(merged.stats, ensure_ascii=False, indent=2) + "\n").encode())
    print_json(merged.stats)
    if isinstance(merged, MergedAsOriginal) and gates.validate and merged.failed_gates:
        say("gates: " + "; ".join(merged.failed_gates), file=sys.stderr)
        raise typer.Exit(EXIT_FAILURE)


@toolcalls_app.command("sample")
def sample(
    data: Annotated[str | None, option("One file of samples.", metavar="FILE")] = None,
    data_dir: Annotated[str | None, option("All *.jsonl below it.", metavar="DIR")] = None,
    per_source: Annotated[int, option("Samples of each source.", min=1)] = defaults.SAMPLES_PER_SOURCE,
    seed: Annotated[int, option("Another seed draws other samples.")] = defaults.SEED,
    html: Annotated[Path | None, file_option("Write a page instead.")] = None,
) -> None:
    """Show a few samples of each source, for a spot check."""
    from spanloom.families.toolcalls.merge.spot_check import page, spot_check, text_lines

    target = one_target(data, data_dir)
    files = sample_files(target, folder=data_dir is not None)
    shown = spot_check(files, per_source, seed)
    if html is not None:
        write_page(html, page(shown, f"Samples of {target}"))
        return
    for line in text_lines(shown):
        say(line)


@toolcalls_app.command("batches")
def batches(
    data: Annotated[Path, option("File of merged samples.")] = Path(defaults.MERGED),
    output: Annotated[Path, file_option("File for the batches (JSON Lines).")] = Path(defaults.BATCHES),
    benign_per_harmful: Annotated[
        int, option("Retain samples beside each harmful one.", min=1)
    ] = defaults.BENIGN_PER_HARMFUL,
    seed: Annotated[int, option("The same seed gives the same batches.")] = defaults.SEED,
    require_tool_calls_harmful: toolcalls_options.RequireToolCalls = False,
    max_harmful: Annotated[int | None, option("At most this many harmful samples.", min=0)] = None,
    compat: Annotated[bool, option("Write no `id` for a batch, as the original program.", "--compat")] = False,
) -> None:
    """Pair each harmful sample with retain samples, in batches of one JSON object a line."""
    from spanloom.families.toolcalls.format.source import one_file, read_samples
    from spanloom.families.toolcalls.merge.merged import lines_of_samples
    from spanloom.families.toolcalls.tokens.batches import batch_rows, pair
    from spanloom.storage import write_atomically

    samples = [sample for file in one_file(data) for _, sample in read_samples(file)]
    paired = pair(
        samples,
        benign_per_harmful=benign_per_harmful,
        seed=seed,
        require_tool_calls=require_tool_calls_harmful,
        max_harmful=max_harmful,
    )
    write_atomically(output, lines_of_samples(list(batch_rows(paired, with_id=not compat))))
    say(f"{output}: {len(paired):,} batches of 1 harmful and {benign_per_harmful} retain samples")
