"""The laws of objects: what is published comes back, is never overwritten, and the store has confirmed it."""

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from spanloom.errors import ConflictError, StorageError
from spanloom.storage import staging
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import Upload, publish_file, publish_files, publish_folder
from spanloom.storage.staging import REPLACED_TRIES, find, list_objects, read_object, stage_file, stage_folder
from spanloom.storage.stores.objects import AlreadyThereError, Sending, StoredObject
from spanloom.storage.transfer import open_store
from spanloom.storage.uri import Uri, is_uri, parse_uri
from support.object_stores import BUCKET, Place, amazon
from support.stores.gcs import CloudStorage, Stored

BIG = 40 << 20
"""More than one piece of a resumable upload (16 MiB) and of a multipart one (32 MiB)."""


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("text", "parts", "again"),
    [
        ("gs://bucket/a/b", ("gs", "bucket", "a/b"), "gs://bucket/a/b"),
        ("s3://bucket/a/", ("s3", "bucket", "a"), "s3://bucket/a"),
        ("gs://bucket", ("gs", "bucket", ""), "gs://bucket"),
    ],
)
def test_a_uri_is_taken_apart_and_put_together(text: str, parts: tuple[str, str, str], again: str) -> None:
    assert parse_uri(text) == Uri(*parts)
    assert str(parse_uri(text)) == again
    assert str(parse_uri(text) / "c") == f"{again}/c"
    assert is_uri(text)


@pytest.mark.parametrize("text", ["http://host/a", "file:///a", "gs://", "gs:///a"])
def test_what_is_no_uri_of_ours_is_refused(text: str) -> None:
    with pytest.raises(StorageError, match="neither a local path nor a URI"):
        parse_uri(text)


def test_a_path_is_no_uri() -> None:
    assert not is_uri("data/synth")
    assert not is_uri(Path("/data"))


def test_publish_then_stage_is_identity(tmp_path: Path, place: Place) -> None:
    files = {"a/empty": b"", "a/one": b"x", "b": os.urandom(100_000), "c/d/big": os.urandom(BIG), "last.json": b"{}"}
    for name, data in files.items():
        written(tmp_path / "here" / name, data)
    publish_folder(tmp_path / "here", place.uri, last="last.json")
    stage_folder(place.uri, tmp_path / "there")
    back = {
        path.relative_to(tmp_path / "there").as_posix(): path.read_bytes()
        for path in (tmp_path / "there").rglob("*")
        if path.is_file()
    }
    assert back == files
    assert [entry.uri.key.removeprefix(f"{place.uri.key}/") for entry in list_objects(place.uri)] == sorted(files)


def test_the_ordinary_servers_agree(tmp_path: Path, ordinary_place: Place) -> None:
    """Google's emulator and moto know nothing of our own server."""
    big = os.urandom(BIG)
    for name, data in {"small": b"abc", "empty": b"", "big": big}.items():
        publish_file(written(tmp_path / name, data), ordinary_place.uri / name)
    stage_folder(ordinary_place.uri, tmp_path / "there")
    assert (tmp_path / "there" / "big").read_bytes() == big
    assert (tmp_path / "there" / "small").read_bytes() == b"abc"
    assert (tmp_path / "there" / "empty").read_bytes() == b""


@pytest.mark.parametrize("size", [10, BIG])
def test_the_same_bytes_count_as_written(tmp_path: Path, place: Place, size: int) -> None:
    path = written(tmp_path / "file", os.urandom(size))
    publish_file(path, place.uri / "file")
    before = find(place.uri / "file")
    publish_file(path, place.uri / "file")
    assert find(place.uri / "file") == before


