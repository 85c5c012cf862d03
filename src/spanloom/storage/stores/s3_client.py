"""The client of `s3://`: made from the environment and the profile, and why it cannot be made.

In: the environment, as boto3 reads it, and these variables. Out: a client, options for its requests, errors.

    SPANLOOM_S3_SSE             server-side encryption that the bucket demands: AES256, aws:kms or aws:kms:dsse
    SPANLOOM_S3_SSE_KMS_KEY_ID  the KMS key; without it the bucket's or the account's
    SPANLOOM_S3_REQUEST_PAYER   requester: the reader pays for requests and transfer
"""

import os
from json import JSONDecodeError
from typing import Any

import boto3
from botocore import exceptions as raised
from botocore.config import Config
from botocore.exceptions import ClientError

from spanloom.errors import StorageError
from spanloom.storage.stores.tls import check_address, check_ca_file

SSE_VARIABLE = "SPANLOOM_S3_SSE"
KMS_VARIABLE = "SPANLOOM_S3_SSE_KMS_KEY_ID"
PAYER_VARIABLE = "SPANLOOM_S3_REQUEST_PAYER"
LOG_IN = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the pod a role"
_SETTINGS = "look at the variables AWS_…, and at the profile in ~/.aws/config and ~/.aws/credentials"
_TOKEN_VARIABLE = "AWS_WEB_IDENTITY_TOKEN_FILE"
_LATE = frozenset(
    {
        _TOKEN_VARIABLE,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "KUBERNETES_SERVICE_HOST",
    }
)
"""Variables of a pod or machine whose credentials may be ready only some seconds after it has started."""

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NO_OPTIONS: dict[str, str] = {}
CANNOT_BE_MADE = (raised.BotoCoreError, ClientError, ValueError, OSError)


def make_client(bucket: str, connections: int) -> tuple[Any, bool]:
    """A client, and whether it has credentials. Each request is tried once. Raises `CANNOT_BE_MADE`, StorageError."""
    for name, value in os.environ.items():
        if name in _KEYS and any(map(str.isspace, value)):
            raise StorageError(
                f"{name} has a blank or a line break", where=f"s3://{bucket}", remedy=f"set {name} without it"
            )
    session = boto3.session.Session()
    config = Config(
        retries={"total_max_attempts": 1},
        max_pool_connections=connections,
        connect_timeout=10,
        read_timeout=60,
        # All S3-compatible stores check md5; not all support the newer trailing checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    found = session.get_credentials() is not None
    client: Any = session.client("s3", config=config)
    ca_file = session._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if ca_file and client.meta.endpoint_url.startswith("https:"):
        check_ca_file(ca_file, "AWS_CA_BUNDLE", f"s3://{bucket}")
    return client, found


def may_come_late(fault: Exception) -> bool:
    """Whether credentials are missing that may be ready later: those of a pod or machine, not of a file or command."""
    if _LATE.isdisjoint(name for name, value in os.environ.items() if value):
        return False
    if isinstance(fault, FileNotFoundError):
        return bool(fault.filename == os.environ.get(_TOKEN_VARIABLE))
    if isinstance(fault, raised.CredentialRetrievalError):
        return bool(fault.kwargs.get("provider") != "custom-process")
    return isinstance(fault, raised.NoCredentialsError | raised.MetadataRetrievalError)


def why_no_client(fault: Exception, bucket: str) -> StorageError:
    """The error for one of `CANNOT_BE_MADE`: cause and remedy."""
    where, text = f"s3://{bucket}", " ".join(str(fault).split())
    address = text.partition("Invalid endpoint: ")[2]
    if isinstance(fault, ValueError) and address:  # it may come from a profile too
        check_address(address, "AWS_ENDPOINT_URL", where)
    match fault:
        case raised.ProfileNotFound():
            what, remedy = f"the profile {fault.kwargs['profile']!r} is not in the AWS configuration", "fix AWS_PROFILE"
        case raised.InvalidRegionError():
            what = f"{fault.kwargs['region_name']!r} is not a region"
            remedy = "fix AWS_DEFAULT_REGION, AWS_REGION, or region in the profile: no blanks, such as us-east-1"
        case raised.ConfigParseError() | raised.ConfigNotFound() | UnicodeDecodeError():
            what, remedy = f"the AWS configuration cannot be read: {text}", "fix the file, or AWS_CONFIG_FILE"
        case JSONDecodeError():
            what, remedy = "what credential_process printed is not JSON", "fix credential_process in the profile"
        case FileNotFoundError() | PermissionError():
            what = f"the AWS credentials cannot be retrieved: {fault.filename}: {fault.strerror}"
            remedy = f"fix credential_process in the profile, or {_TOKEN_VARIABLE}"
        case _:
            if (known := why_no_credentials(fault, where)) is not None:
                return known
            what, remedy = f"the client for S3 cannot be made: {text}", _SETTINGS
    return StorageError(what, where=where, remedy=remedy)


def why_no_credentials(fault: Exception, where: str) -> StorageError | None:
    """The error for a fault about credentials, when the client is made or at a request; None for any other."""
    text = " ".join(str(fault).split())
    if isinstance(fault, raised.NoCredentialsError):
        return StorageError("no AWS credentials were found", where=where, remedy=LOG_IN)
    if isinstance(fault, raised.PartialCredentialsError):
        return StorageError(f"the AWS credentials are incomplete: {text}", where=where, remedy=LOG_IN)
    if isinstance(fault, raised.SSOError | raised.TokenRetrievalError):
        return StorageError(f"the AWS credentials cannot be retrieved: {text}", where=where, remedy="aws sso login")
    if isinstance(fault, ClientError) and fault.operation_name.startswith("AssumeRole"):
        remedy = "look at role_arn, and at the trust policy of the role"
        return StorageError(f"the role cannot be assumed: {text}", where=where, remedy=remedy)
    if isinstance(fault, raised.CredentialRetrievalError | raised.MetadataRetrievalError):
        return StorageError(f"the AWS credentials cannot be retrieved: {text}", where=where, remedy=_SETTINGS)
    return None


def payer() -> dict[str, str]:
    """The option of each request that says who pays. Raises StorageError for an unknown value."""
    value = os.environ.get(PAYER_VARIABLE)
    if not value:
        return _NO_OPTIONS
    if value != "requester":
        raise StorageError(f"{PAYER_VARIABLE} is {value!r}", remedy=f"set {PAYER_VARIABLE}=requester, or unset it")
    return {"RequestPayer": value}


def encryption() -> dict[str, str]:
    """The options of an upload that demand server-side encryption. Raises StorageError for an unknown value."""
    value, key = os.environ.get(SSE_VARIABLE), os.environ.get(KMS_VARIABLE)
    if not value and not key:
        return _NO_OPTIONS
    known = ("AES256", "aws:kms", "aws:kms:dsse")
    if value not in known or (key and value == "AES256"):
        raise StorageError(
            f"{SSE_VARIABLE} is {value!r}" + (f" beside {KMS_VARIABLE}" if key else ""),
            remedy=f"set {SSE_VARIABLE} to one of {', '.join(known)}; a key needs aws:kms or aws:kms:dsse",
        )
    return {"ServerSideEncryption": value} | ({"SSEKMSKeyId": key} if key else {})
