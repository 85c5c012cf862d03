"""Replaces the dataset at a root by another; at every moment, one of the two is complete.

In: the root, held; the old dataset in it; the new dataset, complete and promoted, in `ROOT/.work/new`. Out: the new
dataset at the root, and no file of the old one. Files that neither manifest lists do not change.

    1  ROOT/manifest.json → ROOT/.work/replaced.json   the commit: from here on the new dataset counts, in .work/new
    2  the files that replaced.json lists are removed
    3  the files of .work/new get their names at the root as well, manifest.json last
    4  .work/new is removed, manifest.json first; then replaced.json

Killed before 1, the root still has the old dataset, and the same build resumes. Killed after 1, `finish_replacing` does
the remaining steps. A manifest never exists without its files.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.manifest import MANIFEST_NAME, PENDING_NAME, Check
from spanloom.dataset.root.layout import REJECTS, VIEW_NAMES
from spanloom.dataset.root.lock import NEW_NAME, REPLACED_JSON, clear_leftovers, read_record, remove_new
from spanloom.errors import ConflictError
from spanloom.split import SPLITS
from spanloom.storage import fsync_directory, is_regular, link_file, path_below, remove_files

IsOwnView = Callable[[Path], bool]
"""Function: whether the file at this path, which has a view's name, is a view of Spanloom and so may be removed."""


def check_replaceable(root: Path, finished: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuses to replace the dataset at `root` if foreign files are among its own.

    `finished`: the `content` of its manifest, a JSON value of any schema; `names`: the files that the new dataset may
    write. Raises ConflictError for a name that a file outside the old manifest has, and for any unlisted file in the
    data folders, which would make the new dataset fail its validation.
    """
    if not is_regular(root / MANIFEST_NAME):
        raise ConflictError(
            "the manifest here is a link or not a file, and is not replaced",
            where=str(root / MANIFEST_NAME),
            remedy="give another --out",
        )
    listed = {file.path for file in manifest.files_of(finished)}
    beside = {
        path.relative_to(root).as_posix()
        for folder in (*SPLITS, REJECTS)
        for path in (root / folder).glob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    standing_names = {name for name in names if os.path.lexists(path_below(root, name))}
    taken = {name for name in standing_names - listed if name != PENDING_NAME}
    taken |= {name for name in standing_names if not is_regular(path_below(root, name))}
    folders = {folder for folder in (*SPLITS, REJECTS) if (root / folder).exists() and not (root / folder).is_dir()}
    if in_the_way := sorted((beside - listed) | taken | folders):
        raise ConflictError(
            f"files that are not part of the dataset are among its files: {', '.join(in_the_way[:3])}"
            + (f" and {len(in_the_way) - 3} more" if len(in_the_way) > 3 else ""),
            where=str(root),
            remedy="move them away, or give another --out",
        )


def replace_dataset(root: Path, work: Path, is_own_view: IsOwnView, check: Check[object] = manifest.check) -> list[str]:
    """Replaces the dataset at `root` by the one in `work/new`. Returns the names of views that foreign files have.

    `check`: that of the manifests' schema. Raises ConflictError, before any change, if foreign files are in the way.
    """
    made, old = (manifest.read_as(place, manifest.as_json(check))["content"] for place in (work / NEW_NAME, root))
    check_replaceable(root, old, [file.path for file in manifest.files_of(made)])
    (root / MANIFEST_NAME).rename(work / REPLACED_JSON)
    for folder in (work, root):
        fsync_directory(folder)
    return finish_replacing(root, work, is_own_view, check)


def is_replacing(work: Path) -> bool:
    """Whether a replacement has begun and is not finished."""
    return (work / REPLACED_JSON).exists()


def finish_replacing(
    root: Path, work: Path, is_own_view: IsOwnView, check: Check[object] = manifest.check
) -> list[str]:
    """Resumes a replacement after its last step. Returns the names of views that foreign files have."""
    new, replaced = work / NEW_NAME, work / REPLACED_JSON
    kept = []
    if not (root / MANIFEST_NAME).exists():
        made, old = (
            list(manifest.files_of(manifest.read_as(place, manifest.as_json(check))["content"]))
            for place in (new, replaced)
        )
        if (record := read_record(work)) is not None:
            clear_leftovers(root, work, record)
        # In reverse order: a manifest lists an index after its data, and an index must not exist without its data.
        remove_files(root, reversed([file.path for file in old]))
        for name in filter(lambda name: is_own_view(root / name), VIEW_NAMES):
            (root / name).unlink(missing_ok=True)
        for file in made:
            link_file(path_below(new, file.path), path_below(root, file.path))
        for name in filter(lambda name: (new / name).exists(), VIEW_NAMES):
            if os.path.lexists(root / name):
                kept.append(name)
            else:
                link_file(new / name, root / name)
        for folder in {root, *((root / file.path).parent for file in made)}:
            fsync_directory(folder)
        link_file(new / MANIFEST_NAME, root / MANIFEST_NAME)
        fsync_directory(root)
    if (record := read_record(work)) is not None:
        remove_new(work, record)
    replaced.unlink()
    return kept
