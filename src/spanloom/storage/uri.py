"""`gs://bucket/key`, `s3://bucket/key` and `hf://datasets/OWNER/NAME[@REVISION]/path`, parsed and formatted.

In: text as the user gave it. Out: `Uri`. A place without `://` is a local path.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import StorageError
from spanloom.presentable import presentable

SCHEMES = ("gs", "s3")
HUB = "hf"
"""The Hugging Face Hub, which is only read."""
_DATASET = re.compile(r"(datasets/[^/@\s]+/[^/@\s]+(?:@(?:refs/(?:convert|pr)/)?[^/@\s]+)?)(?:/(.*))?", re.DOTALL)
S3_SCHEMES = ("minio", "s3a", "s3n")
"""Schemes of other programs for S3-compatible stores; `minio` is that of Kubeflow Pipelines."""


@dataclass(frozen=True)
class Uri:
    """A bucket and a key in it; the key "" is the bucket itself. Keys never begin or end in a slash here.

    For `hf`, the bucket is the repository with its revision: `datasets/OWNER/NAME@REVISION`.
    """

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.key}" if self.key else "")

    def __truediv__(self, name: str) -> "Uri":
        return Uri(self.scheme, self.bucket, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The base name: the last part of the key, or the bucket if the key is empty."""
        return self.key.rsplit("/", 1)[-1] or self.bucket


def is_uri(place: str | Path) -> bool:
    """Whether `place` is a URI; otherwise it is a path on this machine."""
    return "://" in str(place)


def is_hub(place: str | Path) -> bool:
    """Whether `place` is of the Hugging Face Hub."""
    return str(place).startswith(f"{HUB}://")


def parse_uri(text: str) -> Uri:
    """Parses a URI. Raises StorageError for a scheme not in `SCHEMES`, a missing bucket, or credentials in the URI: a
    user, keys, or the signature of a presigned address."""
    scheme, _, rest = text.partition("://")
    if scheme == HUB:
        if (dataset := _DATASET.fullmatch(rest)) is None:
            raise StorageError(
                f"{text!r} is no dataset of the Hugging Face Hub",
                remedy="write hf://datasets/OWNER/NAME/path, or hf://datasets/OWNER/NAME@REVISION/path",
            )
        return Uri(scheme, dataset[1], (dataset[2] or "").strip("/"))
    bucket, _, key = rest.partition("/")
    if scheme not in SCHEMES or not bucket:
        raise StorageError(
            f"{text!r} is neither a local path nor a URI of the form gs://bucket/key, s3://bucket/key or hf://datasets/OWNER/NAME/path",
            remedy="name the bucket" if scheme in SCHEMES else _remedy(scheme, rest),
        )
    if "@" in bucket or ":" in bucket or presentable(text) != text:
        raise StorageError(
            "a URI takes no user, keys and signatures",
            where=text,
            remedy="give gs://bucket/key or s3://bucket/key; keys come from the environment, a profile or a role",
        )
    return Uri(scheme, bucket, key.strip("/"))


def _remedy(scheme: str, rest: str) -> str:
    """The remedy for a URI whose scheme is not in `SCHEMES`."""
    if scheme.lower() in S3_SCHEMES:
        return f"write s3://{rest or 'bucket/key'}, with the store's address in AWS_ENDPOINT_URL=http://HOST:PORT"
    if scheme.lower() == "gcs":
        return f"write gs://{rest or 'bucket/key'}"
    return "give a gs://, s3:// or hf:// URI or a local path; what is elsewhere must be copied there first"
