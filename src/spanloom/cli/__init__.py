"""The `spanloom` command: one function call per subcommand, and the one place where errors become exit codes.

    dataset/        any dataset: validate, inspect, stats, manifest, export, plan, fetch, blend
    harmony         SYNTH KD and conversations: sample, convert-synth, build, fetch-tokenizer, and its steps
    convert         chat data in any known form → a source of conversations
    chat            packed chat: chat sample, generate, pack, and its steps
    chess           chess: chess sample, convert, prepare, validate, inspect, report, and its steps
    models/         any Hugging Face model: model probe, model sample, audit, teacher, and its step
    pipelines/      whole pipelines: tasks
    traces/         reasoning traces, and their steps
    toolcalls/      tool calls, and their steps
    run/            what the commands do whose libraries take long to load

    declared        commands made from dataclasses of options
    options         options shared by several commands
    outputs         checks of output paths
    streams         stdout and stderr, guarded
    steps           passes options to the steps of pipelines
    app             the typer apps, and what all commands share
    lazy            imports a command's file when the command runs
    help            the text of --help

Exit codes: 0 success · 1 stopped with an error · 2 wrong usage · 4 validation found something · 5 done, but the result
could not be written to stdout · 130 interrupted · 141 the reader of `inspect` closed the pipe, as `head` does.
stdout carries results (a table, or JSON with `--json`), stderr everything else.
"""

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from spanloom.cli.app import app, executor_here
from spanloom.cli.streams import flush_results, give_up_results, guard_streams, show_warnings
from spanloom.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_READER_GONE,
    EXIT_USAGE,
    OutputError,
    ReaderGoneError,
    SpanloomError,
    StorageError,
    missing_package,
)
from spanloom.kubeflow import split_arguments
from spanloom.presentable import is_store_with_access, presentable
from spanloom.storage.local import refused_access
from spanloom.storage.temporaries import check_temporary_folder
from spanloom.text import is_utf8, visible, visible_line

