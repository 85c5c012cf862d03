"""`s3://`: one bucket of S3 or of an S3-compatible store, through boto3.

In: a bucket's name; credentials, region and AWS_ENDPOINT_URL as boto3 finds them. Out: a `Store`.
Objects are created with `If-None-Match: *`, large ones in parts. The store checks the md5 of each part; then the ETag
of the whole object is compared.
"""

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from botocore import exceptions as raised
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from spanloom.errors import SpanloomError, StorageError
from spanloom.storage.stores.in_order import in_order
from spanloom.storage.stores.objects import (
    PIECES,
    PIECES_FROM,
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
from spanloom.storage.stores.s3_client import (
    CANNOT_BE_MADE,
    LOG_IN,
    encryption,
    make_client,
    may_come_late,
    payer,
    why_no_client,
    why_no_credentials,
)
from spanloom.storage.stores.tls import refused_certificate, untrusted
from spanloom.storage.uri import Uri

PART = 32 << 20
"""Bytes of a part; parts are larger for files that would have over 9,000 (10,000 are allowed). At most `PIECES` of them
are in memory."""
BLOCK = 64 << 10
TRANSIENT_CODES = frozenset(
    {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "InternalError", "ServiceUnavailable",
     "ConditionalRequestConflict", "OperationAborted", "BadDigest", "RequestTimeTooSkewed"}
)  # fmt: skip
TRANSIENT_STATUS = frozenset({408, 429})
"""HTTP statuses, in addition to 500 and above without 501 (not implemented), which a retry does not change."""
ACCESS_CODES = frozenset(
    {"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)
NO_UPLOAD = frozenset({"NoSuchUpload", "InvalidPart"})
"""Error codes: the store no longer knows an upload, or a part that it had confirmed."""


class S3Store:
    """A bucket. Threads share the client. Each request is tried once here; `retry` repeats it."""

    CONDITION: ClassVar = "If-None-Match: *"

    def __init__(self, bucket: str, connections: int) -> None:
        self._name = bucket
        self._pieces = threading.BoundedSemaphore(PIECES)
        self._connections = connections
        self._making = threading.Lock()
        self._made: Any = None
        self._payer, self._encryption = payer(), encryption()
        try:
            _ = self._client
        except CANNOT_BE_MADE as fault:
            if not may_come_late(fault):
                raise why_no_client(fault, bucket) from fault

    @property
    def _client(self) -> Any:
        """The client; made again with each request while its credentials are not there."""
        with self._making:
            if self._made is not None:
                return self._made
            client, found = make_client(self._name, self._connections)
            client.meta.events.register("before-send.s3", _count_body)
            if found or not may_come_late(raised.NoCredentialsError()):
                self._made = client
            return client

    def find(self, uri: Uri) -> StoredObject | None:
        try:
            head = self._client.head_object(Bucket=self._name, Key=uri.key, **self._payer)
        except ClientError as fault:
            if _status(fault) == 404:
                return None
            raise
        return _described(head, uri, head.get("ContentLength"))

    def page(self, prefix: Uri, token: str | None) -> tuple[list[StoredObject], str | None]:
        start = f"{prefix.key}/" if prefix.key else ""
        parameters = {"Prefix": start} | ({} if token is None else {"ContinuationToken": token})
        listing = self._client.list_objects_v2(Bucket=self._name, **parameters, **self._payer)
        entries = listing.get("Contents", [])
        # An HTML page may be well-formed XML: it must not be taken for an empty bucket.
        if (
            "Name" not in listing
            or "IsTruncated" not in listing
            or listing.get("KeyCount", len(entries)) != len(entries)
        ):
            raise DamagedTransferError("the answer is not a listing of a bucket, or not all of it")
        objects = []
        for entry in entries:
            if not str(entry.get("Key", "")).startswith(start):
                raise DamagedTransferError(f"the listing below {start!r} has {entry.get('Key')!r} in it")
            objects.append(_described(entry, Uri(prefix.scheme, prefix.bucket, entry["Key"]), entry.get("Size")))
        if not listing["IsTruncated"]:
            return objects, None
        return objects, str(_field(listing, "NextContinuationToken"))

    def read(self, stored: StoredObject, first: int, sink: Callable[[bytes], None], end: int | None = None) -> None:
        try:
            answer = self._client.get_object(
                Bucket=self._name,
                Key=stored.uri.key,
                Range=byte_range(first, end),
                IfMatch=f'"{stored.version}"',
                **self._payer,
            )
        except ClientError as fault:
            if _status(fault) in (404, 412):
                raise replaced_meanwhile(stored) from fault
            raise
        with closing(answer["Body"]) as body:
            metadata = answer["ResponseMetadata"]
            if (version := answer.get("ETag", stored.version).strip('"')) != stored.version:
                raise DamagedTransferError(f"the version requested is {stored.version}, this is {version}")
            leave_out = leading_bytes(
                int(metadata["HTTPStatusCode"]),
                answer.get("ContentRange"),
                metadata.get("HTTPHeaders", {}).get("content-length"),
                first=first,
                end=stored.bytes if end is None else end,
                total=stored.bytes,
            )
            sink = without_first(leave_out, sink)
            for block in body.iter_chunks(BLOCK):
                sink(block)

    def create(self, path: Path, uri: Uri, sending: Sending) -> bool:
        size = path.stat().st_size
        if size <= PART:
            data = path.read_bytes()
            md5 = hashlib.md5(data, usedforsecurity=False)
            tag = md5.hexdigest()
            content = {"Body": data, "ContentMD5": _base64(md5.digest()), "Metadata": dict(sending.metadata)}
            place = {"Bucket": self._name, "Key": uri.key, **self._payer}
            options = {**place, **content, **self._encryption, **_condition(sending)}
            answer = self._send(lambda: self._client.put_object(**options), "ETag", uri, sending.stop)
            sending.moved(size)
        else:
            answer, tag = self._create_in_parts(path, uri, size, sending)
        return _is_md5(answer, tag)

    def _send(
        self, request: Callable[[], dict[str, Any]], field: str, uri: Uri, stop: threading.Event | None
    ) -> dict[str, Any]:
        """A request of an upload, retried until the answer has this field. Raises AlreadyThereError and
        LostUploadError."""

        def attempt() -> dict[str, Any]:
            try:
                answer = request()
            except ClientError as fault:
                if _status(fault) == 412:
                    raise AlreadyThereError from fault
                if _code(fault) in NO_UPLOAD:
                    raise LostUploadError(f"the store no longer knows of this upload ({_code(fault)})") from fault
                raise
            _field(answer, field)
            return answer

        return keep_sending(attempt, store=self, uri=uri, stop=stop)

    def _create_in_parts(self, path: Path, uri: Uri, size: int, sending: Sending) -> tuple[dict[str, Any], str]:
        place = {"Bucket": self._name, "Key": uri.key, **self._payer}
        options = {**place, **self._encryption, "Metadata": dict(sending.metadata)}
        begun = self._send(lambda: self._client.create_multipart_upload(**options), "UploadId", uri, sending.stop)
        place["UploadId"] = begun["UploadId"]
        part_bytes = max(PART, -(-size // 9000))
        parts: list[dict[str, Any]] = []
        md5s = b""

        def send(number: int, data: bytes, halt: threading.Event) -> tuple[bytes, int, str]:
            md5 = hashlib.md5(data, usedforsecurity=False).digest()
            part = {**place, "PartNumber": number, "Body": data, "ContentMD5": _base64(md5)}
            answer_of_part = self._send(partial(self._send_part, part, md5.hex()), "ETag", uri, halt)
            return md5, len(data), answer_of_part["ETag"]

        try:
            with path.open("rb") as stream:
                blocks = iter(lambda: stream.read(part_bytes), b"")
                jobs = (partial(send, number, data) for number, data in enumerate(blocks, 1))
                at_once = PIECES if size > PIECES_FROM else 1
                with closing(in_order(jobs, self._pieces, at_once, sending.stop)) as sent:
                    for md5, count, tag in sent:
                        parts.append({"PartNumber": len(parts) + 1, "ETag": tag})
                        md5s += md5
                        sending.moved(count)
            whole = {**place, "MultipartUpload": {"Parts": parts}, **_condition(sending)}
            answer = self._send(lambda: self._client.complete_multipart_upload(**whole), "ETag", uri, sending.stop)
        except BaseException:
            self._abort(place, uri)
            raise
        return answer, _tag_of_parts(md5s, len(parts))

    def ways_to_overwrite(self, path: Path, uri: Uri) -> list[str]:
        size = path.stat().st_size
        taken = []
        with suppress(AlreadyThereError, LostUploadError):
            self.create(path, uri, Sending())  # small: in one request
            taken.append("PutObject")
        with suppress(AlreadyThereError, LostUploadError):
            self._create_in_parts(path, uri, size, Sending())
            taken.append("CompleteMultipartUpload")
        return taken

    def _send_part(self, part: Mapping[str, Any], md5: str) -> dict[str, Any]:
        """Sends a part. Raises DamagedTransferError if the store received other bytes; not every store checks that."""
        answer: dict[str, Any] = self._client.upload_part(**part)
        if not _is_md5(answer, md5):
            raise DamagedTransferError(f"the ETag of part {part['PartNumber']} is {answer.get('ETag')}, not {md5}")
        return answer

    def _abort(self, place: Mapping[str, str], uri: Uri) -> None:
        """Aborts an upload; otherwise its parts remain in the bucket, invisible and billed. Tried once, with the usual
        deadline."""

        def attempt() -> None:
            with suppress(Exception):  # the error that ended the upload is the one to report
                self._client.abort_multipart_upload(**place)

        with suppress(SpanloomError):
            keep_trying(attempt, store=self, uri=uri)

    def delete(self, stored: StoredObject) -> None:
        # Without a condition: few stores support `If-Match` for DELETE.
        self._client.delete_object(Bucket=self._name, Key=stored.uri.key, **self._payer)

    def holds(self, stored: StoredObject, path: Path) -> bool | None:
        if stored.bytes != path.stat().st_size:
            return False
        if stored.md5 is not None:
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == stored.md5
        # If all parts except the last have the size of the first, the ETag of an object in parts can be computed from
        # the file. Equal ETags prove the file right; unequal ones prove nothing: parts may be of any size, and with KMS
        # an ETag is not an md5.
        if re.fullmatch(r"[0-9a-f]{32}-[0-9]+", stored.version) and (part := self._first_part(stored)):
            return True if _tag_of_file(path, part) == stored.version else None
        return None

    def _first_part(self, stored: StoredObject) -> int:
        """The size of an object's first part in bytes, 0 if the store does not report it."""
        ask = partial(self._client.head_object, Bucket=self._name, Key=stored.uri.key, PartNumber=1, **self._payer)
        try:
            head = keep_trying(ask, store=self, uri=stored.uri)
        except StorageError:
            return 0
        return int(head.get("ContentLength") or 0)

    def is_transient(self, fault: Exception) -> bool:
        if isinstance(fault, ClientError):
            status = _status(fault)
            return (status >= 500 and status != 501) or status in TRANSIENT_STATUS or _code(fault) in TRANSIENT_CODES
        if refused_certificate(fault):
            return False
        if may_come_late(fault):
            return True
        dropped = (
            ConnectionError,
            TimeoutError,
            HTTPError,
            raised.ConnectionError,
            raised.HTTPClientError,
            raised.IncompleteReadError,
            raised.ResponseStreamingError,
        )
        unreadable = isinstance(fault, ValueError) and self._made is not None  # a length or a date in an answer
        return unreadable or isinstance(fault, (*dropped, ResponseParserError, DamagedTransferError))

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        where = str(uri)
        if (unknown := why_no_credentials(fault, where)) is not None:
            return unknown
        if why := refused_certificate(fault):
            return untrusted(why, "AWS_CA_BUNDLE", where)
        if isinstance(fault, RecursionError):  # the client asks for the bucket's region and is redirected endlessly
            return StorageError("the store's address redirects in a circle", where=where, remedy=_ADDRESS)
        if isinstance(fault, raised.ParamValidationError) and "Invalid bucket name" in str(fault):
            remedy = "name a bucket: small letters, digits, dots and hyphens"
            return StorageError(f"{uri.bucket!r} is not the name of a bucket", where=where, remedy=remedy)
        if not isinstance(fault, ClientError):
            is_of_client = isinstance(fault, CANNOT_BE_MADE) and self._made is None
            return why_no_client(fault, uri.bucket) if is_of_client or isinstance(fault, raised.BotoCoreError) else None
        code, message = _code(fault), fault.response.get("Error", {}).get("Message", "")
        if code == "NoSuchBucket":
            remedy = f"create the bucket s3://{uri.bucket}, or fix the URI (and AWS_ENDPOINT_URL where it is set)"
            return StorageError(f"the bucket {uri.bucket!r} does not exist", where=where, remedy=remedy)
        if code == "InvalidObjectState":
            storage_class = fault.response.get("Error", {}).get("StorageClass", "such as GLACIER")
            remedy = "restore it (aws s3api restore-object), or copy it to another storage class, then run again"
            return StorageError(f"the object is archived (storage class {storage_class})", where=where, remedy=remedy)
        if code in ACCESS_CODES or _status(fault) in (401, 403):
            remedy = (
                f"let these credentials list s3://{uri.bucket} and get (s3:GetObject) and, where the command writes, "
                f"put objects there (s3:PutObject); {LOG_IN}"
            )
            return StorageError(f"no permission ({code}): {message}", where=where, remedy=remedy)
        if code in ("NoSuchKey", "404"):
            return StorageError("the object does not exist", where=where, remedy="fix the URI")
        if 300 <= _status(fault) < 400:
            return StorageError(f"the store redirects elsewhere ({code} {message})", where=where, remedy=_ADDRESS)
        return StorageError(f"the store refused: {code} {message}", where=where, remedy=_ADDRESS)


_ADDRESS = "look at the address and the region (AWS_ENDPOINT_URL, AWS_DEFAULT_REGION)"


def _condition(sending: Sending) -> dict[str, str]:
    return {} if sending.replace else {"IfNoneMatch": "*"}


def _status(fault: Any) -> int:
    return int(fault.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(fault: Any) -> str:
    return str(fault.response.get("Error", {}).get("Code", ""))


def _field(answer: Mapping[str, Any], name: str) -> Any:
    """A field of every store's answer. Raises DamagedTransferError if it is missing: the answer is not a store's."""
    if not answer.get(name):
        raise DamagedTransferError(f"the answer has no {name}: it is not that of a store")
    return answer[name]


def _is_md5(answer: Mapping[str, Any], tag: str) -> bool:
    """Whether an upload's answer has this ETag. With a customer's or a KMS key, an ETag is not an md5, but then the
    store itself compares the md5 that was sent."""
    encrypted = answer.get("ServerSideEncryption") not in (None, "AES256") or "SSECustomerAlgorithm" in answer
    return encrypted or str(_field(answer, "ETag")).strip('"') == tag


def _count_body(request: Any, **_: Any) -> None:
    request.body = counted(request.body)


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _tag_of_parts(md5s: bytes, count: int) -> str:
    """The ETag of an object made of `count` parts: the md5 of their md5s."""
    return f"{hashlib.md5(md5s, usedforsecurity=False).hexdigest()}-{count}"


def _tag_of_file(path: Path, part_bytes: int) -> str:
    md5s, count = b"", 0
    with path.open("rb") as stream:
        while True:
            md5, left = hashlib.md5(usedforsecurity=False), part_bytes
            while left and (block := stream.read(min(left, 1 << 20))):
                md5.update(block)
                left -= len(block)
            if left == part_bytes:
                return _tag_of_parts(md5s, count)
            md5s, count = md5s + md5.digest(), count + 1


def _described(entry: Mapping[str, Any], uri: Uri, size: int | None) -> StoredObject:
    """The object in an answer to HEAD or an entry of a listing. Raises DamagedTransferError without ETag or size."""
    tag = str(_field(entry, "ETag")).strip('"')
    if size is None or size < 0:
        raise DamagedTransferError(f"the answer has no size of {uri.key!r}")
    encrypted = entry.get("ServerSideEncryption") not in (None, "AES256") or "SSECustomerAlgorithm" in entry
    # The ETag of an object in parts is a hash of hashes. A listing reports neither encryption nor metadata.
    plain = re.fullmatch("[0-9a-f]{32}", tag) is not None and not encrypted and "Metadata" in entry
    written_at = entry.get("LastModified")
    return StoredObject(
        uri=uri,
        bytes=size,
        version=tag,
        md5=tag if plain else None,
        written_at=written_at.isoformat(timespec="seconds") if written_at else "",
        metadata=entry.get("Metadata", {}),
    )
