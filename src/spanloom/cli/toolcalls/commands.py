"""`spanloom toolcalls …`: public sources → samples → validated, merged, paired; a spot check, the service."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import print_json, say, toolcalls_app
from spanloom.cli.outputs import file_option, folder_option, write_page
from spanloom.cli.toolcalls import options as toolcalls_options
from spanloom.cli.toolcalls.options import MixOptions, ReadOptions, one_target, sample_files
from spanloom.errors import SourceError
from spanloom.families.toolcalls import defaults
from spanloom.options.option import option, place


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


@dataclass(frozen=True, kw_only=True)
class OwnMessages:
    """What records of messages do not say themselves, and how they are joined."""

    split: Annotated[Literal["harmful", "retain"] | None, option("messages: the split of records that name none.")] = (
        None
    )
    labels: Annotated[
        Path | None,
        option(
            'messages: a JSON Lines file of split and labels by id, such as {"id": …, "split": "harmful", '
            '"expected_tool": …}. Default: keys of the records themselves.'
        ),
    ] = None
    join_consecutive: Annotated[
        bool,
        option(
            "Messages of the assistant in a row become one, a blank line between. Default: such an answer is left out.",
            "--join-consecutive",
        ),
    ] = False


@toolcalls_app.command("convert")
def convert(
    *,
    source: toolcalls_options.Source,
    place: Annotated[
        Path | None,
        option(
            "File or folder of the source (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also .gz or .zst), or a folder "
            "of `save_to_disk`. Default: data/fujitsu, data/agent_dojo, data/tau2_repo.",
            "--input",
        ),
    ] = None,
    out: Annotated[Path, folder_option("Folder for harmful/, retain/ and rejects/.")] = Path(defaults.SAMPLES_DIR),
    completions: Annotated[
        Path | None, option("File of assistant turns for sources without (JSON Lines: id, text, model, …).")
    ] = None,
    system: Annotated[
        str | None,
        option(
            "System message of records without one; else they are left out (M3). τ²-bench: the policy of a run is one.",
            metavar="TEXT|FILE",
        ),
    ] = None,
    turns: toolcalls_options.Turns = "last",
    tools: Annotated[str, option("Registry of tools that B4's samples name.")] = defaults.B4_TOOLS,
    security_means: Annotated[
        Literal["by-shape", "resisted", "attack-succeeded"],
        option(
            "What security: true means in AgentDojo's traces. by-shape: in files of AgentDojo's own runs and "
            "its published traces that the attack succeeded, elsewhere that it was resisted."
        ),
    ] = "by-shape",
    goals: Annotated[
        Path | None,
        option(
            "JSON file of what AgentDojo's injection tasks ask for: suite → injection_task_id → goal. "
            "Default: those of an installed agentdojo, else the marks of its attacks alone."
        ),
    ] = None,
    min_reward: Annotated[
        float | None, option("TAU2: leave out simulations with a smaller reward, or without one. 1 takes successes.")
    ] = None,
    own: OwnMessages,
    reading: ReadOptions,
) -> None:
    """Turn a public source into samples. Prints what was written and what was left out, by reason, as JSON.

    Messages are read as `spanloom convert` reads them, in all its forms. Thoughts are left out and counted; a message
    that is marked as untrained is only context; an answer that a limit of tokens cut off is left out.

    Everything that is written passes `validate --strict`; what could not is in rejects/ with its place and reason. For
    AgentDojo a table of labels (`told as`) and outcomes is printed to stderr, for all sources the first record left
    out for a reason with a remedy, what was left out of messages, and the files that were not read.
    """
    from spanloom.families.toolcalls.convert.drafts import Options
    from spanloom.families.toolcalls.convert.goals import read_goals
    from spanloom.families.toolcalls.convert.messages import read_labels
    from spanloom.families.toolcalls.convert.sources import INPUTS, outcome_table, summary
    from spanloom.families.toolcalls.convert.sources import convert as convert_source

    if place is None:
        if source not in INPUTS:
            raise typer.BadParameter(f"{source} has no usual place: give --input")
        place = Path(INPUTS[source])
    if goals is not None and source != "agentdojo":
        raise typer.BadParameter("--goals is for --from agentdojo")
    if min_reward is not None and source != "tau2":
        raise typer.BadParameter("--min-reward is for --from tau2")
    if source != "messages" and (own.split is not None or own.labels is not None):
        raise typer.BadParameter("--split and --labels are for --from messages")
    goals_by_task = None if goals is None else read_goals(goals)
    options = Options(
        system=_text_or_file(system),
        turns=turns,
        tools=tools,
        security_means=security_means,
        goals=goals_by_task,
        min_reward=min_reward,
        split=own.split,
        labels={} if own.labels is None else read_labels(own.labels),
        reading=reading.reading(),
        join_consecutive=own.join_consecutive,
    )
    converted = convert_source(source, place, out, options, completions)
    print_json(converted.as_dict())
    for line in [*outcome_table(converted), *summary(converted)]:
        say(line, file=sys.stderr)


def _text_or_file(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        is_file = Path(value).is_file()
    except OSError:  # a text that is too long for a name
        is_file = False
    if not is_file:
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        raise SourceError(f"the file is not UTF-8: {fault.reason}", where=value, remedy="fix --system") from None


@toolcalls_app.command("serve")
def serve(
    *,
    serving: options.Serving,
    token_file: Annotated[
        Path | None, option("A file with the bearer token. Default: $SPANLOOM_SERVICE_TOKEN, else none.")
    ] = None,
    max_bytes: Annotated[int, option("The largest body that is accepted.", min=1024)] = defaults.BODY_MAX_BYTES,
    tools_dir: toolcalls_options.ToolsDir = None,
) -> None:
    """Serve the validator, the schema and the registries over HTTP; /docs lists all requests.

    Needs `pip install 'spanloom[serve]'`. `spanloom traces serve` has these routes beside its own.
    """
    from spanloom.errors import SpanloomError

    try:
        from spanloom.families.toolcalls.service.application import toolcalls_application
        from spanloom.service.access import check_address, read_token
        from spanloom.service.serving import serve as serve_application
    except ImportError as missing:
        raise SpanloomError(f"this needs the package {missing.name}", remedy="pip install 'spanloom[serve]'") from None
    token = read_token(token_file)
    check_address(serving.host, token)
    application = toolcalls_application(tools_dir=tools_dir, token=token, max_bytes=max_bytes, guards=serving.guards())
    serve_application(
        application,
        host=serving.host,
        port=serving.port,
        what="tool calls",
        header_seconds=serving.header_seconds,
    )


@toolcalls_app.command("demo")
def demo(
    out: Annotated[str, place("Folder or URI for the files.")],
    scratch: options.Scratch = None,
) -> None:
    """Write small data of our own in the shapes of the five sources, with a chat template and a tokenizer."""
    from spanloom.families.toolcalls.samples.sample import run

    say(f"{out}: {', '.join(run(out=out, scratch=scratch))}")
