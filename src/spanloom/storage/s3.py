"""`s3://`: one bucket of S3 or of a store that speaks its protocol, through boto3.

In: a bucket's name; credentials, region and AWS_ENDPOINT_URL as boto3 finds them. Out: a `Store`.
Objects are created with `If-None-Match: *`, large ones in parts; the store checks each by its md5, and the whole
is compared after.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.errors import SpanloomError, StorageError
from spanloom.storage.objects import AlreadyThereError, DamagedTransferError, StoredObject
from spanloom.storage.patience import keep_trying
from spanloom.storage.uri import Uri

PART = 32 << 20
"""Bytes of a part, more for files of over 9,000 of them (10,000 are allowed); held in memory by each upload."""
BLOCK = 1 << 20
TRANSIENT_CODES = frozenset(
    {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "InternalError", "ServiceUnavailable",
     "ConditionalRequestConflict", "OperationAborted", "BadDigest", "RequestTimeTooSkewed"}
)  # fmt: skip
ACCESS_CODES = frozenset(
    {"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)


class S3Store:
    """A bucket. The client is shared by threads, each request is tried once here: `patience` is what tries again."""

    def __init__(self, bucket: str, connections: int) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as missing:
            raise StorageError(f"s3:// needs boto3 ({missing})", remedy="pip install 'spanloom[s3]'") from None
        self._name = bucket
        self._client: Any = boto3.session.Session().client(
            "s3",
            config=Config(
                retries={"total_max_attempts": 1},
                max_pool_connections=connections,
                connect_timeout=10,
                read_timeout=60,
                # md5 is what all stores that speak S3 check; the newer trailing checksums are not.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def find(self, uri: Uri) -> StoredObject | None:
        from botocore.exceptions import ClientError

        try:
            head = self._client.head_object(Bucket=self._name, Key=uri.key)
        except ClientError as fault:
            if _status(fault) == 404:
                return None
            raise
        return _described(head, uri, int(head["ContentLength"]))

    def below(self, prefix: Uri) -> list[StoredObject]:
        start = f"{prefix.key}/" if prefix.key else ""
        found: list[StoredObject] = []
        more: dict[str, str] = {}
        while True:
            ask = partial(self._client.list_objects_v2, Bucket=self._name, Prefix=start, **more)
            page = keep_trying(ask, store=self, uri=prefix)
            for entry in page.get("Contents", []):
                uri = Uri(prefix.scheme, prefix.bucket, entry["Key"])
                found.append(_described(entry, uri, int(entry["Size"])))
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, found: StoredObject, first: int, sink: Callable[[bytes], None]) -> None:
        answer = self._client.get_object(
            Bucket=self._name, Key=found.uri.key, Range=f"bytes={first}-", IfMatch=found.version
        )
        with closing(answer["Body"]) as body:
            for block in body.iter_chunks(BLOCK):
                sink(block)

    def create(
        self, path: Path, uri: Uri, *, metadata: Mapping[str, str], replace: bool, moved: Callable[[int], None]
    ) -> None:
        condition = {} if replace else {"IfNoneMatch": "*"}
        size = path.stat().st_size
        try:
            if size <= PART:
                data = path.read_bytes()
                md5 = hashlib.md5(data, usedforsecurity=False)
                tag = md5.hexdigest()
                answer = self._client.put_object(
                    Bucket=self._name,
                    Key=uri.key,
                    Body=data,
                    ContentMD5=_base64(md5.digest()),
                    Metadata=dict(metadata),
                    **condition,
                )
                moved(size)
            else:
                answer, tag = self._create_in_parts(path, uri, size, metadata, condition, moved)
        except Exception as fault:
            if getattr(fault, "response", None) and _status(fault) == 412:
                raise AlreadyThereError from fault
            raise
        found = answer["ETag"].strip('"')
        # Under a key of the customer's or of KMS an ETag is no md5; the parts were checked as they came in.
        if answer.get("ServerSideEncryption") in (None, "AES256") and found != tag:
            with suppress(Exception):
                self.delete(uri)
            raise DamagedTransferError(f"the store's ETag is {found}, the file's {tag}")

    def _create_in_parts(
        self,
        path: Path,
        uri: Uri,
        size: int,
        metadata: Mapping[str, str],
        condition: Mapping[str, str],
        moved: Callable[[int], None],
    ) -> tuple[dict[str, Any], str]:
        place = {"Bucket": self._name, "Key": uri.key}
        begun = keep_trying(
            lambda: self._client.create_multipart_upload(**place, Metadata=dict(metadata)), store=self, uri=uri
        )
        place["UploadId"] = begun["UploadId"]
        part_bytes = max(PART, -(-size // 9000))
        parts: list[dict[str, Any]] = []
        md5s = b""
        try:
            with path.open("rb") as stream:
                while data := stream.read(part_bytes):
                    md5 = hashlib.md5(data, usedforsecurity=False).digest()
                    part = {**place, "PartNumber": len(parts) + 1, "Body": data, "ContentMD5": _base64(md5)}
                    done = keep_trying(partial(self._client.upload_part, **part), store=self, uri=uri)
                    parts.append({"PartNumber": part["PartNumber"], "ETag": done["ETag"]})
                    md5s += md5
                    moved(len(data))
            answer = keep_trying(
                lambda: self._client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts}, **condition),
                store=self,
                uri=uri,
            )
        except BaseException:
            with suppress(Exception):  # else the parts would stay, unseen and paid for
                self._client.abort_multipart_upload(**place)
            raise
        return answer, f"{hashlib.md5(md5s, usedforsecurity=False).hexdigest()}-{len(parts)}"

    def delete(self, uri: Uri) -> None:
        self._client.delete_object(Bucket=self._name, Key=uri.key)

    def holds(self, found: StoredObject, path: Path) -> bool | None:
        if found.bytes != path.stat().st_size:
            return False
        if found.md5 is None:
            return None
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == found.md5

    def is_transient(self, fault: Exception) -> bool:
        from botocore import exceptions as raised
        from urllib3.exceptions import HTTPError

        if isinstance(fault, raised.ClientError):
            return _status(fault) >= 500 or fault.response.get("Error", {}).get("Code") in TRANSIENT_CODES
        dropped = (
            ConnectionError,
            HTTPError,
            raised.ConnectionError,
            raised.HTTPClientError,
            raised.IncompleteReadError,
        )
        return isinstance(fault, (*dropped, raised.ResponseStreamingError, DamagedTransferError))

    def explained(self, fault: Exception, uri: Uri) -> SpanloomError | None:
        from botocore import exceptions as raised

        where = str(uri)
        if isinstance(fault, raised.NoCredentialsError | raised.PartialCredentialsError):
            return StorageError("no AWS credentials were found", where=where, remedy=_LOG_IN)
        if isinstance(fault, raised.ParamValidationError | raised.NoRegionError):
            return StorageError(" ".join(str(fault).split()), where=where)
        if not isinstance(fault, raised.ClientError):
            return None
        error = fault.response.get("Error", {})
        code, said = str(error.get("Code", "")), error.get("Message", "")
        if code == "NoSuchBucket":
            remedy = f"create the bucket s3://{uri.bucket}, or mend the URI (and AWS_ENDPOINT_URL where it is set)"
            return StorageError(f"the bucket {uri.bucket!r} does not exist", where=where, remedy=remedy)
        if code in ACCESS_CODES or _status(fault) in (401, 403):
            remedy = (
                f"let these credentials list s3://{uri.bucket} and get (s3:GetObject) and, where the command writes, "
                f"put objects there (s3:PutObject); {_LOG_IN}"
            )
            return StorageError(f"no permission ({code}): {said}", where=where, remedy=remedy)
        if code in ("NoSuchKey", "404"):
            return StorageError("the object is not there", where=where, remedy="mend the URI")
        if _status(fault) == 412:
            return None  # a precondition: whoever set it knows what it means
        return StorageError(f"the store refused: {code} {said}", where=where)


_LOG_IN = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the pod a role"


def _status(fault: Any) -> int:
    return int(fault.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _described(entry: Mapping[str, Any], uri: Uri, size: int) -> StoredObject:
    tag = entry["ETag"].strip('"')
    encrypted = entry.get("ServerSideEncryption") not in (None, "AES256") or "SSECustomerAlgorithm" in entry
    # Of an object made in parts the ETag is a hash of hashes. A listing says nothing of encryption, nor of metadata.
    plain = "-" not in tag and not encrypted and "Metadata" in entry
    return StoredObject(
        uri=uri,
        bytes=size,
        version=tag,
        md5=tag if plain else None,
        written_at=entry["LastModified"].isoformat(timespec="seconds"),
        metadata=entry.get("Metadata", {}),
    )
