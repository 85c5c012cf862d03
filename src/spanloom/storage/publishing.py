"""Files → objects, created and never overwritten: the same bytes count as written, other bytes are a conflict.

In: finished files. Out: objects whose checksum the store has confirmed. Their metadata hold their sha256 and their
writer, so that a conflict can name both sides.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from spanloom.errors import ConflictError, SpanloomError, StorageError
from spanloom.provenance import built_by, git_sha
from spanloom.storage.local import sha256_file
from spanloom.storage.staging import DAMAGED_TRIES, find, stage_file
from spanloom.storage.stores.objects import SHA256_KEY, AlreadyThereError, LostUploadError, Sending, Store, StoredObject
from spanloom.storage.stores.retry import keep_trying
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.transfer import Transfers, open_store
from spanloom.storage.uri import Uri

BY_KEY, AT_KEY, GIT_SHA_KEY = "spanloom-by", "spanloom-at", "spanloom-git-sha"


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file and the object that it becomes. `replace` is for reports, which are not part of a dataset's bytes."""

    path: Path
    uri: Uri
    sha256: str | None = None
    replace: bool = False


def signature() -> dict[str, str]:
    """The writer as metadata: user and host (in a pod, its name), the time, the code's git SHA."""
    by = built_by().encode("ascii", "backslashreplace").decode()  # HTTP headers carry ASCII only
    return {BY_KEY: by, AT_KEY: datetime.now(UTC).isoformat(timespec="seconds"), GIT_SHA_KEY: git_sha()}


def signed_by(metadata: Mapping[str, str], written_at: str = "") -> str:
    """The writer in a message: `by … at … with git SHA …`, without the unknown parts."""
    known = [
        f"{word} {value}"
        for word, value in (
            ("by", metadata.get(BY_KEY)),
            ("at", metadata.get(AT_KEY) or written_at),
            ("with git SHA", metadata.get(GIT_SHA_KEY)),
        )
        if value
    ]
    return " ".join(known) or "by somebody unknown"


def publish_file(path: Path, uri: Uri, *, replace: bool = False) -> None:
    """Creates one object, or replaces it with `replace`. Raises ConflictError if an object there holds other bytes."""
    publish_files([Upload(path=path, uri=uri, replace=replace)])


def publish_folder(directory: Path, uri: Uri, *, last: str) -> None:
    """Creates an object for each file below `directory`; the file `last` follows when all others exist."""
    names = sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    uploads = [Upload(path=directory / name, uri=uri / name) for name in names if name != last]
    publish_files(uploads)
    publish_file(directory / last, uri / last)


def publish_files(uploads: Sequence[Upload]) -> None:
    """Creates the objects, several at once. Returns when all exist, and the store has confirmed their checksums.

    An existing object with the same bytes counts as written, so a retry succeeds. Raises ConflictError, naming both
    sides, for the first object that holds other bytes; only uploads with `replace` overwrite.
    """
    transfers = Transfers(sum(upload.path.stat().st_size for upload in uploads))
    transfers.run([lambda upload=upload: _publish(upload, transfers) for upload in uploads])  # type: ignore[misc]


def _publish(upload: Upload, transfers: Transfers) -> None:
    uri, store = upload.uri, open_store(upload.uri)
    sha256 = upload.sha256 or sha256_file(upload.path)
    # Looking first avoids the upload of existing bytes; the precondition prevents a race between two builds.
    if not upload.replace and (present := find(uri, transfers.stop)) is not None:
        _check_same(present, upload.path, sha256)
        return
    _create(upload, sha256, store, transfers)


def _create(upload: Upload, sha256: str, store: Store, transfers: Transfers) -> None:
    """Uploads until the store has confirmed the file's bytes, `DAMAGED_TRIES` times at most.

    A lost or wrong answer is not trusted: the object at the URI, and the writer in its metadata, decide. Only an object
    that this very upload wrote is removed, and only if its checksum is not the file's.
    """
    uri, metadata, wrong = upload.uri, {SHA256_KEY: sha256, **signature()}, ""
    sending = Sending(metadata=metadata, replace=upload.replace, moved=transfers.moved, stop=transfers.stop)
    for _ in range(DAMAGED_TRIES):
        taken = unconfirmed = False
        try:
            if store.create(upload.path, uri, sending):
                return
            unconfirmed, wrong = True, "the checksum that the store answered is not that of the file"
        except AlreadyThereError:  # another writer was faster; or this very upload succeeded, and its answer got lost
            taken = True
        except LostUploadError as lost:
            wrong = str(lost)
        present = find(uri, transfers.stop)
        if present is None:
            if taken:
                raise ConflictError("an object was there and is gone again", where=str(uri), remedy="run again")
        elif present.metadata == metadata:  # by this very upload
            held = store.holds(present, upload.path)
            if held or (held is None and not unconfirmed):
                return
            with suppress(SpanloomError):  # not permitted, or removed already: the next try looks again
                keep_trying(partial(store.delete, present), store=store, uri=uri, stop=transfers.stop)
            wrong = "what is there after it has another checksum"
        elif not upload.replace:
            _check_same(present, upload.path, sha256)
            return
    raise StorageError(
        f"{DAMAGED_TRIES} uploads came to nothing: {wrong}",
        where=str(uri),
        remedy="look for what changes data between here and the store (a proxy?); if an object is there now, it is "
        "damaged: remove it",
    )


def _check_same(present: StoredObject, path: Path, sha256: str) -> None:
    digest = present.metadata.get(SHA256_KEY)
    held = open_store(present.uri).holds(present, path)
    if held is not False and digest == sha256:
        return
    if held is not False and digest is None:  # another program's: a checksum of 32 bits does not prove equality
        with temporary_folder("spanloom-compare-") as directory:
            digest = sha256_file(stage_file(present.uri, Path(directory) / "object"))
        if digest == sha256:
            return
    known = digest if digest != sha256 else "unknown, not that of its metadata"
    raise ConflictError(
        f"refusing to overwrite an object that holds other bytes (there: {present.bytes} bytes, "
        f"sha256 {known or 'unknown'}, written {signed_by(present.metadata, present.written_at)}; "
        f"new: {path.stat().st_size} bytes, sha256 {sha256})",
        where=str(present.uri),
        remedy="give another URI, or remove what that build left there first",
    )


def remove_if_allowed(uri: Uri) -> None:
    """Deletes an object that is no longer needed. Without permission to delete, the object stays."""
    store = open_store(uri)
    with suppress(SpanloomError):
        if (stored := find(uri)) is not None:
            keep_trying(lambda: store.delete(stored), store=store, uri=uri)
