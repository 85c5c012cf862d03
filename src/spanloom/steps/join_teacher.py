"""A teacher, step 3: the inventories of all tasks → the manifest of the signals.

In: the validated inventories, the manifest of the dataset. Out: `without.jsonl` and `teacher.json` beside the arrays
that the tasks have published. The arrays are not read: their sizes are compared with the inventories.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.root.places import staged_root
from spanloom.errors import ArtifactError, ConflictError
from spanloom.storage import write_atomically
from spanloom.storage.publishing import publish_file, remove_if_allowed
from spanloom.storage.scratch import scratch_for
from spanloom.storage.staging import find, list_objects, stage_file
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.teacher.format import TEACHER_JSON, WITHOUT, TeacherContent, read_teacher
from spanloom.teacher.join import joined
from spanloom.teacher.places import TASKS


def run(*, inventories: Sequence[str], root: str, out: str, scratch: Path | None = None) -> dict[str, Any]:
    """The step on paths and URIs. Returns the content of the manifest. Signals that are there with the same content are
    accepted. Raises ArtifactError and TeacherError as `joined` does, ConflictError if `out` has other signals."""
    with scratch_for("join-teacher", [*inventories, root, out], scratch) as staging:
        files = [staging.file(place) for place in inventories]
        dataset = staged_root(staging, root, only=lambda name: False)  # noqa: ARG005  # the manifest alone
        content, data, listing = joined(files, manifest.read(dataset).content, root)
        folder = staging.path(out)
        if is_uri(out) and find(parse_uri(out) / TEACHER_JSON) is not None:
            stage_file(parse_uri(out) / TEACHER_JSON, folder / TEACHER_JSON)
        if (folder / TEACHER_JSON).is_file():
            if read_teacher(folder)[0] != content:
                raise ConflictError("this folder has other signals", where=out, remedy="give another place")
            return content.model_dump()
        _check_files(content, out)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / WITHOUT, listing)
        write_atomically(folder / TEACHER_JSON, data)
        if is_uri(out):
            for name in (WITHOUT, TEACHER_JSON):
                publish_file(folder / name, parse_uri(out) / name)
            for part in list_objects(parse_uri(out) / TASKS):
                remove_if_allowed(part.uri)
        else:
            shutil.rmtree(folder / TASKS, ignore_errors=True)
    return content.model_dump()


def _check_files(content: TeacherContent, out: str) -> None:
    """Raises ArtifactError for an array that no task has published whole."""
    if is_uri(out):
        uri = parse_uri(out)
        there = {each.uri.key.removeprefix(f"{uri.key}/"): each.bytes for each in list_objects(uri)}
    else:
        there = {path.relative_to(out).as_posix(): path.stat().st_size for path in Path(out).glob("*/*")}
    for split in content.splits.values():
        for file in (file for each in split.shards for file in each.files):
            if there.get(file.path) != file.bytes:
                raise ArtifactError(
                    f"{file.path} is missing or has not {file.bytes:,} bytes",
                    where=out,
                    remedy="run the task of its shard again",
                )


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts: dict[str, Any] = {"k": result["k"], "padded_ids": result["padded"]}
    for split, sums in result["splits"].items():
        counts |= {f"{split}_{name}": sums[name] for name in ("documents", "positions", "without")}
    return {"metrics": counts}
