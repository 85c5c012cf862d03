"""Checks a dataset's files against its manifest, and sums the counts of its shards.

In: the root and the manifest's `content`; counts of shards. Out: findings for files that are missing, changed, or not
listed; totals.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from spanloom.dataset.manifest import ListedFile, ShardEntry, SplitCounts, Totals, files_of
from spanloom.dataset.root.layout import REJECTS
from spanloom.findings import Finding
from spanloom.split import SPLITS
from spanloom.storage import sha256_file

AT_ONCE = 4
"""Most files hashed, or shards checked, in parallel: with more, the cores wait for the disk."""


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum of the counts, name by name."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def add_up(shards: Sequence[ShardEntry]) -> Totals:
    """The sums of the counts of a dataset's shards."""
    splits = {split: [shard.splits[split] for shard in shards if split in shard.splits] for split in shards[0].splits}
    packing = [shard.packing for shard in shards if shard.packing is not None]
    cutting = [shard.cutting for shard in shards if shard.cutting is not None]
    return Totals(
        rows_read=sum(shard.rows_read for shard in shards),
        rejected=_added(shard.rejected for shard in shards),
        splits={
            split: SplitCounts(
                sequences=sum(count.sequences for count in counts),
                tokens=sum(count.tokens for count in counts),
                span_tokens=_added(count.span_tokens for count in counts),
                longest=max(count.longest for count in counts),
                fitting=_added(count.fitting for count in counts),
            )
            for split, counts in splits.items()
        },
        **({"packing": _added(packing)} if packing else {}),
        **({"cutting": _added(cutting)} if cutting else {}),
    )


def first_damage(root: Path, content: Mapping[str, Any]) -> Finding | None:
    """The first fault in the files of a finished dataset; None if they are unchanged.

    `content`: of its manifest, a JSON value of any schema.
    """
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return next(check_inventory(root, files_of(content), SPLITS, threads), None)


def check_inventory(
    root: Path, files: Iterable[ListedFile], splits: Iterable[str], threads: Executor
) -> Iterator[Finding]:
    """Checks the sizes and hashes of the listed files, and finds unlisted files in the folders of splits and rejects.

    In subfolders, only unlisted files with names of data (`shard_*`) are reported. Hashing begins in `threads` at the
    call, not at the first requested finding; it does not hold the GIL.
    """
    listed = {file.path: file for file in files}
    return _faults(root, splits, set(listed), threads.map(partial(file_fault, root), listed.values()))


def _faults(
    root: Path, splits: Iterable[str], listed: set[str], of_files: Iterable[Finding | None]
) -> Iterator[Finding]:
    yield from filter(None, of_files)
    below = (path for folder in (*splits, REJECTS) for path in files_below(root / folder))
    yield from unlisted(listed, splits, (path.relative_to(root).as_posix() for path in below))


def unlisted(listed: set[str], splits: Iterable[str], names: Iterable[str]) -> Iterator[Finding]:
    """Findings for unlisted files in the folders of splits and rejects. `names`: of all files of the root."""
    names_of_data = _names_of_data(listed)
    paths = sorted(map(PurePosixPath, names))
    for folder in (*splits, REJECTS):
        for path in paths:
            if path.parts[0] != folder or path.as_posix() in listed or any(part.startswith(".") for part in path.parts):
                continue
            # By default Megatron keeps its index cache in a folder beside the data: there, only files with
            # names of data are in the wrong place.
            if path.parent.as_posix() == folder or path.name.startswith(names_of_data):
                yield Finding(check="inventory", message="the manifest does not list this file", file=path.as_posix())


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted, without hidden files and links to folders."""
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(parent, name) for name in names if not name.startswith(".")]
    return sorted(files)


def _names_of_data(listed: Iterable[str]) -> tuple[str, ...]:
    """The prefixes of data file names: `shard_`, and the text before the number in the listed names."""
    stems = (re.match(r"[a-z]+_(?=\d)", path.rpartition("/")[2]) for path in listed)
    return tuple({"shard_", *(stem[0] for stem in stems if stem)})


def file_fault(root: Path, file: ListedFile) -> Finding | None:
    """The fault of a listed file: it is missing, or has another size or other bytes. None if it has none."""
    path, name = root / file.path, file.path
    if not path.is_file():
        return Finding(check="inventory", message="the file is missing", file=name)
    if (size := path.stat().st_size) != file.bytes:
        return Finding(check="inventory", message=f"{size} bytes, the manifest says {file.bytes}", file=name)
    if (digest := sha256_file(path)) != file.sha256:
        return Finding(check="inventory", message=f"sha256 {digest}, the manifest says {file.sha256}", file=name)
    return None
