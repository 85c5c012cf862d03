"""`gs://`: one bucket of Google Cloud Storage, through google-cloud-storage.

In: a bucket's name; credentials as Google's libraries find them, none when STORAGE_EMULATOR_HOST is set.
Out: a `Store`. Objects are created with `if_generation_match=0`, large ones in resumable chunks, crc32c compared.
"""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from spanloom.errors import SpanloomError, StorageError
from spanloom.storage.objects import AlreadyThereError, DamagedTransferError, StoredObject
from spanloom.storage.patience import keep_trying
from spanloom.storage.uri import Uri

CHUNK = 16 << 20
"""What a dropped connection costs at most; held in memory by each upload. A multiple of 256 KiB."""
TIMEOUT = (10, 60)
"""Seconds to connect, and between bytes."""
TRANSIENT_CODES = frozenset({408, 410, 429, 500, 502, 503, 504})  # 410: the resumable session is gone, begin another


class GcsStore:
    """A bucket. The client is shared by threads, each request is tried once here: `patience` is what tries again."""

    def __init__(self, bucket: str, connections: int) -> None:
        try:
            from google.auth.exceptions import DefaultCredentialsError
            from google.cloud import storage
            from requests.adapters import HTTPAdapter
        except ImportError as missing:
            raise StorageError(
                f"gs:// needs google-cloud-storage ({missing})", remedy="pip install 'spanloom[gcs]'"
            ) from None
        try:
            client = storage.Client(project=None)
        except DefaultCredentialsError as fault:
            raise StorageError("no Google credentials were found", where=f"gs://{bucket}", remedy=_LOG_IN) from fault
        adapter = HTTPAdapter(pool_connections=connections, pool_maxsize=connections)
        for prefix in ("http://", "https://"):
            client._http.mount(prefix, adapter)  # else more threads than 10 would open and drop connections
        self._bucket = client.bucket(bucket)

    def find(self, uri: Uri) -> StoredObject | None:
        from google.api_core.exceptions import NotFound

        blob = self._bucket.blob(uri.key)
        try:
            blob.reload(retry=None, timeout=TIMEOUT)
        except NotFound as fault:
            if "bucket" in fault.message.lower() and "exist" in fault.message:
                raise
            return None
        return _described(blob, uri)

    def below(self, prefix: Uri) -> list[StoredObject]:
        start = f"{prefix.key}/" if prefix.key else None
        blobs = self._bucket.client.list_blobs(
            self._bucket, prefix=start, retry=self._patiently(prefix), timeout=TIMEOUT
        )
        return [_described(blob, Uri(prefix.scheme, prefix.bucket, blob.name)) for blob in blobs]

    def read(self, found: StoredObject, first: int, sink: Callable[[bytes], None]) -> None:
        blob = self._bucket.blob(found.uri.key, generation=int(found.version))
        # Raw: as stored, not unpacked on the way; the checksum of the whole is compared by `staging`.
        blob.download_to_file(_Sink(sink), start=first, raw_download=True, checksum=None, retry=None, timeout=TIMEOUT)

    def create(
        self, path: Path, uri: Uri, *, metadata: Mapping[str, str], replace: bool, moved: Callable[[int], None]
    ) -> None:
        from google.api_core.exceptions import PreconditionFailed
        from google.cloud.storage.exceptions import DataCorruption

        blob = self._bucket.blob(uri.key, chunk_size=CHUNK)
        blob.metadata = dict(metadata)
        with path.open("rb") as stream:
            try:
                blob.upload_from_file(
                    _Source(stream, moved),
                    size=path.stat().st_size,
                    content_type="application/octet-stream",
                    if_generation_match=None if replace else 0,
                    checksum="crc32c",
                    retry=self._patiently(uri),  # each piece by itself
                    timeout=TIMEOUT,
                )
            except PreconditionFailed as fault:
                raise AlreadyThereError from fault
            except DataCorruption as fault:  # the client has deleted the object
                raise DamagedTransferError(str(fault)) from fault
        if self.holds(_described(blob, uri), path) is False:
            blob.delete(retry=None, timeout=TIMEOUT)
            raise DamagedTransferError("the store's crc32c is not that of the file")

    def _patiently(self, uri: Uri) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """What the client takes for its retry: wraps each single request of an upload or a listing."""
        return lambda request: lambda: keep_trying(request, store=self, uri=uri)

    def delete(self, uri: Uri) -> None:
        self._bucket.blob(uri.key).delete(retry=None, timeout=TIMEOUT)

    def holds(self, found: StoredObject, path: Path) -> bool | None:
        if found.bytes != path.stat().st_size:
            return False
        return None if found.crc32c is None else crc32c_file(path) == found.crc32c

    def is_transient(self, fault: Exception) -> bool:
        import requests
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import TransportError
        from google.cloud.storage.exceptions import InvalidResponse
        from urllib3.exceptions import HTTPError

        if isinstance(fault, GoogleAPICallError):
            return fault.code in TRANSIENT_CODES
        if isinstance(fault, InvalidResponse):
            return fault.response.status_code in TRANSIENT_CODES
        dropped = (ConnectionError, requests.ConnectionError, requests.Timeout, HTTPError, TransportError)
        broken = (requests.exceptions.ChunkedEncodingError, DamagedTransferError)
        return isinstance(fault, dropped + broken)

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import DefaultCredentialsError, RefreshError
        from google.cloud.storage.exceptions import InvalidResponse

        where = str(uri)
        if isinstance(fault, DefaultCredentialsError | RefreshError):
            return StorageError(f"the Google credentials cannot be used: {fault}", where=where, remedy=_LOG_IN)
        if not isinstance(fault, InvalidResponse | GoogleAPICallError):
            return None
        code = fault.response.status_code if isinstance(fault, InvalidResponse) else fault.code
        if code == 412:
            return None  # a precondition: whoever set it knows what it means
        said = _message(fault)
        if code == 401:
            return StorageError(f"the store does not know who is asking: {said}", where=where, remedy=_LOG_IN)
        if code == 403:
            remedy = (
                f"let this account read (roles/storage.objectViewer) and, where the command writes, create "
                f"(roles/storage.objectUser) objects in gs://{uri.bucket}"
            )
            return StorageError(f"no permission: {said}", where=where, remedy=remedy)
        if code == 404 and "No such object" in said:
            return StorageError("the object is not there", where=where, remedy="mend the URI")
        if code == 404:
            remedy = f"create the bucket gs://{uri.bucket}, or mend the URI"
            return StorageError(f"the bucket {uri.bucket!r} does not exist", where=where, remedy=remedy)
        return StorageError(f"the store refused with HTTP {code}: {said}", where=where)


