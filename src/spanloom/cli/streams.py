"""stdout and stderr of a command. A full disk or a reader that left must not count as a failure of the work.

In: the streams of the process. Out: stdout raises OutputError if it cannot be written, which distinguishes it from
files; stderr, which only reports progress, drops the text instead.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer

from spanloom.errors import EXIT_FAILURE, OutputError, ReaderGoneError
from spanloom.presentable import presentable
from spanloom.text import visible


class _Guarded:
    """A stream of the process, with all its attributes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Results(_Guarded):
    """stdout. Raises OutputError; characters that cannot be encoded are escaped."""

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as fault:
            raise _not_written(fault) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as fault:
            raise _not_written(fault) from None


class Notes(_Guarded):
    """stderr. Text that cannot be written is lost."""

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _point_nowhere(self._stream)


def guard_streams() -> None:
    """Replaces stdout and stderr by `Results` and `Notes`. Closed descriptors are opened on /dev/null."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number; otherwise a dataset file would get it
    if sys.stdin is None:  # it was closed; questions ask whether it is a terminal
        sys.stdin = os.fdopen(0)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is not None:
        sys.stdout = Results(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Notes(sys.stderr)


class _Shown(logging.Formatter):
    """Makes warnings visible text without keys: they quote foreign addresses, names and answers."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(presentable(super().format(record)))


def show_warnings() -> None:
    """Prints warnings of libraries, logged or raised, on stderr; `--quiet` raises the level to errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Shown())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(True)


def flush_results() -> None:
    """Writes what stdout has buffered. Raises OutputError; unwritten text is dropped."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OutputError:
        give_up_results()
        raise


def give_up_results() -> None:
    """Drops what stdout could not write; Python would try to write it again at exit."""
    _point_nowhere(sys.stdout)


@contextmanager
def reader_may_leave() -> Iterator[None]:
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


def _point_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _not_written(fault: OSError) -> OutputError:
    kind = ReaderGoneError if isinstance(fault, BrokenPipeError) else OutputError
    return kind(
        f"the result could not be written: {fault.strerror}",
        where="stdout",
        remedy="files that the command wrote are complete; run it again with a working stdout to see the result",
    )
