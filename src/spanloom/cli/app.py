"""The frame of the command: the typer apps that commands join, and code that all commands share.

In: results. Out: JSON on stdout, progress on stderr, an exit code, Kubeflow's output files.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from spanloom.cli.declared import Commands
from spanloom.cli.lazy import load_lazily
from spanloom.cli.options import Json, Quiet, Verbose
from spanloom.errors import OutputError
from spanloom.kubeflow import Executor
from spanloom.options.option import option
from spanloom.provenance import check_code, git_sha
from spanloom.storage.locks import TAKE_OVER_VARIABLE
from spanloom.text import visible, visible_json

if TYPE_CHECKING:  # imported on use: `--help` should not wait for pyarrow and openai-harmony
    from spanloom.dataset.family import DatasetFamily
    from spanloom.dataset.manifest import Manifest
    from spanloom.findings import Report
    from spanloom.report.progress import Progress

app = Commands(
    name="spanloom",
    help="Token datasets with a proven loss mask, of chat data, reasoning traces, tool calls and chess games.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: cli/help.py
    context_settings={"help_option_names": ["-h", "--help"]},
)
MAKE, LOOK, TRAIN = "Make a dataset", "Look at a dataset", "Bring a dataset to a trainer"
FAMILIES, PIPELINE = "Other families of data", "Pipelines and set-up"
"""Headings of `spanloom --help`."""

step_app = Commands(name="step", no_args_is_help=True, help="Run one step of the pipeline, as its container does.")
work_app = Commands(no_args_is_help=True, help="List or remove what the steps of a pipeline left for each other.")
manifest_app = Commands(no_args_is_help=True, help="Show the manifest of a dataset, or compare two.")
chat_app = Commands(
    no_args_is_help=True,
    help="Packed chat: transcripts, and blocks with loss on the answers alone (POST_TRAINING=1).\n\n"
    "Two variables of the environment count: POST_TRAINING=1 is --post-training, of `pack` and of the training "
    "example, docs/examples/training/chat.py; WARMUP_PCT, from 0 to 1, is --warmup-pct of the example.",
)
chess_app = Commands(no_args_is_help=True, help="Chess: games and engine variations as training batches.")
toolcalls_app = Commands(no_args_is_help=True, help="Tool calls: harmful and retain samples for safety training.")
model_app = Commands(
    no_args_is_help=True, help="Hugging Face models: fetch tokenizers and templates, report what a template proves."
)
teacher_app = Commands(no_args_is_help=True, help="A teacher's log-probabilities at each trained label of a dataset.")
traces_app = Commands(
    no_args_is_help=True, help="Reasoning traces: a store, reproducible datasets of it, exports, token datasets."
)
app.add_typer(step_app, name="step", rich_help_panel=PIPELINE)
app.add_typer(work_app, name="work", rich_help_panel=PIPELINE)
app.add_typer(manifest_app, name="manifest", rich_help_panel=LOOK)
app.add_typer(chat_app, name="chat", rich_help_panel=FAMILIES)
app.add_typer(chess_app, name="chess", rich_help_panel=FAMILIES)
app.add_typer(toolcalls_app, name="toolcalls", rich_help_panel=FAMILIES)
app.add_typer(model_app, name="model", rich_help_panel=MAKE)
app.add_typer(teacher_app, name="teacher", rich_help_panel=TRAIN)
app.add_typer(traces_app, name="traces", rich_help_panel=FAMILIES)

load_lazily(
    app,
    {
        "convert": ("convert",),
        "dataset.look": ("validate", "inspect"),
        "dataset.describe": ("stats",),
        "dataset.export": ("export", "plan", "fetch", "blend"),
        "harmony": ("build", "convert-synth", "sample", "fetch-tokenizer"),
        "models.audit": ("audit",),
        "pipelines.tasks": ("tasks",),
        "pipelines.preflight": ("preflight",),
    },
)
load_lazily(work_app, {"pipelines.work": ("clear",)})
load_lazily(manifest_app, {"dataset.describe": ("show", "diff")})
load_lazily(
    step_app,
    {
        "chat": ("generate-chat", "pack-chat"),
        "chess": ("prepare-chess", "assemble-chess", "validate-chess"),
        "dataset.look": ("validate-alignment", "assemble-dataset", "validate-shard", "assemble-validation"),
        "harmony": (
            *("convert-shard", "assemble-source"),
            *("verify-tokenizer", "render-shard", "assemble-split", "write-indexed", "assemble-manifest"),
        ),
        "models.steps": ("tokenize-conversations", "score-teacher", "validate-teacher", "join-teacher"),
        "toolcalls.steps": tuple(f"{name}-toolcalls" for name in ("convert", "validate", "merge", "audit", "tokenize")),
        "traces.steps": tuple(f"{name}-traces" for name in ("ingest", "build", "export", "validate", "tokenize")),
    },
)
load_lazily(chat_app, {"chat": ("sample", "generate", "pack")})
load_lazily(chess_app, {"chess": ("sample", "convert", "prepare", "validate", "inspect", "report")})
load_lazily(model_app, {"models.commands": ("probe", "sample", "fetch")})
load_lazily(teacher_app, {"models.teacher": ("score", "carry", "import", "rank", "stats", "validate")})
load_lazily(
    toolcalls_app,
    {
        "toolcalls.samples": ("validate", "merge", "sample", "batches"),
        "toolcalls.commands": ("convert", "serve", "demo"),
        "toolcalls.tokens": ("audit", "mask", "export", "tokenize"),
    },
)
load_lazily(
    traces_app,
    {
        "traces.ingest": ("sample", "ingest"),
        "traces.commands": ("list", "show", "delete", "build"),
        "traces.exports": ("export", "validate", "tokenize", "serve"),
    },
    options_in="traces.options",
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, option("Print the version and the git SHA, and exit.", "--version")] = False,
    take_over: Annotated[
        bool,
        option(
            "Take over a folder that a dead run on another machine has claimed, on a file system without locks. Only "
            "if that run has ended.",
            "--take-over",
        ),
    ] = False,
) -> None:
    if take_over:
        os.environ[TAKE_OVER_VARIABLE] = "1"
    if version:
        from spanloom import __version__

        say(f"spanloom {__version__} ({git_sha()})")
        raise typer.Exit


@step_app.callback()
def _of_one_commit() -> None:
    check_code()


executor_here: ContextVar[Executor | None] = ContextVar("executor_here", default=None)
"""Kubeflow's executor input if this process is a task of a pipeline, otherwise None."""


