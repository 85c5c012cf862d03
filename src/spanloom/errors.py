"""The one exception family, each with the exit code of a command that it ends; `spanloom.cli` prints the message.

In: what was wrong, where, what to do. Out: an exception whose text a person can act on.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from tokenize import TokenError

from spanloom.presentable import presentable

EXIT_FAILURE = 1
"""Stopped with an error."""

EXIT_USAGE = 2
EXIT_FINDINGS = 4
"""Ran to its end and found something wrong with the data."""

EXIT_OUTPUT = 5
"""Did its work, but its result could not be written to stdout."""

EXIT_STORE_GIVEN_UP = 75
"""A store gave no answer until the deadline: the same command may succeed later (EX_TEMPFAIL of sysexits.h)."""

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""What a shell says of a command that SIGPIPE ended."""

UNREADABLE_NPY = (ValueError, EOFError, TokenError, UnpicklingError)
"""What numpy raises for a `.npy` file that is torn; TokenError from Python 3.12 on."""


class SpanloomError(Exception):
    """Something the user can act on.

    `what` says what was wrong, `where` names file, shard, row or id, `remedy` says what to do about it. `exit_code` is
    that of a command that ends with it.
    """

    exit_code = EXIT_FAILURE

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        # What a user gave is quoted in many places, and may hold a password.
        what, where, remedy = presentable(what), where and presentable(where), remedy and presentable(remedy)
        self.what, self.where, self.remedy = what, where, remedy
        lines = (what, where and f"  where: {where}", remedy and f"  remedy: {remedy}")
        # A line feed in a name, or in a value that is quoted, must not make a line of its own.
        super().__init__("\n".join(line.replace("\n", "↵") for line in lines if line))

    def __reduce__(self) -> tuple[object, ...]:
        # Raised in worker processes: keyword arguments do not survive the default pickling of exceptions.
        return (_rebuild, (type(self), self.what, self.where, self.remedy))


def _rebuild(kind: type[SpanloomError], what: str, where: str | None, remedy: str | None) -> SpanloomError:
    return kind(what, where=where, remedy=remedy)


@contextmanager
def extra_for(script: str, extra: str) -> Iterator[None]:
    """The imports of a program that `python -m` runs: without a package it ends in a line that names the extra.

    `script`: the `__name__` of the module that imports; where it is imported itself, the exception goes on.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if script != "__main__" or package in ("", "spanloom"):
            raise
        sys.exit(f"error: {missing_package(package, extra)}")


def missing_package(package: str, extra: str) -> SpanloomError:
    """The error for a package that is not installed, and that an extra of Spanloom brings."""
    what = f"this needs spanloom[{extra}]: the package {package} is not installed"
    return SpanloomError(what, remedy=f"pip install 'spanloom[{extra}]'")


class OptionError(SpanloomError):
    """An option has a value that cannot be used, or two options contradict each other."""

    exit_code = EXIT_USAGE


class TokenizerError(SpanloomError):
    """The tokenizer asset is absent or is not the pinned file."""


class SourceError(SpanloomError):
    """A fault of an input directory, manifest, shard file or column: always stops, never counted."""


class RejectedRowError(SpanloomError):
    """A row broke the contract and the limit of rejects (0 by default) did not allow for it."""


class AuditError(SpanloomError):
    """What a fast route made differs from what the authoritative one makes."""


class DuplicateIdError(SpanloomError):
    """A duplicate id: the same id in two rows of a source."""


class ArtifactError(SpanloomError):
    """An intermediate artifact is incomplete, changed since it was written, or belongs to another build."""


class ConflictError(SpanloomError):
    """Something else is already where this build must write; nothing was overwritten."""


class StorageError(SpanloomError):
    """The file system refused: no space, no permission, not a directory."""


class StoreGivenUpError(StorageError):
    """A store gave no usable answer until the deadline. No other error passes with time alone."""

    exit_code = EXIT_STORE_GIVEN_UP


class OutputError(SpanloomError):
    """The work is done, but stdout does not take its result: full, or its reader is gone."""

    exit_code = EXIT_OUTPUT


class ReaderGoneError(OutputError):
    """The reader of stdout is gone, as `head` is once it has its lines."""


class WorkerError(SpanloomError):
    """A worker process died."""


class DatasetError(SpanloomError):
    """A dataset cannot be trained on as it is, or with these options."""


class RecordError(SpanloomError, ValueError):
    """A record of the input that cannot be read: stops, or is counted, as the user chose."""


class ChatError(RecordError):
    """Conversations, records, tokens or options that packed chat cannot be made from."""