@pytest.mark.parametrize("new", [b"new bytes", b"old bytez", b""])
def test_other_bytes_are_a_conflict_that_names_both_and_who_wrote_them(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch, new: bytes
) -> None:
    uri = place.uri / "file"
    monkeypatch.setenv("LOGNAME", "alice")
    publish_file(written(tmp_path / "old", b"old bytes"), uri)
    before = find(uri)
    monkeypatch.setenv("LOGNAME", "bob")
    monkeypatch.setenv("SPANLOOM_GIT_SHA", "1" * 40)
    with pytest.raises(ConflictError) as conflict:
        publish_file(written(tmp_path / "new", new), uri)
    assert sha256(b"old bytes") in str(conflict.value)
    assert sha256(new) in str(conflict.value)
    assert "by alice@" in str(conflict.value)
    assert "with git SHA " + "0" * 40 in str(conflict.value)
    assert conflict.value.where == str(uri)
    assert conflict.value.remedy
    assert find(uri) == before


@pytest.mark.parametrize("size", [10, BIG])
def test_the_precondition_itself_keeps_what_stands(tmp_path: Path, place: Place, size: int) -> None:
    """Without looking first, as when another builder was faster by a moment."""
    uri = place.uri / "file"
    publish_file(written(tmp_path / "old", b"old bytes"), uri)
    before = find(uri)
    path = written(tmp_path / "new", os.urandom(size))
    with pytest.raises(AlreadyThereError):
        open_store(uri).create(path, uri, Sending())
    assert find(uri) == before


def test_replace_is_for_reports(tmp_path: Path, place: Place) -> None:
    uri = place.uri / "report.json"
    publish_file(written(tmp_path / "one", b"1"), uri, replace=True)
    publish_file(written(tmp_path / "two", b"22"), uri, replace=True)
    assert stage_file(uri, tmp_path / "back").read_bytes() == b"22"


