"""SeaweedFS, which Kubeflow Pipelines brings: what the storage layer asks of a store, asked of a real one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from spanloom.errors import ConflictError, StorageError
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import publish_file, publish_folder
from spanloom.storage.staging import find, list_objects, read_object, stage_file, stage_folder
from spanloom.storage.uri import parse_uri
from support.object_stores import BUCKET, CREDENTIALS, REGION, Enter, Place, amazon_client

PARTS = (64 << 20) + 12_345
"""Bytes of a file that goes up in three parts."""


def test_a_folder_up_and_down(tmp_path: Path, seaweedfs_place: Place) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    for number in range(20):
        (source / "below" / f"{number:02d}").write_bytes(os.urandom(1000 * number))
    (source / "manifest.json").write_bytes(b"{}")
    publish_folder(source, seaweedfs_place.uri, last="manifest.json")
    publish_folder(source, seaweedfs_place.uri, last="manifest.json")
    stage_folder(seaweedfs_place.uri, tmp_path / "there")
    names = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    assert [entry.uri.key.split("/", 1)[1] for entry in list_objects(seaweedfs_place.uri)] == [str(n) for n in names]
    assert all((tmp_path / "there" / name).read_bytes() == (source / name).read_bytes() for name in names)


def test_an_object_in_parts_and_its_conflict(tmp_path: Path, seaweedfs_place: Place) -> None:
    path, uri = tmp_path / "big", seaweedfs_place.uri / "big"
    path.write_bytes(os.urandom(PARTS))
    publish_file(path, uri)
    publish_file(path, uri)
    assert stage_file(uri, tmp_path / "back").read_bytes() == path.read_bytes()
    path.write_bytes(os.urandom(PARTS))
    with pytest.raises(ConflictError, match="refusing to overwrite"):
        publish_file(path, uri)
    assert (found := find(uri)) is not None
    assert found.bytes == PARTS
    assert amazon_client(seaweedfs_place.address).list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []


def test_a_claim_and_its_probe(seaweedfs_place: Place) -> None:
    claim_root(seaweedfs_place.uri, {"git_sha": "a"})
    claim = read_object(seaweedfs_place.uri / "claim.json")
    claim_root(seaweedfs_place.uri, {"git_sha": "a"})
    with pytest.raises(ConflictError, match="git_sha is not the same"):
        claim_root(seaweedfs_place.uri, {"git_sha": "b"})
    assert read_object(seaweedfs_place.uri / "claim.json") == claim


@pytest.fixture
def profile(seaweedfs_address: str, enter: Enter) -> Iterator[str]:
    """A bucket in which this process has the rights that Kubeflow Pipelines 2.17 gives to the profile team-a.

    Objects below four prefixes may be put, read and deleted, by the policy of the user. Listings are the business of a
    policy of the bucket, which denies those of other profiles.
    """
    bucket, user = "mlpipeline", "team-a"
    own = [f"private-artifacts/{user}/*", f"private/{user}/*"]
    client = amazon_client(seaweedfs_address)
    client.create_bucket(Bucket=bucket)
    iam = boto3.client("iam", endpoint_url=seaweedfs_address, region_name=REGION, **CREDENTIALS)
    iam.create_user(UserName=user)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    objects = {
        "Effect": "Allow",
        "Action": ["s3:Put*", "s3:Get*", "s3:List*", "s3:DeleteObject"],
        "Resource": [f"arn:aws:s3:::{bucket}/{prefix}" for prefix in (*own, "artifacts/*", "shared/*")],
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [objects]})
    iam.put_user_policy(UserName=user, PolicyName="profile", PolicyDocument=document)
    listing = {"Principal": "*", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}"}
    others = {"StringLike": {"s3:prefix": ["private-artifacts/*", "private/*"]}, "StringNotLike": {"s3:prefix": own}}
    statements = [
        {"Effect": "Allow", **listing, "Condition": {"StringLike": {"s3:prefix": [*own, "artifacts/*", "shared/*"]}}},
        {"Effect": "Deny", **listing, "Condition": others},
    ]
    client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    enter({"AWS_ENDPOINT_URL": seaweedfs_address, "AWS_DEFAULT_REGION": REGION, **keys})
    yield f"s3://{bucket}"
    client.delete_bucket_policy(Bucket=bucket)


def test_the_keys_of_a_kubeflow_profile_reach_its_own_prefix_alone(tmp_path: Path, profile: str) -> None:
    own = parse_uri(f"{profile}/private/team-a/kd")
    path = tmp_path / "big"
    path.write_bytes(os.urandom(PARTS))
    assert read_object(own / "manifest.json") is None
    claim_root(own, {"git_sha": "a"})
    publish_file(path, own / "train/tokens.bin")
    assert [entry.uri.name for entry in list_objects(own)] == ["claim.json", "tokens.bin"]
    assert stage_file(own / "train/tokens.bin", tmp_path / "back").read_bytes() == path.read_bytes()
    for other in ("kd", "private/team-b/kd"):
        with pytest.raises(StorageError, match="no permission"):
            claim_root(parse_uri(f"{profile}/{other}"), {"git_sha": "a"})
