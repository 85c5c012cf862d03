"""The scratch folder of one command: remote inputs are downloaded to it, remote outputs are published from it.

In: places (paths or URIs) as the user gave them. Out: local paths for all of them. A local path is used in place.
Errors that name a path below the scratch folder are raised again with the URI of that path.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from spanloom.errors import ConflictError, SpanloomError
from spanloom.storage.local import open_lock, publish_bytes, write_atomically
from spanloom.storage.locks import held
from spanloom.storage.publishing import publish_file, publish_folder
from spanloom.storage.staging import stage_file, stage_folder
from spanloom.storage.temporaries import clear_temporaries, temporary_folder
from spanloom.storage.uri import is_uri, parse_uri

SCRATCH_VARIABLE = "SPANLOOM_SCRATCH"


class Scratch:
    """Local paths for places. The folder is created for the first remote place. `stands_for`: local path → its URI."""

    def __init__(self, name: str, chosen: Path | None, stack: ExitStack) -> None:
        self._name, self._chosen, self._stack = name, chosen, stack
        self._directory: Path | None = None
        self.stands_for: dict[Path, str] = {}

    def path(self, place: str) -> Path:
        """The local path of a place: a local place itself, or a path below the scratch folder. Downloads nothing.

        The same places in the same order get the same paths, so a restarted command finds what it had downloaded.
        """
        if not is_uri(place):
            return Path(place)
        for known, stood_for in self.stands_for.items():
            if stood_for == place:
                return known
        uri = parse_uri(place)
        path = self._made() / f"{len(self.stands_for)}" / uri.name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.stands_for[path] = place
        return path

    def inner(self, name: str) -> Path:
        """A folder for the command's own files, of no place."""
        path = self._made() / name
        path.mkdir(exist_ok=True)
        return path

    def file(self, place: str) -> Path:
        """The local path of an input file, downloaded if it is remote."""
        path = self.path(place)
        return stage_file(parse_uri(place), path) if is_uri(place) else path

    def folder(self, place: str) -> Path:
        """The local path of an input folder, downloaded whole if it is remote."""
        path = self.path(place)
        return stage_folder(parse_uri(place), path) if is_uri(place) else path

    def publish_file(self, place: str, *, replace: bool = False) -> None:
        """Publishes the file at `path(place)`; does nothing for a local place."""
        if is_uri(place):
            publish_file(self.path(place), parse_uri(place), replace=replace)

    def create(self, place: str | None, data: bytes) -> None:
        """Creates a small file at `place`; None does nothing. Raises ConflictError if other bytes exist there."""
        if place:
            publish_bytes(data, self.path(place))
            self.publish_file(place)

    def replace(self, place: str | None, data: bytes) -> None:
        """Writes a small file at `place`, replacing an existing one; None does nothing."""
        if place:
            write_atomically(self.path(place), data)
            self.publish_file(place, replace=True)

    def publish_folder(self, place: str, *, last: str) -> None:
        """Publishes the folder at `path(place)`, the file `last` last; does nothing for a local place."""
        if is_uri(place):
            clear_temporaries(self.path(place))  # of an earlier run that was killed
            publish_folder(self.path(place), parse_uri(place), last=last)

    def bring_home(self, made: Path, place: str) -> None:
        """Copies a small file that was made elsewhere in scratch to a place, local or remote."""
        if is_uri(place):
            publish_file(made, parse_uri(place))
        else:
            write_atomically(Path(place), made.read_bytes())

    def _made(self) -> Path:
        if self._directory is None:
            if self._chosen is None:
                self._directory = Path(self._stack.enter_context(temporary_folder("spanloom-")))
            else:
                self._directory = self._chosen / f"spanloom-{self._name}"
                self._directory.mkdir(parents=True, exist_ok=True)
                self._stack.enter_context(_locked(self._directory))
        return self._directory

    def discard(self) -> None:
        """Removes the folder of a finished command."""
        if self._chosen is not None and self._directory is not None:
            shutil.rmtree(self._directory)


def chosen_scratch(chosen: Path | None) -> Path | None:
    """The user's folder for temporary files, by an option or by $SPANLOOM_SCRATCH; None means $TMPDIR."""
    named = os.environ.get(SCRATCH_VARIABLE)
    return Path(named) if chosen is None and named else chosen


@contextmanager
def scratch_for(command: str, places: Sequence[object], chosen: Path | None = None) -> Iterator[Scratch]:
    """The scratch folder of one command over these places, removed at its end.

    It is below `chosen`, else $SPANLOOM_SCRATCH, else in a temporary folder ($TMPDIR). With the first two, the files of
    a failed or killed run stay, and the same command resumes with them.
    """
    chosen = chosen_scratch(chosen)
    name = f"{command}-{hashlib.sha256(repr([str(place) for place in places]).encode()).hexdigest()[:16]}"
    with ExitStack() as stack:
        scratch = Scratch(name, chosen, stack)
        try:
            yield scratch
        except SpanloomError as error:
            if not scratch.stands_for:
                raise
            raise _naming_uris(error, scratch) from error
        scratch.discard()


def write_files(command: str, files: Mapping[str, bytes], out: str, chosen: Path | None, *, last: str) -> list[str]:
    """Writes small files below `out`, a folder or a URI, where the file `last` comes last. Returns their names."""
    with scratch_for(command, [out], chosen) as scratch:
        for name, data in files.items():
            write_atomically(scratch.path(out) / name, data)
        scratch.publish_folder(out, last=last)
    return list(files)


def _naming_uris(error: SpanloomError, scratch: Scratch) -> SpanloomError:
    def named(text: str) -> str:
        for path, uri in scratch.stands_for.items():
            text = text.replace(str(path), uri)
        return text

    return error.renamed(named)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    what = "the same command is running in this scratch folder"
    remedy = "wait for it, or give each its own --scratch"
    refusal = ConflictError(what, where=str(directory), remedy=remedy)
    with open_lock(directory / "lock") as lock, held(lock, directory / "lock", refusal):
        yield
