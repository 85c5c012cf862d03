"""The JSON file that marks a folder beside a dataset as finished: that of a plan, of a teacher's signals.

In: a folder, the name of the file, its type. Out: the value, checked.
"""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from spanloom.errors import ArtifactError
from spanloom.storage import read_json

M = TypeVar("M", bound=BaseModel)


def read_marker(folder: Path, name: str, kind: type[M], *, what: str, schema: str, missing: str, again: str) -> M:
    """The marker of a finished folder. `what`: its name in messages; `missing`: what a folder without it is; `again`:
    the remedy. Raises ArtifactError if it is missing, damaged or not of this schema."""
    path = folder / name
    try:
        stored = read_json(path, ArtifactError, what, again)
    except FileNotFoundError:
        raise ArtifactError(f"there is no {name}: {missing}", where=str(folder), remedy=again) from None
    try:
        return kind.model_validate(stored)
    except ValidationError as fault:
        first = fault.errors()[0]
        place = ".".join(map(str, first["loc"]))[:200] or "(top)"
        raise ArtifactError(
            f"{what} does not follow {schema} at {place}: {first['msg'][:200]}", where=str(path), remedy=again
        ) from None
