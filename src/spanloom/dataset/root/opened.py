"""A finished dataset's manifest, read and checked once a process for as long as its file is the same.

In: a root. Out: the `content`. A trainer opens a root once a shard and split, and reading and checking a manifest takes
about a millisecond a shard, so that opening would grow with the square of the shards.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from spanloom.dataset import manifest
from spanloom.dataset.manifest import MANIFEST_NAME, Content

_KEPT = 16
"""Manifests kept of a kind, those used last: one of a thousand shards takes tens of megabytes."""

R = TypeVar("R")


class ReadOnce(Generic[R]):
    """`read` of a root, kept until the file of its manifest is another: by inode, size and times of change.

    What is returned is shared, and not to be changed. Errors are not kept. Threads may share one.
    """

    def __init__(self, read: Callable[[Path], R]) -> None:
        self._read = read
        self._kept: OrderedDict[Path, tuple[tuple[int, ...], R]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, root: Path) -> R:
        key = root.absolute()  # a relative path means another folder after a chdir
        try:
            # Taken before the file is read: a manifest that changes in between is read again the next time.
            status = (root / MANIFEST_NAME).stat()
        except OSError:
            return self._read(root)  # which says what is missing
        identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == identity:
                self._kept.move_to_end(key)
                return kept[1]
        value = self._read(root)
        with self._lock:
            self._kept[key] = (identity, value)
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return value


content_at: ReadOnce[Content] = ReadOnce(lambda root: manifest.read(root).content)
"""The `content` of the finished dataset at a root. Raises ManifestError as `spanloom.dataset.manifest.read`."""
