"""`gs://`: one bucket of Google Cloud Storage, over its JSON API, through google-cloud-storage's session.

In: a bucket's name; credentials as Google's libraries find them, none if STORAGE_EMULATOR_HOST is set.
Out: a `Store`. Objects are created with `ifGenerationMatch=0` and the file's crc32c, large ones in resumable pieces.

This module makes the requests itself: the client's downloads do not compare the answered range with the requested one,
and its resumable uploads raise ValueError if the store keeps less of a piece than was sent, which it may.
"""

import base64
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import google_crc32c
import requests
from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed, from_http_response
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.cloud import storage
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from spanloom.errors import SpanloomError, StorageError
from spanloom.options.endless import never_ends
from spanloom.storage.stores.objects import (
    AlreadyThereError,
    DamagedTransferError,
    LostUploadError,
    Sending,
    StoredObject,
    byte_range,
    leading_bytes,
    replaced_meanwhile,
    without_first,
)
from spanloom.storage.stores.retry import counted, keep_sending, keep_trying
from spanloom.storage.stores.tls import check_address, check_ca_file, refused_certificate, untrusted
from spanloom.storage.uri import Uri

WHOLE = 8 << 20
"""Bytes of the largest file that is sent in one request."""
CHUNK = 16 << 20
"""Bytes of a piece: the most that is sent again after a dropped connection. Each upload holds one in memory. A multiple
of 256 KiB."""
BLOCK = 64 << 10
TIMEOUT = (10, 60)
"""Seconds to connect, and to wait between bytes."""
BILLING_VARIABLE = "SPANLOOM_GS_BILLING_PROJECT"
"""The project that pays for requests to a bucket whose requester pays."""
TRANSIENT_CODES = frozenset({408, 429, 500, 502, 503, 504})
CA_VARIABLE = "REQUESTS_CA_BUNDLE"
KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
RESUME = 308
"""HTTP status of an unfinished resumable upload. (Elsewhere a redirect, but then with a Location.)"""


