"""What a store says of an object, and what the two stores have in common.

In: nothing. Out: the carrier `StoredObject`, the protocol `Store` that `gcs` and `s3` fulfil, the ways in which a
single try ends other than well, and the check of an answer to a ranged request.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from spanloom.errors import SpanloomError, StorageError
from spanloom.storage.uri import Uri

SHA256_KEY = "spanloom-sha256"
"""In an object's metadata: the sha256 of its bytes, as the one who wrote it found it."""

PIECES, PIECES_FROM = 8, 64 << 20
"""Ranges of a download, and parts of an upload to `s3://`, that are under way at once; and the bytes of an object above
which it is moved in several. Below, they would save little more than beginning their requests costs."""


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
    """What arrived is not what was requested, or not what was sent. Worth another try."""


class LostUploadError(Exception):
    """The store has forgotten an upload, or refused its bytes as damaged: it must be begun again."""


def _not_counted(count: int) -> None:
    """For an upload whose progress is not shown."""


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How a file is sent.

    metadata  of the object
    replace   whether an object of this name is replaced; else it is created, or nothing is written
    moved     hears of bytes on their way
    stop      ends the upload where it is
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    moved: Callable[[int], None] = _not_counted
    stop: threading.Event | None = None


class Store(Protocol):
    """One bucket. `find`, `page`, `read` and `delete` are a single try and let their client's exceptions out, which
    `is_transient` and `explained` judge; `create` goes on by itself, piece by piece."""

    CONDITION: ClassVar[str]
    """The condition of create-only writes, by the name that the store's documentation gives it."""

    def find(self, uri: Uri) -> StoredObject | None: ...

    def page(self, prefix: Uri, token: str | None) -> tuple[list[StoredObject], str | None]:
        """One page of everything below `prefix/` (the whole bucket for an empty key), and the token of the next page.

        Fails where there is no such bucket.
        """

    def read(self, stored: StoredObject, first: int, sink: Callable[[bytes], None], end: int | None = None) -> None:
        """Gives the bytes from `first` on, up to `end` where it is given, to `sink`; fails when the object is no longer
        the one that was found.

        The answer's status, range, length and version have been compared with what was requested before the first byte.
        A store may answer less than was requested.
        """

    def create(self, path: Path, uri: Uri, sending: Sending) -> bool:
        """Uploads a file. Returns whether the store's answer has the file's size and checksum.

        Raises AlreadyThereError, writing nothing, when the name is taken and `replace` is not set; LostUploadError
        when all must be sent again.
        """

    def ways_to_overwrite(self, path: Path, uri: Uri) -> list[str]:
        """Writes the object at `uri`, which has the bytes of `path`, create-only once more in each way in which
        `create` writes. Returns the names of the requests that a store which ignores the condition took; none where it
        refused them all. The bytes at `uri` are the same afterwards either way.
        """

    def delete(self, stored: StoredObject) -> None:
        """Removes the object; not another that has taken its place, where the store has a condition for that."""

    def holds(self, stored: StoredObject, path: Path) -> bool | None:
        """Whether the object's checksum and size are those of the file; None where the store does not report it."""

    def is_transient(self, fault: Exception) -> bool: ...

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        """A fault of the store in words for the person who must act, or None when it is none of the store's."""


def replaced_meanwhile(stored: StoredObject) -> StorageError:
    """The error for an object that is no longer the one that was found."""
    return StorageError(
        "the object was replaced or removed while it was being downloaded",
        where=str(stored.uri),
        remedy="run the same command again, when nothing writes there any more",
    )


def leading_bytes(
    status: int, content_range: str | None, content_length: str | None, *, first: int, end: int, total: int
) -> int:
    """Checks an answer to a request for the bytes from `first` up to `end` of an object of `total` bytes; returns how
    many of the answer's bytes come before `first`: 0 for a 206 of that range, or of the beginning of it; `first` for a
    200 with the whole object, where all from `first` on was requested.

    Raises DamagedTransferError for anything else. RFC 9110, 14.4 and 15.3.7.

    For `first=3, end=10, total=10`: 206 and `bytes 3-9/10` with length 7 gives 0, 200 and length 10 gives 3.
    """
    if status == 206:
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", (content_range or "").strip())
        if (
            match is None
            or int(match[1]) != first
            or not first <= int(match[2]) < end
            or match[3] not in (f"{total}", "*")
        ):
            raise DamagedTransferError(
                f"the range bytes {first}-{end - 1}/{total} was requested, the answer is of {content_range or 'none'}"
            )
        expected, leave_out = int(match[2]) - first + 1, 0
    elif status == 200 and end < total:  # read for each range, it would come as often as there are ranges
        raise DamagedTransferError("a range was requested, the answer is the whole object")
    elif status == 200:
        expected, leave_out = total, first
    else:
        raise DamagedTransferError(f"HTTP {status} is no answer to a request for bytes")
    if content_length is not None and content_length.strip() != str(expected):
        raise DamagedTransferError(f"an answer of length {expected} was due, this is of length {content_length}")
    return leave_out


def byte_range(first: int, end: int | None) -> str:
    """The header `Range` for the bytes from `first` up to `end`: `bytes=3-9` for 3 and 10."""
    return f"bytes={first}-" if end is None else f"bytes={first}-{end - 1}"


def without_first(count: int, sink: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """A sink that gives all but the first `count` bytes on to `sink`."""
    left = count

    def rest(data: bytes) -> None:
        nonlocal left
        if left < len(data):
            sink(data[left:] if left else data)
        left = max(0, left - len(data))

    return rest
