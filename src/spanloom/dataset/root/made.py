"""Makes a dataset, or keeps the finished one at the root.

In: a held root, the record of the build, and functions of the family. Out: the manifest.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from spanloom.dataset import manifest
from spanloom.dataset.manifest import Check, ListedFile
from spanloom.dataset.root.inventory import first_damage
from spanloom.dataset.root.lock import BuildRecord, clear_leftovers, is_work_of, read_record, release_if_unused
from spanloom.errors import ConflictError
from spanloom.provenance import git_sha
from spanloom.storage import publish_bytes

Differs = Callable[[Mapping[str, Any]], str | None]
"""Function: describes how a finished dataset differs from the requested one; None if it does not. It gets the `content`
of its manifest, a JSON value of any schema."""

M = TypeVar("M")


def made_or_standing(
    root: Path,
    work: Path,
    record: BuildRecord,
    differs: Differs,
    make: Callable[[], M],
    *,
    claim: Callable[[], None],
    resume: bool,
    check: Check[M],
) -> tuple[M, bool]:
    """Returns `(result of make, False)`, or `(manifest, True)` of a matching finished dataset at the held root.

    `make` writes the dataset and its pending manifest. If it fails, its temporary files are removed, and also the claim
    if it has written no file. `claim` claims the root. Without `resume`, a finished dataset is a conflict, unless it is
    of this build, killed before its intermediates were removed. `check`: that of the manifest's schema. Raises
    ConflictError if there is another dataset, or another build has begun.
    """
    if (root / manifest.MANIFEST_NAME).exists():
        if not resume and ((begun := read_record(work)) is None or begun.identity != record.identity):
            raise another_dataset(root, "--no-resume asks to build again")
        finished = standing_dataset(root, differs, check)
        if is_work_of(work, record):
            clear_leftovers(root, work, record)
        return finished, True
    claim()
    (root / manifest.PENDING_NAME).unlink(missing_ok=True)  # of a killed run: it is written again
    try:
        return make(), False
    except BaseException:
        clear_leftovers(root, work, record)
        release_if_unused(root, work, record)
        raise


def standing_dataset(root: Path, differs: Differs, check: Check[M]) -> M:
    """The manifest of the finished dataset at `root`, undamaged and made by this code. Raises ConflictError naming the
    difference."""
    content = manifest.read_as(root, manifest.as_json(check))["content"]
    difference = differs(content)
    if difference is None and content["git_sha"] != git_sha():
        difference = f"it was made by other code ({content['git_sha']})"
    if difference is None and (damage := first_damage(root, content)) is not None:
        difference = f"it is this one, but damaged: {damage}"
    if difference is not None:
        raise another_dataset(root, difference)
    return manifest.read_as(root, check)


def another_dataset(root: Path, difference: str) -> ConflictError:
    """The error for a root whose finished dataset is not the requested one."""
    return ConflictError(
        f"the output root already holds another dataset: {difference}",
        where=str(root),
        remedy="give another --out, or replace it with --overwrite",
    )


def published(root: Path, name: str, data: bytes) -> ListedFile:
    """Creates a file of the dataset that belongs to no shard. Returns its entry for the manifest."""
    publish_bytes(data, root / name)
    return ListedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
