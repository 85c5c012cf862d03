"""A finished dataset's manifest, read and checked once per process while its file does not change.

In: a root. Out: the `content`. A trainer opens a root once per shard and split. Reading and checking a manifest takes
about 1 ms per shard, so without a cache the total time would grow with the square of the number of shards.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from spanloom.dataset import manifest
from spanloom.dataset.manifest import MANIFEST_NAME, Content

_KEPT = 16
"""Most recently used manifests kept by each `ReadOnce`: one with a thousand shards takes tens of megabytes."""

R = TypeVar("R")


class ReadOnce(Generic[R]):
    """Caches `read(root)` until the manifest's file changes: device, inode, size, mtime or ctime.

    The returned value is shared and must not be modified. Errors are not cached. Thread-safe.
    """

    def __init__(self, read: Callable[[Path], R]) -> None:
        self._read = read
        self._kept: OrderedDict[Path, tuple[tuple[int, ...], R]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, root: Path) -> R:
        key = root.absolute()  # a relative path refers to another folder after a chdir
        try:
            # Before the file is read: a manifest that changes in between is then read again the next time.
            status = (root / MANIFEST_NAME).stat()
        except OSError:
            return self._read(root)  # raises the error that names the missing file
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
"""The `content` of the finished dataset at a root. Raises ManifestError like `spanloom.dataset.manifest.read`."""
