"""What a store says of an object, and what the two stores have in common.

In: nothing. Out: the carrier `StoredObject`, the protocol `Store` that `gcs` and `s3` fulfil, the two ways in which
a single try ends other than well.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from spanloom.errors import SpanloomError
from spanloom.storage.uri import Uri

SHA256_KEY = "spanloom-sha256"
"""In an object's metadata: the sha256 of its bytes, as the one who wrote it found it."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object as its store describes it; `version` (generation, ETag) changes when its bytes do.

    `crc32c` and `md5` are hex, None where the store does not tell them; `written_at` is for people.
    """

    uri: Uri
    bytes: int
    version: str
    crc32c: str | None = None
    md5: str | None = None
    written_at: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class AlreadyThereError(Exception):
    """The name was taken: a create-only write wrote nothing."""


class DamagedTransferError(Exception):
    """What arrived is not what was sent, by the store's own checksum. Worth another try."""


class Store(Protocol):
    """One bucket. A method is a single try and lets its client's exceptions out, which `is_transient` and `explained`
    judge; but `create` and `below` go on by themselves, piece by piece and page by page."""

    def find(self, uri: Uri) -> StoredObject | None: ...

    def below(self, prefix: Uri) -> list[StoredObject]:
        """Everything below `prefix/` (the whole bucket for an empty key); fails where there is no such bucket."""
        ...

    def read(self, found: StoredObject, first: int, sink: Callable[[bytes], None]) -> None:
        """Gives the bytes from `first` on to `sink`; fails when the object is no longer the one that was found."""
        ...

    def create(
        self, path: Path, uri: Uri, *, metadata: Mapping[str, str], replace: bool, moved: Callable[[int], None]
    ) -> None:
        """Uploads a file. Raises AlreadyThereError, writing nothing, when the name is taken and `replace` is not set.

        The store's checksum of what arrived has been compared when this returns. `moved` hears of bytes on their way.
        """
        ...

    def delete(self, uri: Uri) -> None: ...

    def holds(self, found: StoredObject, path: Path) -> bool | None:
        """Whether the object's checksum and size are those of the file; None where that cannot be told."""
        ...

    def is_transient(self, fault: Exception) -> bool: ...

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        """A fault of the store in words for the person who must act, or None when it is none of the store's."""
        ...
