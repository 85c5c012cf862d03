"""All exceptions of Spanloom, each with the exit code of the command that it ends; `spanloom.cli` prints the message.

In: what was wrong, where, what to do. Out: an exception whose text tells the user what to do.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pickle import UnpicklingError
from tokenize import TokenError

from spanloom.presentable import presentable

EXIT_FAILURE = 1
"""Stopped with an error."""

EXIT_USAGE = 2
EXIT_FINDINGS = 4
"""Finished, and found something wrong with the data."""

EXIT_OUTPUT = 5
"""Finished, but the result could not be written to stdout."""

EXIT_TEMPORARY = 75
"""A store or a chat template ran into a deadline: the same command may succeed later (EX_TEMPFAIL of sysexits.h)."""

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""The exit code that a shell reports for a command that SIGPIPE ended."""

UNREADABLE_NPY = (ValueError, EOFError, TokenError, UnpicklingError)
"""What numpy raises for a truncated `.npy` file; TokenError since Python 3.12."""


class SpanloomError(Exception):
    """Something the user can act on.

    `what`: what was wrong; `where`: the file, shard, row or id; `remedy`: what to do about it. `exit_code`: the exit
    code of a command that this exception ends.
    """

    exit_code = EXIT_FAILURE

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        # Many messages quote the user's input, which may contain a password.
        what, where, remedy = presentable(what), where and presentable(where), remedy and presentable(remedy)
        self.what, self.where, self.remedy = what, where, remedy
        lines = (what, where and f"  where: {where}", remedy and f"  remedy: {remedy}")
        # A line feed in a quoted name or value must not start a new line of the message.
        super().__init__("\n".join(line.replace("\n", "↵") for line in lines if line))

    def renamed(self, named: Callable[[str], str]) -> "SpanloomError":
        """The same error with `named` on each of its texts: paths of scratch become the places that users know."""

        def of(text: str | None) -> str | None:
            return None if text is None else named(text)

        other = SpanloomError(named(self.what), where=of(self.where), remedy=of(self.remedy))
        copied = copy(self)
        copied.what, copied.where, copied.remedy, copied.args = other.what, other.where, other.remedy, other.args
        return copied

    def __reduce__(self) -> tuple[object, ...]:
        # Raised in worker processes: keyword arguments do not survive the default pickling of exceptions.
        return (_rebuild, (type(self), self.what, self.where, self.remedy))


def _rebuild(kind: type[SpanloomError], what: str, where: str | None, remedy: str | None) -> SpanloomError:
    return kind(what, where=where, remedy=remedy)


@contextmanager
def extra_for(script: str, extra: str) -> Iterator[None]:
    """Wraps the imports of a `python -m` program: a missing package ends it with one line that names the extra.

    `script`: the `__name__` of the importing module; unless it is "__main__", the exception is raised unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if script != "__main__" or package in ("", "spanloom"):
            raise
        sys.exit(f"error: {missing_package(package, extra)}")


def missing_package(package: str, extra: str) -> SpanloomError:
    """The error for a missing package that an extra of Spanloom installs."""
    what = f"this needs spanloom[{extra}]: the package {package} is not installed"
    return SpanloomError(what, remedy=f"pip install 'spanloom[{extra}]'")


class OptionError(SpanloomError):
    """An option has a value that cannot be used, or two options contradict each other."""

    exit_code = EXIT_USAGE


class TokenizerError(SpanloomError):
    """The tokenizer asset is absent or is not the pinned file."""


class SourceError(SpanloomError):
    """A fault of an input directory, manifest, shard file or column: always stops the command, is never counted."""


class RejectedRowError(SpanloomError):
    """A row broke the contract, and the limit of rejected rows (0 by default) was exceeded."""


class AuditError(SpanloomError):
    """The output of a fast route differs from the output of the authoritative route."""


class DuplicateIdError(SpanloomError):
    """A duplicate id: the same id in two rows of a source."""


class ArtifactError(SpanloomError):
    """An intermediate artifact is incomplete, changed since it was written, or belongs to another build."""


class ConflictError(SpanloomError):
    """Something else is already where this build must write; nothing was overwritten."""


class StorageError(SpanloomError):
    """The file system refused: no space, no permission, not a directory."""


class StoreGivenUpError(StorageError):
    """A store gave no usable answer until the deadline. It may if the command is run again."""

    exit_code = EXIT_TEMPORARY


class OutputError(SpanloomError):
    """The work is done, but the result cannot be written to stdout: the disk is full, or the reader is gone."""

    exit_code = EXIT_OUTPUT


class ReaderGoneError(OutputError):
    """The reader of stdout is gone, as when `head` has read enough lines."""


class WorkerError(SpanloomError):
    """A worker process died."""


class DatasetError(SpanloomError):
    """A dataset that cannot be trained on, at all or with these options."""


class RecordError(SpanloomError, ValueError):
    """An unreadable input record: stops the command or is counted, as the user chose."""


class ChatError(RecordError):
    """Conversations, records, tokens or options from which packed chat cannot be built."""


def is_rust_panic(fault: BaseException) -> bool:
    """Whether the Rust code of a package panicked, as a regex engine may that overflows: tokenizers and openai-harmony
    raise a `PanicException` then, a BaseException that cannot be imported."""
    return type(fault).__name__ == "PanicException"
