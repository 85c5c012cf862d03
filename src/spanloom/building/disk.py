"""Checks before a build that its files will fit on the disk."""

from pathlib import Path

from spanloom.errors import StorageError
from spanloom.storage import free_bytes

BYTES_PER_TOKEN = 6 + 4.5
"""Peak disk use: 4 + 1 + 1 bytes in the .bin files, and the parts (4 bytes if lz4 cannot compress them; mask and span
next to nothing), which are removed only at the end."""

TEXT_BYTES_PER_TOKEN = 3.5
"""A safe estimate: conversations have 3.6 (much code and numbers) to 5.6 (real SYNTH) bytes of JSON per token."""

BYTES_PER_DOCUMENT = 200
"""Of the row table, the ids and the indexes."""


def check_disk(root: Path, folder: Path, *, tokens: float, documents: float) -> None:
    """Raises StorageError if the estimated size does not fit, instead of a full disk hours into a build.

    The files that an unfinished build has left in `folder` are subtracted. `root`: for the message.
    """
    existing = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    needed = int(tokens * BYTES_PER_TOKEN + documents * BYTES_PER_DOCUMENT) - existing
    free = free_bytes(folder)
    if needed > free:
        raise StorageError(
            f"not enough disk: about {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
            where=str(root),
            remedy="free some space, give another --out, cap the run (--max-rows), or pass --no-disk-check",
        )