class GcsStore:
    """A bucket. Threads share the session. Each request is tried once here; `retry` repeats it."""

    CONDITION: ClassVar = "ifGenerationMatch=0"

    def __init__(self, bucket: str, connections: int) -> None:
        try:
            if never_ends(Path(os.environ.get(KEY_VARIABLE, ""))):
                raise ValueError("it is no regular file")
            client = storage.Client(project=None)
        except (GoogleAuthError, ValueError, OSError, AttributeError, TypeError) as fault:  # JSON of another shape, too
            raise _no_client(fault, bucket) from fault

        adapter = _CountingAdapter(pool_connections=connections, pool_maxsize=connections)
        self._session: Any = client._http
        for prefix in ("http://", "https://"):
            self._session.mount(prefix, adapter)  # by default, more than 10 threads would open and drop connections
        check_address(client.api_endpoint, "STORAGE_EMULATOR_HOST", f"gs://{bucket}")
        ca_file = os.environ.get(CA_VARIABLE) or os.environ.get("CURL_CA_BUNDLE")
        if ca_file and client.api_endpoint.startswith("https:"):
            check_ca_file(ca_file, CA_VARIABLE, f"gs://{bucket}")
        self._api, self._objects = client.api_endpoint, f"/storage/v1/b/{quote(bucket, safe='')}/o"

    def find(self, uri: Uri) -> StoredObject | None:
        try:
            answer = self._ask("GET", self._address(uri), params={"projection": "noAcl"})
        except NotFound as fault:
            if "bucket" in fault.message.lower() and "exist" in fault.message:
                raise
            return None
        return _described(_json(answer), uri)

    def page(self, prefix: Uri, token: str | None) -> tuple[list[StoredObject], str | None]:
        start = f"{prefix.key}/" if prefix.key else ""
        parameters = {"prefix": start, "projection": "noAcl"} | ({} if token is None else {"pageToken": token})
        listing = _json(self._ask("GET", f"{self._api}{self._objects}", params=parameters))
        entries = listing.get("items", [])
        if listing.get("kind") != "storage#objects" or not isinstance(entries, list):
            raise DamagedTransferError("the answer is not a listing of a bucket")
        objects = []
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name.startswith(start):
                raise DamagedTransferError(f"the listing below {start!r} has {name!r} in it")
            objects.append(_described(entry, Uri(prefix.scheme, prefix.bucket, name)))
        return objects, listing.get("nextPageToken") or None

    def read(self, stored: StoredObject, first: int, sink: Callable[[bytes], None], end: int | None = None) -> None:
        # The bytes as stored, without decompression; `staging` compares the checksum of the whole.
        headers = {"Range": byte_range(first, end), "Accept-Encoding": "gzip"}
        parameters = {"alt": "media", "generation": stored.version}
        try:
            answer = self._ask(
                "GET", self._address(stored.uri, "/download"), params=parameters, headers=headers, stream=True
            )
        except (NotFound, PreconditionFailed) as fault:
            raise replaced_meanwhile(stored) from fault
        with answer:
            answered = answer.headers
            if (version := answered.get("X-Goog-Generation", stored.version)) != stored.version:
                raise DamagedTransferError(f"the version requested is {stored.version}, this is {version}")
            leave_out = leading_bytes(
                answer.status_code,
                answered.get("Content-Range"),
                answered.get("Content-Length"),
                first=first,
                end=stored.bytes if end is None else end,
                total=stored.bytes,
            )
            sink = without_first(leave_out, sink)
            for block in answer.raw.stream(BLOCK, decode_content=False):
                sink(block)

    def create(self, path: Path, uri: Uri, sending: Sending) -> bool:
        size, crc32c = path.stat().st_size, crc32c_file(path)
        resource = _resource(uri, crc32c, sending.metadata)
        if size <= WHOLE:
            created = self._send_whole(path.read_bytes(), uri, resource, sending)
            sending.moved(size)
        else:
            created = self._send_in_pieces(path, size, uri, resource, sending)
        return created.bytes == size and created.crc32c == crc32c

    def ways_to_overwrite(self, path: Path, uri: Uri) -> list[str]:
        size, resource = path.stat().st_size, _resource(uri, crc32c_file(path), {})
        taken = []
        with suppress(AlreadyThereError, LostUploadError):
            self._send_whole(path.read_bytes(), uri, resource, Sending())
            taken.append("a multipart upload")
        with suppress(AlreadyThereError, LostUploadError):
            self._send_in_pieces(path, size, uri, resource, Sending())
            taken.append("a resumable upload")
        return taken

    def _send_whole(self, data: bytes, uri: Uri, resource: Mapping[str, Any], sending: Sending) -> StoredObject:
        """An upload in one `multipart/related` request: the resource as JSON, then the bytes."""
        edge = uuid.uuid4().hex
        first = f"--{edge}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
        second = f"--{edge}\r\nContent-Type: {resource['contentType']}\r\n\r\n"
        body = b"".join((first.encode(), second.encode(), data, f"\r\n--{edge}--".encode()))

        def attempt() -> StoredObject:
            answer = self._send(
                "POST",
                f"{self._api}/upload{self._objects}",
                params={"uploadType": "multipart", **_condition(sending)},
                headers={"Content-Type": f"multipart/related; boundary={edge}"},
                data=body,
            )
            return _described(_json(answer), uri)

        return keep_sending(attempt, store=self, uri=uri, stop=sending.stop)

    def _send_in_pieces(
        self, path: Path, size: int, uri: Uri, resource: Mapping[str, Any], sending: Sending
    ) -> StoredObject:
        """A resumable upload: after any error, the store is asked how many bytes it has; the upload resumes there."""

        def begin() -> str:
            answer = self._send(
                "POST",
                f"{self._api}/upload{self._objects}",
                params={"uploadType": "resumable", **_condition(sending)},
                headers={"X-Upload-Content-Length": str(size)},
                json=resource,
            )
            if not (session := answer.headers.get("Location")):
                raise DamagedTransferError("the store began an upload and did not say where")
            return str(session)

        session = keep_trying(begin, store=self, uri=uri, stop=sending.stop)
        taken, unsure = 0, False

        def attempt() -> StoredObject:
            nonlocal taken, unsure
            with path.open("rb") as stream:
                while True:
                    data = b""
                    if not unsure:
                        stream.seek(taken)
                        data = stream.read(CHUNK)
                    span = f"{taken}-{taken + len(data) - 1}" if data else "*"
                    asked, unsure = unsure, True  # until it answers, only the store knows how many bytes it has
                    headers = {"Content-Range": f"bytes {span}/{size}"}
                    answer = self._send("PUT", session, headers=headers, data=data)
                    if answer.status_code != RESUME:
                        return _described(_json(answer), uri)
                    before, taken = taken, _bytes_stored(answer, size)
                    if not asked and taken <= before:
                        raise DamagedTransferError(f"the store took none of the bytes from {before} on")
                    unsure = False
                    sending.moved(max(0, taken - before))

        return keep_sending(attempt, store=self, uri=uri, stop=sending.stop, before=lambda: taken)

    def _send(self, method: str, address: str, **request: Any) -> Any:
        """A request of an upload. Raises AlreadyThereError, LostUploadError, and the errors of `_ask`."""
        try:
            return self._ask(method, address, **request)
        except GoogleAPICallError as fault:
            if fault.code == 412:
                raise AlreadyThereError from fault
            if fault.code == 400 and "crc32c" in _message(fault).lower():
                raise LostUploadError(f"the store refused the bytes: {_message(fault)}") from fault
            if fault.code in (404, 410) and method == "PUT":  # for a POST, 404 refers to the bucket
                raise LostUploadError(f"the store no longer knows of this upload: {_message(fault)}") from fault
            raise

    def delete(self, stored: StoredObject) -> None:
        self._ask("DELETE", self._address(stored.uri), params={"ifGenerationMatch": stored.version})

    def holds(self, stored: StoredObject, path: Path) -> bool | None:
        if stored.bytes != path.stat().st_size:
            return False
        return None if stored.crc32c is None else crc32c_file(path) == stored.crc32c

    def _address(self, uri: Uri, before: str = "") -> str:
        return f"{self._api}{before}{self._objects}/{quote(uri.key, safe='')}"

    def _ask(self, method: str, address: str, **request: Any) -> Any:
        """One request. Raises google.api_core's exception for any status except success and `RESUME`."""
        if (project := os.environ.get(BILLING_VARIABLE)) and "userProject=" not in address:
            request["params"] = {**request.get("params", {}), "userProject": project}
        answer = self._session.request(method, address, timeout=TIMEOUT, **request)
        if not (200 <= answer.status_code < 300 or answer.status_code == RESUME):
            raise from_http_response(answer)
        return answer

    def is_transient(self, fault: Exception) -> bool:
        if isinstance(fault, GoogleAPICallError):
            return fault.code in TRANSIENT_CODES
        if refused_certificate(fault):
            return False
        dropped = (ConnectionError, TimeoutError, requests.ConnectionError, requests.Timeout, HTTPError, TransportError)
        broken = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
        return isinstance(fault, (*dropped, *broken, DamagedTransferError))

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        where = str(uri)
        if why := refused_certificate(fault):
            return untrusted(why, CA_VARIABLE, where)
        if isinstance(fault, DefaultCredentialsError | RefreshError):
            return StorageError(f"the Google credentials cannot be used: {fault}", where=where, remedy=_LOG_IN)
        if isinstance(fault, requests.TooManyRedirects):
            return StorageError("the store's address redirects in a circle", where=where, remedy=_ADDRESS)
        if isinstance(fault, requests.RequestException):
            return StorageError(f"the request cannot be made: {fault}", where=where, remedy=_ADDRESS)
        if not isinstance(fault, GoogleAPICallError):
            return None
        code, message = fault.code, _message(fault)
        if code == 401:
            return StorageError(f"the store does not know who is asking: {message}", where=where, remedy=_LOG_IN)
        if code == 403:
            remedy = (
                f"let this account read (roles/storage.objectViewer) and, where the command writes, create "
                f"(roles/storage.objectUser) objects in gs://{uri.bucket}"
            )
            return StorageError(f"no permission: {message}", where=where, remedy=remedy)
        if code == 404 and "No such object" in message:
            return StorageError("the object does not exist", where=where, remedy="fix the URI")
        if code == 404:
            remedy = f"create the bucket gs://{uri.bucket}, or fix the URI"
            return StorageError(f"the bucket {uri.bucket!r} does not exist", where=where, remedy=remedy)
        return StorageError(f"the store refused with HTTP {code}: {message}", where=where, remedy=_ADDRESS)


