"""Checks before a build that its files will fit on the disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spanloom.errors import StorageError
from spanloom.storage import free_bytes

PART_BYTES_PER_TOKEN = 4.5
"""Of the parts, which are removed only at the end: 4 bytes if lz4 cannot compress them; mask and span take little."""

TEXT_BYTES_PER_TOKEN = 3.5
"""A safe estimate: conversations have 3.6 (much code and numbers) to 5.6 (real SYNTH) bytes of JSON per token."""

BYTES_PER_DOCUMENT = 200
"""Of the row table, the ids and the indexes."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """About how much a build will write."""

    tokens: float
    documents: float

    @property
    def text_bytes(self) -> float:
        """About how many bytes of text it is made of."""
        return self.tokens * TEXT_BYTES_PER_TOKEN

    @classmethod
    def of_text(cls, text_bytes: float, documents: float) -> "Size":
        """The size of documents that are made of so many bytes of text."""
        return cls(tokens=text_bytes / TEXT_BYTES_PER_TOKEN, documents=documents)

    def bytes(self, arrays: Mapping[str, str]) -> float:
        """The peak disk use. `arrays`: the dtypes of the arrays of a document, see `Layout`."""
        token = sum(np.dtype(dtype).itemsize for dtype in arrays.values()) + PART_BYTES_PER_TOKEN
        return self.tokens * token + self.documents * BYTES_PER_DOCUMENT


def check_disk(root: Path, folder: Path, estimated: float) -> None:
    """Raises StorageError if the estimated bytes do not fit, instead of a full disk hours into a build.

    The files that an unfinished build has left in `folder` are subtracted. `root`: for the message.
    """
    existing = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    needed = int(estimated) - existing
    free = free_bytes(folder)
    if needed > free:
        raise StorageError(
            f"not enough disk: about {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
            where=str(root),
            remedy="free some space, give another --out, use less of the source, or pass --no-disk-check",
        )