def print_json(value: Any) -> None:
    print(visible_json(json.dumps(value, indent=2, ensure_ascii=False)))


def say(text: str, *, end: str = "\n", file: TextIO | None = None) -> None:
    """Prints text of any origin, without control sequences for the terminal."""
    print(visible(text), end=end, file=file)


def counted(counts: Mapping[str, int]) -> str:
    """`{"too long": 1000}` → `1,000 too long`"""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"


def make_progress(quiet: bool, verbose: bool) -> "Progress":
    from spanloom.report.progress import Mode, Progress

    if quiet:
        logging.getLogger().setLevel(logging.ERROR)
    return Progress(mode=Mode.SILENT if quiet else None, verbose=verbose)


@dataclass(frozen=True, kw_only=True)
class Printed:
    """The options about what a command prints."""

    as_json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False

    def progress(self) -> "Progress":
        return make_progress(self.quiet, self.verbose)


@contextmanager
def exit_by(report: "Report") -> Iterator[None]:
    """Exits with the code of the findings after the block has printed them. Findings outrank a failure to print."""
    try:
        yield
    except OutputError:
        if not report.exit_code:
            raise
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def is_step(context: typer.Context) -> bool:
    """Whether a command that is also a step was called as `spanloom step …`."""
    return context.parent is not None and context.parent.command.name == step_app.info.name


def finish_step(result: dict[str, Any], metadata: Callable[[dict[str, Any]], dict[str, dict[str, Any]]]) -> None:
    """Prints the result of a step; in a pipeline writes it for Kubeflow. `metadata`: the step's `artifact_metadata`."""
    if executor := executor_here.get():
        executor.write(metadata(result))  # first: the pipeline needs it even if stdout cannot be written
    print_json(result)


def finish_build(family: "DatasetFamily", root: Path, written: "Manifest", report: "Report", *, as_json: bool) -> None:
    """Prints the result of a build, and exits with the code of its findings."""
    from rich.console import Console

    from spanloom.report.summary import result_json, show_result

    with exit_by(report):
        if as_json:
            print_json(result_json(root, written, report))
        else:
            show_result(Console(), root, written, family.describe(written.content), report)