def _no_client(fault: Exception, bucket: str) -> StorageError:
    """The error for a client that cannot be made: a key file that is missing or torn, or no credentials at all."""
    where, file = f"gs://{bucket}", os.environ.get(KEY_VARIABLE)
    if not file:
        return StorageError("no Google credentials were found", where=where, remedy=_LOG_IN)
    why = " ".join(str(fault.args[0] if fault.args else fault).split())[:300]
    if not Path(file).exists():
        why = "there is no such file"
    return StorageError(
        f"the key file {file!r} of {KEY_VARIABLE} cannot be used: {why}",
        where=where,
        remedy=f"set {KEY_VARIABLE} to a whole JSON key of a service account, or unset it",
    )


_LOG_IN = (
    "run `gcloud auth application-default login`, name a key in GOOGLE_APPLICATION_CREDENTIALS, "
    "or give the pod a service account (workload identity)"
)
_ADDRESS = "look at the address (STORAGE_EMULATOR_HOST) and at the proxy between here and the store"


def _message(fault: Any) -> str:
    """The store's own message, without the address that the client prepends."""
    try:
        text = fault.response.json()["error"]["message"]
    except (AttributeError, ValueError, KeyError, TypeError):
        text = getattr(fault, "message", str(fault))
    return " ".join(str(text).split())[:300]


