"""SeaweedFS, which Kubeflow Pipelines brings: what the storage layer asks of a store, asked of a real one."""

import os
from pathlib import Path

import pytest

from spanloom.errors import ConflictError
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import publish_file, publish_folder
from spanloom.storage.staging import find, list_objects, read_object, stage_file, stage_folder
from support.object_stores import BUCKET, Place, amazon_client

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
