"""The description of an object, the protocol `Store`, and code that both stores share.

In: nothing. Out: the carrier `StoredObject`, the protocol `Store` that `gcs` and `s3` implement, the errors of a single
try, and the check of an answer to a range request.
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
"""Metadata key: the sha256 of an object's bytes, computed by its writer."""

PIECES, PIECES_FROM = 8, 64 << 20
"""Ranges of a download, or parts of an upload to `s3://`, transferred at once; and the object size in bytes above which
this is done. For smaller objects, parallel requests save little more than they cost."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object as its store describes it; `version` (generation, ETag) changes when its bytes do.

    `crc32c` and `md5` are hex, None if the store does not report them; `written_at` is for messages.
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
    """The received bytes differ from the requested ones, or from those that were sent. A retry may help."""


class LostUploadError(Exception):
    """The store no longer knows an upload, or refused its bytes as damaged: it must start again."""


def _not_counted(count: int) -> None:
    """For an upload whose progress is not shown."""


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How a file is sent.

    metadata  of the object
    replace   whether an existing object is overwritten; if not, the upload is create-only
    moved     receives the number of bytes sent, piece by piece
    stop      when set, the upload is aborted
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    moved: Callable[[int], None] = _not_counted
    stop: threading.Event | None = None


class Store(Protocol):
    """One bucket. `find`, `page`, `read` and `delete` try once and raise their client's exceptions, which
    `is_transient` and `explained` classify; `create` retries by itself, piece by piece."""

    CONDITION: ClassVar[str]
    """The condition of create-only writes, as the store's documentation calls it."""

    def find(self, uri: Uri) -> StoredObject | None: ...

    def page(self, prefix: Uri, token: str | None) -> tuple[list[StoredObject], str | None]:
        """One page of everything below `prefix/` (the whole bucket for an empty key), and the token of the next page.

        Raises if there is no such bucket.
        """

    def read(self, stored: StoredObject, first: int, sink: Callable[[bytes], None], end: int | None = None) -> None:
        """Passes the bytes from `first` on, up to `end` (default: the end of the object), to `sink`. Raises if the
        object is no longer the one that was found.

        Before the first byte, the answer's status, range, length and version are compared with the request. A store may
        answer with fewer bytes than requested.
        """

    def create(self, path: Path, uri: Uri, sending: Sending) -> bool:
        """Uploads a file. Returns whether the store's answer has the file's size and checksum.

        Raises AlreadyThereError, writing nothing, if the name is taken and `replace` is not set; LostUploadError if the
        whole upload must start again.
        """

    def ways_to_overwrite(self, path: Path, uri: Uri) -> list[str]:
        """Writes the bytes of `path` again to `uri`, whose object has the same bytes: create-only, by each kind of
        request that `create` uses. Returns the names of the requests that the store accepted, so ignored the condition;
        empty if it refused them all. The bytes at `uri` do not change.
        """

    def delete(self, stored: StoredObject) -> None:
        """Removes the object. If the store has a condition for that, an object that replaced it is not removed."""

    def holds(self, stored: StoredObject, path: Path) -> bool | None:
        """Whether the object's checksum and size are those of the file; None if the store reports no checksum."""

    def is_transient(self, fault: Exception) -> bool: ...

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        """An error of the store as a message for the user; None if the error is not the store's."""


class ReplacedError(StorageError):
    """An object is no longer the one that was found."""


def replaced_meanwhile(stored: StoredObject) -> ReplacedError:
    """The error for an object that was replaced or removed between `find` and the end of its download."""
    return ReplacedError(
        "the object was replaced or removed while it was being downloaded",
        where=str(stored.uri),
        remedy="run the same command again, when nothing writes there any more",
    )


def leading_bytes(
    status: int, content_range: str | None, content_length: str | None, *, first: int, end: int, total: int
) -> int:
    """Checks an answer to a request for the bytes from `first` up to `end` of an object of `total` bytes. Returns the
    number of leading bytes to skip: 0 for a 206 with that range, or with its beginning; `first` for a 200 with the
    whole object, if everything from `first` on was requested.

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
    elif status == 200 and end < total:  # the whole object would be downloaded once for each range
        raise DamagedTransferError("a range was requested, the answer is the whole object")
    elif status == 200:
        expected, leave_out = total, first
    else:
        raise DamagedTransferError(f"HTTP {status} is not an answer to a request for bytes")
    if content_length is not None and content_length.strip() != str(expected):
        raise DamagedTransferError(f"an answer of length {expected} was due, this is of length {content_length}")
    return leave_out


def byte_range(first: int, end: int | None) -> str:
    """The header `Range` for the bytes from `first` up to `end`: `bytes=3-9` for 3 and 10."""
    return f"bytes={first}-" if end is None else f"bytes={first}-{end - 1}"


def without_first(count: int, sink: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """A sink that skips the first `count` bytes and passes the others to `sink`."""
    left = count

    def rest(data: bytes) -> None:
        nonlocal left
        if left < len(data):
            sink(data[left:] if left else data)
        left = max(0, left - len(data))

    return rest