def crc32c_file(path: Path) -> str:
    """Hex crc32c of a file's bytes."""
    digest = google_crc32c.Checksum()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return bytes(digest.digest()).hex()


class _CountingAdapter(HTTPAdapter):  # type: ignore[misc]  # requests has no types
    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        request = request.copy()
        request.body = counted(request.body)
        return super().send(request, *args, **options)


def _condition(sending: Sending) -> dict[str, str]:
    return {} if sending.replace else {"ifGenerationMatch": "0"}


def _resource(uri: Uri, crc32c: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The description of a new object in an upload; `crc32c` is hex."""
    return {
        "name": uri.key,
        "contentType": "application/octet-stream",
        "metadata": dict(metadata),
        "crc32c": base64.b64encode(bytes.fromhex(crc32c)).decode(),  # the store refuses other bytes
    }


def _json(answer: Any) -> dict[str, Any]:
    """The JSON object of an answer. Raises DamagedTransferError for anything else: a proxy's page, truncated JSON."""
    try:
        value = json.loads(answer.content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        kind = answer.headers.get("Content-Type", "nothing of a known kind")
        raise DamagedTransferError(f"the answer is {kind}, not the JSON object that Cloud Storage answers") from None
    return value


def _bytes_stored(answer: Any, size: int) -> int:
    """The number of bytes of an unfinished upload that the store has, by its answer `Range: bytes=0-LAST`."""
    if (taken := answer.headers.get("Range")) is None:
        return 0
    match = re.fullmatch(r"bytes=0-(\d+)", taken)
    if match is None or int(match[1]) + 1 >= size:  # with all bytes, the upload would be finished
        raise DamagedTransferError(f"the store has {taken!r} of an upload of {size} bytes and calls it unfinished")
    return int(match[1]) + 1


def _described(resource: Mapping[str, Any], uri: Uri) -> StoredObject:
    """The object in a resource of the JSON API. Raises DamagedTransferError for anything else, or another object's."""
    crc32c, md5, metadata = resource.get("crc32c"), resource.get("md5Hash"), resource.get("metadata") or {}
    try:
        size = int(resource["size"])
        if resource["name"] != uri.key or size < 0 or not isinstance(metadata, dict):
            raise ValueError
        return StoredObject(
            uri=uri,
            bytes=size,
            version=str(int(resource["generation"])),
            crc32c=crc32c and base64.b64decode(crc32c).hex(),
            md5=md5 and base64.b64decode(md5).hex(),
            written_at=str(resource.get("updated", "")),
            metadata={str(key): str(value) for key, value in metadata.items()},
        )
    except (KeyError, ValueError, TypeError):
        raise DamagedTransferError(f"the answer does not describe {uri.key!r}") from None