_LOG_IN = (
    "run `gcloud auth application-default login`, name a key in GOOGLE_APPLICATION_CREDENTIALS, "
    "or give the pod a service account (workload identity)"
)


def _message(fault: Any) -> str:
    """What the store itself said, without the address that the client puts before it."""
    try:
        said = fault.response.json()["error"]["message"]
    except (AttributeError, ValueError, KeyError, TypeError):
        said = getattr(fault, "message", str(fault))
    return " ".join(str(said).split())[:300]


def crc32c_file(path: Path) -> str:
    """Hex crc32c of a file's bytes."""
    import google_crc32c

    digest = google_crc32c.Checksum()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return bytes(digest.digest()).hex()


def _described(blob: Any, uri: Uri) -> StoredObject:
    return StoredObject(
        uri=uri,
        bytes=int(blob.size),
        version=str(blob.generation),
        crc32c=blob.crc32c and base64.b64decode(blob.crc32c).hex(),
        md5=blob.md5_hash and base64.b64decode(blob.md5_hash).hex(),
        written_at=blob.updated.isoformat(timespec="seconds") if blob.updated else "",
        metadata=blob.metadata or {},
    )


class _Sink:
    """What the client writes to: a callable as a stream."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink(data)
        return len(data)


class _Source:
    """What the client reads from: a file that tells how far it was read, and may so be stopped."""

    def __init__(self, stream: IO[bytes], moved: Callable[[int], None]) -> None:
        self._stream, self._moved = stream, moved

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._moved(len(data))
        return data

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)