@pytest.mark.parametrize("size", [1000, 20 << 20])
def test_of_two_that_publish_at_once_one_wins_whole(tmp_path: Path, gs_place: Place, size: int) -> None:
    for turn in range(4):
        data = [os.urandom(size), os.urandom(size)]
        uri = gs_place.uri / f"file-{turn}"
        refused: list[int] = []
        gate = threading.Barrier(2)

        def compete(
            side: int, data: list[bytes] = data, uri: Uri = uri, gate: threading.Barrier = gate, refused=refused
        ) -> None:
            path = written(tmp_path / f"{uri.name}-{side}", data[side])
            gate.wait()
            try:
                publish_file(path, uri)
            except ConflictError:
                refused.append(side)

        threads = [threading.Thread(target=compete, args=(side,)) for side in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert stage_file(uri, tmp_path / f"back-{turn}").read_bytes() == data[1 - refused[0]]


def test_an_object_that_somebody_else_put_there_counts_when_its_bytes_are_the_same(
    tmp_path: Path, gs_place: Place, cloud_storage: CloudStorage
) -> None:
    """`gcloud storage cp` writes no sha256: a checksum of 32 bits alone does not decide, the bytes do."""
    uri = gs_place.uri / "file"
    cloud_storage.objects[BUCKET][uri.key] = Stored(b"their bytes", 1, {})
    publish_file(written(tmp_path / "same", b"their bytes"), uri)
    with pytest.raises(ConflictError, match="written at 2026-01-02"):
        publish_file(written(tmp_path / "other", b"other bytes"), uri)
    assert cloud_storage.objects[BUCKET][uri.key].data == b"their bytes"


def test_an_s3_object_made_in_parts_by_somebody_else_counts_when_its_bytes_are_the_same(
    tmp_path: Path, s3_address: str, enter: Callable[[dict[str, str]], None]
) -> None:
    """An ETag of parts says nothing of the whole."""
    place = amazon(s3_address, "parts")
    enter(place.environment)
    data, uri = os.urandom(9 << 20), place.uri / "file"
    boto3.client("s3").upload_file(str(written(tmp_path / "same", data)), BUCKET, uri.key)
    found = find(uri)
    assert found is not None
    assert "-" in found.version
    publish_file(tmp_path / "same", uri)
    with pytest.raises(ConflictError):
        publish_file(written(tmp_path / "other", data[:-1] + bytes([data[-1] ^ 1])), uri)


@pytest.mark.parametrize("size", [10, 20 << 20])
def test_what_the_store_got_wrong_does_not_stay_and_is_sent_again(
    tmp_path: Path, gs_place: Place, cloud_storage: CloudStorage, size: int
) -> None:
    uri, data = gs_place.uri / "file", os.urandom(size)
    cloud_storage.damage.append(uri.key)
    publish_file(written(tmp_path / "file", data), uri)
    assert cloud_storage.damage == []
    assert cloud_storage.objects[BUCKET][uri.key].data == data


def test_a_set_stops_at_its_first_conflict_and_says_which(tmp_path: Path, place: Place) -> None:
    publish_file(written(tmp_path / "old", b"old"), place.uri / "file-3")
    uploads = [Upload(path=written(tmp_path / f"{n}", b"new"), uri=place.uri / f"file-{n}") for n in range(20)]
    with pytest.raises(ConflictError) as conflict:
        publish_files(uploads)
    assert conflict.value.where == str(place.uri / "file-3")


def test_missing_objects_and_buckets_are_named_with_a_remedy(tmp_path: Path, place: Place) -> None:
    nowhere = Uri(place.uri.scheme, "no-such-bucket", "a/b")
    path = written(tmp_path / "file", b"x")
    for fails in (
        lambda: publish_file(path, nowhere),
        lambda: stage_file(nowhere, tmp_path / "back"),
        lambda: stage_folder(nowhere, tmp_path / "back"),
        lambda: claim_root(nowhere, {}),
    ):
        with pytest.raises(StorageError, match="the bucket 'no-such-bucket' does not exist") as refusal:
            fails()
        assert str(nowhere) in str(refusal.value.where)
        assert "create the bucket" in (refusal.value.remedy or "")
    with pytest.raises(StorageError, match="the object does not exist") as refusal:
        stage_file(place.uri / "none", tmp_path / "back")
    assert refusal.value.where == str(place.uri / "none")
    with pytest.raises(StorageError, match="nothing below"):
        stage_folder(place.uri / "none", tmp_path / "back")


def test_no_permission_is_said_at_once_with_what_to_grant(
    tmp_path: Path, gs_place: Place, cloud_storage: CloudStorage
) -> None:
    cloud_storage.closed.add("closed")
    try:
        for fails in (
            lambda: publish_file(written(tmp_path / "file", b"x"), parse_uri("gs://closed/file")),
            lambda: stage_file(parse_uri("gs://closed/file"), tmp_path / "back"),
        ):
            with pytest.raises(StorageError, match=r"no permission: test@example\.com does not have") as refusal:
                fails()
            assert "roles/storage.objectViewer" in (refusal.value.remedy or "")
    finally:
        cloud_storage.closed.clear()


def test_a_size_or_a_hash_that_is_not_the_expected_one_leaves_no_file(tmp_path: Path, place: Place) -> None:
    uri = place.uri / "file"
    publish_file(written(tmp_path / "file", b"abc"), uri)
    with pytest.raises(StorageError, match="3 bytes, 4 are expected"):
        stage_file(uri, tmp_path / "there" / "back", bytes=4)
    with pytest.raises(StorageError, match=r"ba7816bf.* the manifest says 0000"):
        stage_file(uri, tmp_path / "there" / "back", sha256="0" * 64)
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("key", ["../up", "a/../../up", "a//b"])
def test_a_key_cannot_lead_out_of_the_folder(
    tmp_path: Path, gs_place: Place, cloud_storage: CloudStorage, key: str
) -> None:
    cloud_storage.objects[BUCKET][f"{gs_place.uri.key}/{key}"] = Stored(b"x", 1, {})
    with pytest.raises(StorageError, match="is not a valid name for a file"):
        stage_folder(gs_place.uri, tmp_path / "deep" / "there")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_objects_of_which_one_would_be_the_folder_of_another_are_refused(tmp_path: Path, place: Place) -> None:
    for key in ("a", "a/b", "c"):
        publish_file(written(tmp_path / "source" / key.replace("/", "-"), b"x"), place.uri / key)
    with pytest.raises(StorageError, match=r"(?s)cannot both be files.*/a\b.*rename"):
        stage_folder(place.uri, tmp_path / "staged")
    assert not (tmp_path / "staged").exists()


def test_a_folder_under_the_name_of_a_file_is_told(tmp_path: Path, place: Place) -> None:
    publish_file(written(tmp_path / "a", b"x"), place.uri / "a")
    (tmp_path / "staged/a").mkdir(parents=True)
    with pytest.raises(StorageError, match="a folder is where the file"):
        stage_folder(place.uri, tmp_path / "staged")


def test_a_root_belongs_to_the_build_that_claimed_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "alice")
    claim_root(place.uri, {"git_sha": "a", "caps": {"max_rows": 1}})
    monkeypatch.setenv("LOGNAME", "bob")
    claim_root(place.uri, {"caps": {"max_rows": 1}, "git_sha": "a"})
    with pytest.raises(ConflictError, match=r"begun by alice@.*: caps is not the same") as conflict:
        claim_root(place.uri, {"git_sha": "a", "caps": {"max_rows": 2}})
    assert conflict.value.where == f"{place.uri}/claim.json"


