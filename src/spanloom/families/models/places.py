"""The model's folder, from a path or a URI.

In: a path or URI as text. Out: a folder on this machine. Only the files that decide a dataset's bytes are downloaded,
not the weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanloom.families.models.documents.rules import MODEL_FILES
from spanloom.families.models.errors import ModelError
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import Download, list_objects, stage_files
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
        raise ModelError("the model's folder is missing", where=place, remedy="give a folder with tokenizer.json")
    stage_files([Download(uri=uri / name, path=path / name, bytes=sizes[name]) for name in names])
    return path


@contextmanager
def local_model(model: str, scratch: Path | None = None) -> Iterator[Path]:
    """The model's folder on this machine, while the block runs."""
    with scratch_for("model", [model], scratch) as staging:
        yield staged_model(staging, model)
