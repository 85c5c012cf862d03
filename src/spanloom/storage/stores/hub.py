"""`hf://datasets/OWNER/NAME[@REVISION]/path`: one dataset repository of the Hugging Face Hub, through huggingface_hub.

In: a repository and a revision; the endpoint, token and offline switch as huggingface_hub finds them. Out: a `Store`
that is only read, and `push`, which commits a folder. The revision is resolved to a commit once in a process:
whatever is pushed meanwhile, one command reads one commit.

Large files are checked by the sha256 that the Hub reports, small ones by the id of their git object.
"""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported without `as`
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from spanloom.errors import SpanloomError, StorageError
from spanloom.storage.stores.objects import (
    SHA256_KEY,
    DamagedTransferError,
    Sending,
    StoredObject,
    byte_range,
    leading_bytes,
    without_first,
)
from spanloom.storage.stores.retry import keep_trying
from spanloom.storage.uri import Uri

BLOCK = 64 << 10
TIMEOUT = 60
"""Seconds to connect, and to wait between bytes."""
TRANSIENT_CODES = frozenset({408, 429, 500, 502, 503, 504})
_HTTP_ERROR: type[Exception] = HfHubHTTPError.__mro__[1]
"""HTTPError of the HTTP client that huggingface_hub uses, whose name changed with its versions."""
_ACCESS = "log in with `hf auth login`, or set HF_TOKEN; for a gated dataset accept its terms on its page first"
_commits: dict[str, str] = {}
"""Repository with revision → its commit, for all threads of this process."""
_resolving = threading.Lock()


class HubStore:
    """A repository at one commit. Threads share the session. Each request is tried once here; `retry` repeats it."""

    CONDITION: ClassVar = "none: hf:// is only read"

    def __init__(self, bucket: str) -> None:
        repository, _, revision = bucket.removeprefix("datasets/").partition("@")
        self._api, self._repository = HfApi(), repository
        self._asked = revision or None
        self._uri = Uri("hf", bucket, "")

    @property
    def commit(self) -> str:
        """The commit that the revision was when this process first asked."""
        bucket = self._uri.bucket
        with _resolving:
            if bucket not in _commits:
                _commits[bucket] = keep_trying(self._resolved, store=self, uri=self._uri)
            return _commits[bucket]

    def push(self, folder: Path, message: str) -> str:
        """Commits the files of a folder, but for names that begin with a dot. Returns the address of the commit.

        A dataset that does not exist is made, private. Raises StorageError.
        """
        try:
            self._api.create_repo(self._repository, repo_type="dataset", private=True, exist_ok=True)
            commit = self._api.upload_folder(
                repo_id=self._repository,
                repo_type="dataset",
                folder_path=folder,
                commit_message=message,
                ignore_patterns=[".*", "**/.*"],
            )
        except (_HTTP_ERROR, HFValidationError, OfflineModeIsEnabled) as fault:
            error = self.explained(fault, self._uri)
            if error is None:
                error = StorageError(f"the Hub cannot be reached: {fault}", where=str(self._uri), remedy="try again")
            raise error from fault
        return str(commit.commit_url)

    def _resolved(self) -> str:
        if not (commit := self._api.dataset_info(self._repository, revision=self._asked, timeout=TIMEOUT).sha):
            raise DamagedTransferError("the Hub does not say which commit the revision is")
        return commit

    def find(self, uri: Uri) -> StoredObject | None:
        if not uri.key:
            return None
        described = self._api.get_paths_info(self._repository, [uri.key], repo_type="dataset", revision=self.commit)
        files = [each for each in described if isinstance(each, RepoFile) and each.path == uri.key]
        return _described(files[0], uri) if files else None

    def page(self, prefix: Uri, token: str | None) -> tuple[list[StoredObject], str | None]:  # noqa: ARG002
        """Everything below the prefix: huggingface_hub joins the pages, so there is no token."""
        try:
            entries = list(
                self._api.list_repo_tree(
                    self._repository, prefix.key or None, recursive=True, repo_type="dataset", revision=self.commit
                )
            )
        except EntryNotFoundError:
            return [], None
        start = f"{prefix.key}/" if prefix.key else ""
        files = [entry for entry in entries if isinstance(entry, RepoFile)]
        if foreign := [file.path for file in files if not file.path.startswith(start)]:
            raise DamagedTransferError(f"the listing below {start!r} has {foreign[0]!r} in it")
        return [_described(file, Uri(prefix.scheme, prefix.bucket, file.path)) for file in files], None

    def read(self, stored: StoredObject, first: int, sink: Callable[[bytes], None], end: int | None = None) -> None:
        address = hf_hub_url(self._repository, stored.uri.key, repo_type="dataset", revision=self.commit)
        headers = {**build_hf_headers(), "Range": byte_range(first, end), "Accept-Encoding": "identity"}
        with get_session().stream("GET", address, headers=headers, follow_redirects=True, timeout=TIMEOUT) as answer:
            hf_raise_for_status(answer)
            leave_out = leading_bytes(
                answer.status_code,
                answer.headers.get("Content-Range"),
                answer.headers.get("Content-Length"),
                first=first,
                end=stored.bytes if end is None else end,
                total=stored.bytes,
            )
            sink = without_first(leave_out, sink)
            for block in answer.iter_raw(BLOCK):
                sink(block)

    def holds(self, stored: StoredObject, path: Path) -> bool | None:
        if stored.bytes != path.stat().st_size:
            return False
        if (digest := stored.metadata.get(SHA256_KEY)) is not None:
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == digest
        git = hashlib.sha1(f"blob {stored.bytes}\0".encode(), usedforsecurity=False)
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                git.update(block)
        return git.hexdigest() == stored.version

    def create(self, path: Path, uri: Uri, sending: Sending) -> bool:  # noqa: ARG002
        _refuse(uri)

    def ways_to_overwrite(self, path: Path, uri: Uri) -> list[str]:  # noqa: ARG002
        _refuse(uri)

    def delete(self, stored: StoredObject) -> None:
        _refuse(stored.uri)

    def is_transient(self, fault: Exception) -> bool:
        if isinstance(fault, HfHubHTTPError):
            return fault.response is not None and fault.response.status_code in TRANSIENT_CODES
        return isinstance(fault, DamagedTransferError | _HTTP_ERROR)

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        return _explained(fault, str(uri))


