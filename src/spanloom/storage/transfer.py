"""Many transfers at once, stopped together; and the store of a URI.

In: jobs over objects. Out: all of them done, or the first error, and no other job is still running.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache

from spanloom.errors import StorageError
from spanloom.storage.stores.objects import PIECES, Store
from spanloom.storage.stores.retry import StoppedError
from spanloom.storage.uri import HUB, Uri

CONNECTIONS = 8
"""Files transferred at once. Each upload to gs:// holds a piece of 16 MiB in memory. All uploads to s3:// together hold
at most `PIECES` parts of 32 MiB, all downloads at most `PIECES` ranges of 16 MiB."""

_PACKAGES = {"gs": ("google-cloud-storage", "gcs"), "s3": ("boto3", "s3"), HUB: ("huggingface_hub", "hub")}
"""Scheme → the package that its store needs, and the extra that brings it."""

OnProgress = Callable[[int, int], None]
"""Called with the bytes moved so far, and the total bytes."""


def open_store(uri: Uri) -> Store:
    """The store for the bucket of a URI; its client is created once in a process."""
    return _open(uri.scheme, uri.bucket)


@cache
def _open(scheme: str, bucket: str) -> Store:
    needed, extra = _PACKAGES[scheme]
    try:
        if scheme == HUB:
            from spanloom.storage.stores.hub import HubStore

            return HubStore(bucket)
        if scheme == "gs":
            from spanloom.storage.stores.gcs import GcsStore

            return GcsStore(bucket, CONNECTIONS + PIECES)
        from spanloom.storage.stores.s3 import S3Store

        return S3Store(bucket, CONNECTIONS + PIECES)
    except ImportError as missing:
        raise StorageError(
            f"{scheme}:// needs {needed} ({missing})", remedy=f"pip install 'spanloom[{extra}]'"
        ) from None


class Transfers:
    """A set of transfers: their total progress in bytes, their stop event, and their shared slots for pieces."""

    def __init__(self, total: int = 0, on_progress: OnProgress | None = None) -> None:
        self.stop = threading.Event()
        self.pieces = threading.BoundedSemaphore(PIECES)
        self._total, self._on_progress = total, on_progress
        self._lock = threading.Lock()
        self._moved = 0

    def moved(self, count: int) -> None:
        """Adds bytes to the progress; after a dropped connection, bytes may be counted again. Raises StoppedError once
        the set is stopped."""
        if self.stop.is_set():
            raise StoppedError
        with self._lock:
            self._moved = min(self._moved + count, self._total)
            if self._on_progress is not None:
                self._on_progress(self._moved, self._total)

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Runs all jobs, `CONNECTIONS` at once. The first error stops the others and is raised."""
        if not jobs:
            return
        with ThreadPoolExecutor(min(CONNECTIONS, len(jobs))) as threads:
            futures = [threads.submit(job) for job in jobs]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            except BaseException:  # Ctrl-C: without an abort, the executor would wait for gigabytes
                self._abort(threads)
                raise
            faults = [fault for future in futures if future in finished and (fault := future.exception()) is not None]
            if faults:
                self._abort(threads)
                raise next((fault for fault in faults if not isinstance(fault, StoppedError)), faults[0])

    def _abort(self, threads: ThreadPoolExecutor) -> None:
        self.stop.set()
        threads.shutdown(wait=True, cancel_futures=True)