def test_of_many_builds_that_claim_at_once_one_has_the_root(gs_place: Place) -> None:
    gate = threading.Barrier(6)
    had: list[int] = []

    def claim(build: int) -> None:
        gate.wait()
        try:
            claim_root(gs_place.uri, {"build": build})
        except ConflictError:
            return
        had.append(build)

    threads = [threading.Thread(target=claim, args=(build,)) for build in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(had) == 1


@pytest.mark.parametrize(("scheme", "library", "extra"), [("gs", "google.cloud.storage", "gcs"), ("s3", "boto3", "s3")])
def test_a_missing_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, scheme: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for module in (extra, f"{extra}_client"):
        monkeypatch.delitem(sys.modules, f"spanloom.storage.stores.{module}", raising=False)
    if scheme == "gs":
        monkeypatch.delattr(__import__("google.cloud").cloud, "storage", raising=False)
    with pytest.raises(StorageError) as refusal:
        open_store(Uri(scheme, "bucket", "key"))
    assert refusal.value.remedy == f"pip install 'spanloom[{extra}]'"


def replaced_at_each_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uri: Uri, contents: list[bytes]) -> None:
    """After each look at an object, another writer replaces it with the next of `contents`."""
    path, coming = tmp_path / "replacing", iter(contents)

    def look(uri: Uri, stop: threading.Event | None = None) -> StoredObject | None:
        stored = find(uri, stop)
        if stored is not None and (data := next(coming, None)) is not None:
            open_store(uri).create(written(path, data), uri, Sending(replace=True))
        return stored

    monkeypatch.setattr(staging, "find", look)


def read_while_others_replace_it(uri: Uri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes | None:
    publish_file(written(tmp_path / "claim.json", b"task 0"), uri)
    replaced_at_each_look(monkeypatch, tmp_path, uri, [b"task 1", b"task 2", b"task 3"])
    return read_object(uri)


def test_a_small_object_that_is_replaced_during_its_download_is_read_again(
    tmp_path: Path, gs_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_while_others_replace_it(gs_place.uri / "claim.json", tmp_path, monkeypatch) == b"task 3"


def test_a_replaced_object_is_read_again_from_a_server_that_ignores_the_version(
    tmp_path: Path, ordinary_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Google's emulator answers with the newest bytes; the checksum of the first look is another.
    assert read_while_others_replace_it(ordinary_place.uri / "claim.json", tmp_path, monkeypatch) == b"task 3"


def test_a_small_object_that_never_rests_is_given_up(
    tmp_path: Path, ordinary_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = ordinary_place.uri / "claim.json"
    publish_file(written(tmp_path / "claim.json", b"task 00"), uri)
    replaced_at_each_look(monkeypatch, tmp_path, uri, [b"task %02d" % i for i in range(1, 4 * REPLACED_TRIES)])
    with pytest.raises(StorageError, match="replaced or removed while it was being downloaded"):
        read_object(uri)
