"""One object that names the owner of a root in a bucket: of two builds that publish into one root, one continues.

In: the root, and the build (everything that decides its bytes). Out: the claim exists and is ours, or a ConflictError
names its owner. All shards of one build, and its retries, share the claim.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from spanloom.errors import ConflictError, StorageError
from spanloom.provenance import canonical_json, git_sha, readable_json
from spanloom.storage.publishing import signature, signed_by
from spanloom.storage.staging import read_object
from spanloom.storage.stores.objects import AlreadyThereError, LostUploadError, Sending
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.transfer import open_store
from spanloom.storage.uri import Uri

CLAIM_NAME = "claim.json"
SKIP_VARIABLE = "SPANLOOM_SKIP_STORE_PROBE"
"""If 1, the probe is skipped: for an emulator that ignores the condition, when only one build writes to it."""


def claim_root(root: Uri, build: dict[str, Any], what: str = "the dataset root") -> None:
    """Creates `claim.json` below `root`, before any other object. An existing claim of the same `build` is ours.

    `what`: the name of the root in messages. Raises ConflictError if another build owns the root; it names the owner
    and the differences between the builds. Raises StorageError if the store ignores the condition of create-only
    writes: two builds would overwrite each other.
    """
    uri, store = root / CLAIM_NAME, open_store(root)
    if (claim := read_object(uri)) is None:
        with temporary_folder("spanloom-claim-") as directory:
            path = Path(directory) / CLAIM_NAME
            path.write_bytes(readable_json({"build": build, **signature()}))
            # The claim is read again below: if another build was faster, it is theirs.
            with suppress(AlreadyThereError, LostUploadError):
                store.create(path, uri, Sending())
        if (claim := read_object(uri)) is None:
            raise StorageError("the claim was written, but does not exist", where=str(uri), remedy="run again")
    _check_ours(claim, build, uri, what)
    check_create_only(claim, uri)


def check_create_only(data: bytes, uri: Uri) -> None:
    """Probes the store: writes our existing small object `data` again, create-only. A store that honours the condition
    refuses; one that ignores it overwrites the object with the same bytes. So nothing changes, and nothing needs to be
    removed.

    Raises StorageError if the store ignores the condition. With `SKIP_VARIABLE` set to 1, nothing is sent.
    """
    with temporary_folder("spanloom-claim-") as directory:
        path = Path(directory) / CLAIM_NAME
        path.write_bytes(data)
        if (fault := overwriting_fault(path, uri)) is not None:
            raise fault


def overwriting_fault(path: Path, uri: Uri) -> StorageError | None:
    """The fault of a store that creates an object again that it has: `path` was created at `uri`. None if it refuses;
    with `SKIP_VARIABLE` set to 1, nothing is sent."""
    if os.environ.get(SKIP_VARIABLE) == "1":
        return None
    store = open_store(uri)
    if not (taken := store.ways_to_overwrite(path, uri)):
        return None
    return StorageError(
        f"the store ignores {store.CONDITION} on {' and '.join(taken)}: it overwrites objects that exist, so two "
        "builds could mix in one place",
        where=str(uri),
        remedy="take a store or a version that honours it, such as Amazon S3, Cloud Storage, SeaweedFS or MinIO; "
        f"{SKIP_VARIABLE}=1 skips the check, where one build alone writes there",
    )


def check_same_code(root: Uri) -> None:
    """Raises ConflictError if a build of another commit has claimed `root`: this one could not finish there."""
    uri = root / CLAIM_NAME
    if (claim := read_object(uri)) is not None and b'"git_sha"' in claim:
        _check_ours(claim, {"git_sha": git_sha()}, uri, "the dataset root", only=("git_sha",))


def _check_ours(
    present: bytes, build: dict[str, Any], uri: Uri, what: str, only: tuple[str, ...] | None = None
) -> None:
    """`only`: the names that are compared; None compares all."""
    try:
        claim = json.loads(present)
        theirs = claim["build"]
        differing = [
            name
            for name in only or {**theirs, **build}
            if canonical_json(theirs.get(name)) != canonical_json(build.get(name))
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StorageError("this object is not a build's claim", where=str(uri), remedy="give another place") from None
    if differing:
        raise ConflictError(
            f"{what} belongs to another build, begun {signed_by(claim)}: "
            f"{', '.join(differing)} {'is' if len(differing) == 1 else 'are'} not the same",
            where=str(uri),
            remedy="give another place; if that build is dead, remove all that it left below this one",
        )
