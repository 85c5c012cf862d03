"""`spanloom toolcalls validate`, `merge`, `sample`, `batches`: samples → checked, merged, shown, paired."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from spanloom.cli.app import toolcalls_app
from spanloom.cli.outputs import file_option
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls import options as toolcalls_options
from spanloom.options.option import option
from spanloom.options.shared import OverwriteFile


@toolcalls_app.command("validate")
@dataclass(frozen=True, kw_only=True)
class Validate:
    """Check samples by all rules: format, fields, ids, duplicates, tools, labels. Batches are checked by member.

    Exits with 0 unless --strict is given and there are errors (4). Warnings never fail.
    """

    data: Annotated[str | None, option("One file of samples (JSON Lines).", metavar="FILE")] = None
    data_dir: Annotated[str | None, option("All *.jsonl below a folder.", metavar="DIR")] = None
    split: Annotated[Literal["harmful", "retain"] | None, option("The split that every sample must be of.")] = None
    strict: Annotated[bool, option("Exit with 4 when there are errors.", "--strict")] = False
    require_system: Annotated[
        bool | None,
        option(
            "A sample without a system message is an error, not a warning. Default: on with --strict.",
            "--require-system/--no-require-system",
            show_default=False,
        ),
    ] = None
    allow_markdown_in_arguments: Annotated[
        bool, option("A fence inside the strings of a call is no error (R5).", "--allow-markdown-in-arguments")
    ] = False
    tools_dir: toolcalls_options.ToolsDir = None
    report: Annotated[
        Path | None, file_option("Write the report to a file too: JSON, or a page where it ends in .html.")
    ] = None
    form: Annotated[Literal["text", "json", "html"], option("What is printed.", "--format")] = "text"


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
@dataclass(frozen=True, kw_only=True)
class Merge:
    """Merge all samples of both splits into one file, without duplicates, in a seeded order.

    Nothing is written unless all is well. An id with two contents, or a content in both splits, stops the merge.
    """

    output: Annotated[Path, file_option("File for the samples to train on (JSON Lines).")] = Path(defaults.MERGED)
    harmful_dir: Annotated[Path, option("Folder of files of harmful samples.")] = Path(defaults.HARMFUL_DIR)
    retain_dir: Annotated[Path, option("Folder of files of samples to retain.")] = Path(defaults.RETAIN_DIR)
    eval_output: Annotated[Path | None, file_option("File for the samples held out.")] = None
    mix: toolcalls_options.MixOptions
    chosen: ChosenOptions
    gates: GateOptions
    stats: Annotated[Path | None, file_option("File for the numbers of the merge (JSON).")] = None
    compat: Annotated[bool, option("Reproduce the original program: its ids, its order, its faults.", "--compat")] = (
        False
    )
    overwrite: OverwriteFile = False


@toolcalls_app.command("sample")
@dataclass(frozen=True, kw_only=True)
class Sample:
    """Show a few samples of each source, for a spot check."""

    data: Annotated[str | None, option("One file of samples.", metavar="FILE")] = None
    data_dir: Annotated[str | None, option("All *.jsonl below it.", metavar="DIR")] = None
    per_source: Annotated[int, option("Samples of each source.", min=1)] = defaults.SAMPLES_PER_SOURCE
    seed: Annotated[int, option("Another seed draws other samples.")] = defaults.SEED
    html: Annotated[Path | None, file_option("Write a page instead.")] = None


@toolcalls_app.command("batches")
@dataclass(frozen=True, kw_only=True)
class Batches:
    """Pair each harmful sample with retain samples, in batches of one JSON object a line."""

    data: Annotated[Path, option("File of merged samples.")] = Path(defaults.MERGED)
    output: Annotated[Path, file_option("File for the batches (JSON Lines).")] = Path(defaults.BATCHES)
    benign_per_harmful: Annotated[int, option("Retain samples beside each harmful one.", min=1)] = (
        defaults.BENIGN_PER_HARMFUL
    )
    seed: Annotated[int, option("The same seed gives the same batches.")] = defaults.SEED
    require_tool_calls_harmful: toolcalls_options.RequireToolCalls = False
    max_harmful: Annotated[int | None, option("At most this many harmful samples.", min=0)] = None
    compat: Annotated[bool, option("Write no `id` for a batch, as the original program.", "--compat")] = False
    overwrite: OverwriteFile = False