def _explained(fault: Exception, where: str) -> SpanloomError | None:
    # GatedRepoError is a RepositoryNotFoundError, so it comes first.
    kinds: list[tuple[type[Exception], str, str]] = [
        (GatedRepoError, "the dataset is gated, and the Hub does not let you read it", _ACCESS),
        (RevisionNotFoundError, "the dataset has no such revision", "give a branch, a tag or a commit after the @"),
        (
            RepositoryNotFoundError,
            "the Hub has no such dataset, or it is private",
            f"check the name, OWNER/NAME; for a private dataset {_ACCESS.partition(';')[0]}",
        ),
        (HFValidationError, "the Hub takes no such name", "write hf://datasets/OWNER/NAME[@REVISION]/path"),
        (OfflineModeIsEnabled, "HF_HUB_OFFLINE is set, so the Hub is not asked", "unset it"),
    ]
    for kind, what, remedy in kinds:
        if isinstance(fault, kind):
            return StorageError(what, where=where, remedy=remedy)
    if isinstance(fault, HfHubHTTPError):
        status = fault.response.status_code if fault.response is not None else None
        what = f"the Hub answered with HTTP {status}: {' '.join(str(fault).split())[:300]}"
        return StorageError(what, where=where, remedy=_ACCESS if status in (401, 403) else None)
    return None


def _described(file: RepoFile, uri: Uri) -> StoredObject:
    metadata = {} if file.lfs is None else {SHA256_KEY: file.lfs.sha256}
    return StoredObject(uri=uri, bytes=file.size, version=file.blob_id, metadata=metadata)


def _refuse(uri: Uri) -> NoReturn:
    raise StorageError(
        "hf:// is only read", where=str(uri), remedy="write to a folder; `spanloom export --push OWNER/NAME` uploads"
    )
