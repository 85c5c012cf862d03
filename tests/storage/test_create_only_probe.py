"""The probe before a claim: a store that ignores the condition of create-only writes is refused, by name."""

import pytest

from spanloom.errors import ConflictError, StorageError
from spanloom.storage.claim import SKIP_VARIABLE, claim_root
from support.object_stores import BUCKET, Contents, Enter, Place, amazon_client, google
from support.stores.proxy import Proxy, without_condition

BUILD = {"git_sha": "a"}


@pytest.mark.parametrize(
    ("does", "names"),
    [
        (("send",), {"s3": ["PutObject"], "gs": ["multipart"]}),
        (("finish", "begin"), {"s3": ["CompleteMultipartUpload"], "gs": ["resumable"]}),
        (
            ("send", "finish", "begin"),
            {"s3": ["PutObject", "CompleteMultipartUpload"], "gs": ["multipart", "resumable"]},
        ),
    ],
)
def test_a_store_that_ignores_the_condition_is_refused_by_name(
    place: Place, proxy: Proxy, contents: Contents, does: tuple[str, ...], names: dict[str, list[str]]
) -> None:
    claim_root(place.uri, BUILD)
    before = contents.bytes(place.uri / "claim.json")
    proxy.fault = without_condition(*does)
    with pytest.raises(StorageError, match="it overwrites objects that exist") as caught:
        claim_root(place.uri, BUILD)
    condition = {"s3": "If-None-Match", "gs": "ifGenerationMatch=0"}[place.uri.scheme]
    assert condition in caught.value.what
    every = {"s3": {"PutObject", "CompleteMultipartUpload"}, "gs": {"multipart", "resumable"}}[place.uri.scheme]
    assert {name for name in every if name in caught.value.what} == set(names[place.uri.scheme])
    assert contents.bytes(place.uri / "claim.json") == before


def test_the_first_claim_is_refused_too(place: Place, proxy: Proxy) -> None:
    proxy.fault = without_condition("send", "finish", "begin")
    with pytest.raises(StorageError, match="it overwrites objects that exist"):
        claim_root(place.uri, BUILD)


def test_with_the_variable_the_probe_is_left_out(place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.fault = without_condition("send", "finish", "begin")
    monkeypatch.setenv(SKIP_VARIABLE, "1")
    claim_root(place.uri, BUILD)
    assert [request.does for request in proxy.requests].count("send") == 1


def test_another_build_is_a_conflict_before_the_probe_writes(place: Place, proxy: Proxy) -> None:
    claim_root(place.uri, BUILD)
    proxy.requests.clear()
    with pytest.raises(ConflictError):
        claim_root(place.uri, {"git_sha": "b"})
    assert {request.does for request in proxy.requests} == {"describe", "read"}


def test_a_store_that_honours_the_condition_keeps_one_object_and_no_upload(place: Place, contents: Contents) -> None:
    claim_root(place.uri, BUILD)
    before = contents.bytes(place.uri / "claim.json")
    claim_root(place.uri, BUILD)
    assert contents.bytes(place.uri / "claim.json") == before
    if place.uri.scheme == "s3":
        uploads = amazon_client(place.address).list_multipart_uploads(Bucket=BUCKET, Prefix=place.uri.key)
        assert uploads.get("Uploads", []) == []


def test_an_emulator_that_others_wrote_is_refused(emulator_address: str, enter: Enter) -> None:
    """gcp-storage-emulator: what the smoke run sets the variable for."""
    place = google(emulator_address, "probed")
    enter(place.environment)
    with pytest.raises(StorageError, match="ignores ifGenerationMatch=0") as caught:
        claim_root(place.uri, BUILD)
    assert f"{SKIP_VARIABLE}=1" in str(caught.value.remedy)
