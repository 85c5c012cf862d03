"""The model's folder, from a path or a URI.

In: a path or URI as text. Out: a folder on this machine, with the files that decide a dataset's bytes, not the weights.
A build holds a copy of them: the folder may change while it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanloom.errors import SpanloomError
from spanloom.families.models.defaults import MODEL_FILES
from spanloom.families.models.errors import folder_missing
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import Download, list_objects, stage_files
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.unchanged import check_unchanged, file_state
from spanloom.storage.uri import is_uri, parse_uri


def staged_model(scratch: Scratch, place: str) -> Path:
    """The model's folder on this machine, with the base name of `place`. Raises ModelError if a URI has none of
    `MODEL_FILES`."""
    path = scratch.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    prefix = f"{uri.key}/" if uri.key else ""
    sizes = {entry.uri.key.removeprefix(prefix): entry.bytes for entry in list_objects(uri)}
    names = [name for name in MODEL_FILES if name in sizes]
    if not names:
        raise folder_missing(place)
    stage_files([Download(uri=uri / name, path=path / name, bytes=sizes[name]) for name in names])
    return path


@contextmanager
def held_model(folder: Path) -> Iterator[Path]:
    """A copy of the files of a model's folder that decide bytes, of the same name, while the block runs.

    Each file is read once. What is hashed, what workers load and what the dataset carries are these bytes. An error
    names the folder, not its copy. Raises SourceError for a file that is written while it is copied.
    """
    if not folder.is_dir():
        yield folder  # to load it raises the error
        return
    with temporary_folder("spanloom-model-") as place:
        held = Path(place) / (folder.resolve().name or "model")
        held.mkdir()
        states = {path: file_state(path) for name in MODEL_FILES if (path := folder / name).is_file()}
        for path in states:
            (held / path.name).write_bytes(path.read_bytes())
        for path, state in states.items():
            check_unchanged(path, state)
        try:
            yield held
        except SpanloomError as fault:
            if str(held) not in str(fault):
                raise
            what, where, remedy = (text and text.replace(str(held), str(folder)) for text in _texts(fault))
            raise type(fault)(what or "", where=where, remedy=remedy) from None


def _texts(fault: SpanloomError) -> tuple[str | None, str | None, str | None]:
    return fault.what, fault.where, fault.remedy


@contextmanager
def local_model(model: str, scratch: Path | None = None) -> Iterator[Path]:
    """The model's folder on this machine, while the block runs."""
    with scratch_for("model", [model], scratch) as staging:
        yield staged_model(staging, model)
