"""The signals of some shards each, by one task each → the manifest of a dataset's signals.

In: what each task passes on of the signals that it made. Out: the manifest and WITHOUT of all. The arrays stay as they
are. Beside those of one run, all files but the manifest have the same bytes, and the manifest the same `content`.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from spanloom.dataset.manifest import Content
from spanloom.errors import ArtifactError
from spanloom.provenance import environment_here, readable_json
from spanloom.storage import read_json
from spanloom.teacher.format import SCHEMA_VERSION, WITHOUT, TeacherContent, content_of_shards, read_teacher
from spanloom.teacher.signals import TeacherError

INVENTORY_SCHEMA = "spanloom_teacher_shards_v1"
_REMEDY = "give what validate-teacher wrote, of all tasks of one run"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Canary(_Section):
    logprobs: list[float]
    tolerance: float


class _Without(_Section):
    split: str
    shard: int
    sequence: int
    reason: str
    detail: str


class Inventory(_Section):
    """What a task passes on. `canary`: the scores of one document, the same for all tasks; `validated`: how many things
    each check of validation looked at, which found nothing; None before."""

    schema_version: Literal["spanloom_teacher_shards_v1"]
    content: TeacherContent
    canary: _Canary
    without: list[_Without]
    validated: dict[str, int] | None = None


def inventory_of(folder: Path) -> dict[str, Any]:
    """What a task passes on of the signals in a folder, that `score` made with `shards`."""
    content, environment = read_teacher(folder)
    lines = (folder / WITHOUT).read_text().splitlines()
    return {
        "schema_version": INVENTORY_SCHEMA,
        "content": content.model_dump(),
        "canary": environment["canary"],
        "without": [json.loads(line) for line in lines],
    }


def joined(inventories: Sequence[Path], dataset: Content, root: str) -> tuple[TeacherContent, bytes, bytes]:
    """The content of the manifest, the bytes of TEACHER_JSON and those of WITHOUT. `root`: where the dataset is.

    Raises ArtifactError unless the inventories are validated, of all shards of this dataset, each once, and of one
    teacher, k and spans; TeacherError if a task scored the canary otherwise than the first.
    """
    read = [read_inventory(path) for path in inventories]
    if not read:
        raise ArtifactError("there is no inventory", where=root, remedy=_REMEDY)
    first = read[0].content
    for path, each in zip(inventories, read, strict=True):
        for name in ("teacher", "k", "spans"):
            if getattr(each.content, name) != getattr(first, name):
                raise ArtifactError(f"{name} differs from that of the first task", where=str(path), remedy=_REMEDY)
        if each.validated is None:
            raise ArtifactError("these signals were not validated", where=str(path), remedy=_REMEDY)
        if each.content.dataset.content_sha256 != dataset.sha256:
            raise ArtifactError("these are signals of another dataset", where=str(path), remedy=_REMEDY)
        _check_canary(read[0].canary, each.canary, path)
    places = dataset.filled()
    scored = [place for each in read for place in each.content.places]
    if sorted(scored) != sorted(places):
        missing = sorted({*places} - {*scored})
        which = f"no task scored {missing[0][0]} of shard {missing[0][1]}" if missing else "a shard was scored twice"
        raise ArtifactError(f"the inventories are not those of the dataset: {which}", where=root, remedy=_REMEDY)
    entries = {
        (split, entry.shard): entry.model_dump()
        for each in read
        for split, counts in each.content.splits.items()
        for entry in counts.shards
    }
    made = {"teacher": first.teacher, "k": first.k, "spans": first.spans, "own": first.own}
    made["padded"] = sum(each.content.padded for each in read)
    lines = (line for each in read for line in each.without)
    without = sorted(lines, key=lambda line: places.index((line.split, line.shard)))
    content, listing = content_of_shards(
        dataset, made, [(place[0], entries[place]) for place in places], [line.model_dump() for line in without]
    )
    checks = sum((Counter(each.validated) for each in read), Counter[str]())
    environment = environment_here({"root": root, "tasks": len(read), "validated": dict(sorted(checks.items()))})
    manifest = {"schema_version": SCHEMA_VERSION, "content": content, "environment": environment}
    return TeacherContent.model_validate(content), readable_json(manifest), listing


def read_inventory(path: Path) -> Inventory:
    """What a task passed on. Raises ArtifactError for a file that is something else."""
    try:
        return Inventory.model_validate(read_json(path, ArtifactError, "the inventory", _REMEDY))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ArtifactError(
            f"this is no inventory of signals: {where}: {first['msg']}", where=str(path), remedy=_REMEDY
        ) from error


def _check_canary(first: _Canary, other: _Canary, path: Path) -> None:
    known, scored = np.array(first.logprobs), np.array(other.logprobs)
    differ = np.abs(known - scored).max() if known.shape == scored.shape else np.inf
    if not differ <= first.tolerance:
        raise TeacherError(
            f"the teacher of this task scores one document otherwise than that of the first: by {differ:.2g}, its "
            f"tolerance is {first.tolerance:g}",
            where=str(path),
            remedy="score with one teacher, on one kind of machine",
        )