_REMEDIES = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "your quota is used up: free some space and run the same command again",
    errno.EACCES: "look at the permissions of this path, or give another place",
    errno.EPERM: "look at the permissions of this path, or give another place",
    errno.EROFS: "the file system is mounted read-only: give another place",
    errno.EIO: "the disk or its connection failed: look at the system's log, then run the same command again",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`), or give a place whose file system takes larger files",
    errno.ELOOP: "a link leads to itself: look at the links of this path",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "too many files are open on this machine: close some",
}


_UsageError: Any = typer.BadParameter.__base__
"""click's UsageError, which typer vendors and does not export."""

_KEEP_PARTS = (("build",), ("convert",), ("fetch",), ("chess", "prepare"), ("step", "render-shard"))
"""Commands that keep their finished parts when they end early; all others start over."""


_SHOW_ONLY = (("inspect",), ("chess", "inspect"))
"""Commands whose only result is what they print."""

_EXTRAS = {
    "megatron": ("torch", "megatron"),
    "train": ("tensorboard",),
    "gcs": ("google",),
    "s3": ("boto3", "botocore"),
    "hub": ("huggingface_hub",),
    "chess": ("chess",),
    "traces": ("sqlalchemy",),
    "postgres": ("psycopg",),
    "hf": ("transformers",),
    "serve": ("fastapi", "prometheus_client", "uvicorn", "yaml"),
    "croissant": ("mlcroissant",),
}
"""Extra of Spanloom → the packages that it installs. `tokenizers` is in several extras."""


def main() -> None:
    """Runs the command and turns errors into messages and exit codes."""
    guard_streams()
    show_warnings()
    code = _run(sys.argv[1:])
    try:
        flush_results()
    except OutputError as error:
        code = code or _unwritten(error, sys.argv[1:])
    sys.exit(code)


def _run(words: list[str]) -> int:
    try:
        arguments, executor = split_arguments(words)
        _check_text(arguments)
        executor_here.set(executor)
        code: int | None = app(arguments, standalone_mode=False)
        if code == EXIT_INTERRUPTED:
            print(_interrupted(words), file=sys.stderr)
        return code or 0
    except _UsageError as wrong:
        from typer import rich_utils

        if type(wrong).__name__ == "NoArgsIsHelpError":  # its message is the help, and typer leaves printing it to us
            print(wrong.message, file=sys.stderr)
            return EXIT_USAGE
        # typer puts pydantic's prefix before its own texts.
        wrong.message = visible_line(presentable(wrong.message or "")).removeprefix("Value error, ")
        rich_utils.rich_format_error(wrong)
        return EXIT_USAGE
    except OutputError as error:
        give_up_results()
        return _unwritten(error, words)
    except ModuleNotFoundError as missing:
        if (extra := _extra_of(missing, words)) is None:
            print(visible(traceback.format_exc()), end="", file=sys.stderr)
            return EXIT_FAILURE
        return _fail(missing_package((missing.name or "").partition(".")[0], extra))
    except SpanloomError as error:
        return _fail(error)
    except OSError as error:
        return _fail(_refused(error, words))
    except MemoryError:
        return _fail(SpanloomError("out of memory", remedy=_MEMORY))
    except Exception as fault:
        if isinstance(fault, ImportError) and not (fault.name or "").startswith("spanloom"):
            return _fail(SpanloomError(f"a library cannot be loaded: {fault}", remedy=_LIBRARY))
        cause = fault.__context__
        if isinstance(fault, RuntimeError) and isinstance(cause, OSError) and cause.errno == errno.ELOOP:
            return _fail(_refused(cause, words))  # Path.resolve before Python 3.13
        # A fault of this program: its traceback is shown without passwords and keys.
        print(visible(presentable(traceback.format_exc())), end="", file=sys.stderr)
        return EXIT_FAILURE


def _refused(error: OSError, words: Sequence[str]) -> SpanloomError:
    """What the system refused, with its place and a remedy."""
    try:
        check_temporary_folder()
    except SpanloomError as without:
        return without
    except OSError as again:
        error = again
    message = error.strerror or str(error)
    if error.errno == errno.ENOENT and not _has_current_folder():
        return SpanloomError("the current folder was removed", remedy="change to a folder that exists")
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else _unnamed(words)
    if error.errno in (errno.EACCES, errno.EPERM) and (refused := refused_access(Path(path))) is not None:
        return SpanloomError(f"{message}: {refused[0]}", where=path, remedy=refused[1])
    return SpanloomError(message, where=path, remedy=_REMEDIES.get(error.errno or 0, "check the path"))


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


_LIBRARY = "raise the limit of memory if there is one, look at PYTHONPATH, or install the packages again"
_MEMORY = "raise the limit (of the container, of the job, `ulimit -v`), or lower --workers if the command has it"


def _unnamed(words: Sequence[str]) -> str:
    """The place of a fault that names no file, such as a write to an open file on a full disk."""
    output = next((after for word, after in pairwise(words) if word == "--out"), "not given")
    return f"(unknown): the output is {output}, temporary files go to {tempfile.gettempdir()}"


def _unwritten(error: OutputError, words: Sequence[str]) -> int:
    """The exit code if stdout could not be written. For a command that only shows, a reader that left is no failure."""
    if isinstance(error, ReaderGoneError) and any(words[: len(command)] == [*command] for command in _SHOW_ONLY):
        return EXIT_READER_GONE
    return _fail(error)


def _extra_of(missing: ModuleNotFoundError, words: Sequence[str]) -> str | None:
    """The extra that installs a missing package; None if there is none."""
    package = (missing.name or "").partition(".")[0]
    if package == "tokenizers":
        return next((word for word in words[:1] if word in ("chat", "traces", "toolcalls")), "data")
    return next((extra for extra, packages in _EXTRAS.items() if package in packages), None)


NO_KEYS = "give gs://bucket/key or s3://bucket/key; keys come from the environment, a profile or a role"


_PLACES = frozenset(
    f"--{name}"
    for name in (
        "out",
        "output",
        "source",
        "root",
        "model",
        "work",
        "raw",
        "input",
        "scratch",
        "report",
        "html",
        "data",
    )
)
"""Options that take a place."""


def _check_text(arguments: Sequence[str]) -> None:
    """Raises SpanloomError for an argument that is not UTF-8: Parquet's reader and manifests require UTF-8 names; and
    for an address with keys, which a path, a name or a manifest could show."""
    for before, argument in pairwise(["", *arguments]):
        if not argument and (not before.startswith("-") or before in _PLACES):
            remedy = "give a path or a URI; the current folder is `.`"
            raise SpanloomError(f"an empty text is no place{before and ' ('}{before}{before and ')'}", remedy=remedy)
        if not is_utf8(argument):
            raise SpanloomError("this argument is not UTF-8", where=argument, remedy="rename the file or folder")
        if is_store_with_access(argument.partition("=")[2] if argument.startswith("--") else argument):
            raise StorageError("this address holds keys or a signature", where=argument, remedy=NO_KEYS)


def _interrupted(words: list[str]) -> str:
    """The message of a command that was ended by Ctrl-C."""
    keeps = any(words[: len(command)] == list(command) for command in _KEEP_PARTS)
    return "interrupted" + (": the same command resumes from what it had finished" if keeps else "")


def _fail(error: SpanloomError) -> int:
    from rich.console import Console
    from rich.text import Text

    text = Text(visible(f"error: {error}"), style="red")
    Console(stderr=True).print(text, soft_wrap=True)
    if {"-v", "--verbose"} & set(sys.argv):
        print(visible(presentable(traceback.format_exc())), end="", file=sys.stderr)
    return error.exit_code
