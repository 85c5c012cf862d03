"""A store that lies about what a bucket holds: the whole listing comes, or a StorageError says why not.

A listing that leaves an object out says so nowhere (s3:// counts the keys of a page; gs:// does not): what must be
complete is named by a manifest, and each file in it is asked for by its name.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT
from moto.s3.models import s3_backends

from spanloom.errors import StorageError
from spanloom.storage.staging import list_objects, stage_folder
from support.nightly import on_one_store
from support.object_stores import BUCKET, Contents, Place, amazon
from support.stores import lies
from support.stores.lies import page, status
from support.stores.proxy import Answer, Fault, Lie, Proxy, when

NAMES = [f"part-{number:02d}" for number in range(20)]
"""Three pages of seven."""


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "7")


@pytest.fixture
def filled(place: Place, contents: Contents) -> Place:
    """A place with NAMES in it, each holding its own name."""
    for name in NAMES:
        contents.put(place.uri / name, name.encode())
    return place


def names(place: Place) -> list[str]:
    return [entry.uri.name for entry in list_objects(place.uri)]


def fails(place: Place, expected: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError, match=expected) as refusal:
        if "no usable answer" in expected:
            patch.setenv("SPANLOOM_STORAGE_DEADLINE", "0.6")
        list_objects(place.uri)
    assert refusal.value.where == str(place.uri)


def test_a_listing_of_several_pages(filled: Place, proxy: Proxy) -> None:
    assert names(filled) == NAMES
    assert [request.does for request in proxy.requests] == ["list"] * 3


def test_a_listing_beyond_the_page_of_a_thousand(
    s3_address: str, tmp_path: Path, enter: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOTO_S3_DEFAULT_MAX_KEYS")
    place = amazon(s3_address, tmp_path.name)
    enter(place.environment)
    expected = [f"{number:04d}" for number in range(1003)]
    kept = s3_backends[ACCOUNT]["aws"]  # what moto's server serves; by requests it would take ten seconds
    for name in expected:
        kept.put_object(BUCKET, f"{place.uri.key}/{name}", b"")
    assert names(place) == expected


LIES: dict[str, tuple[Lie, str]] = {
    "dropped": (Fault.DROP, "no usable answer"),
    "half": (Fault.HALF_ANSWER, "no usable answer"),
    "half, as if it were all": (lambda answer: replace(answer, data=answer.data[:300]), "no usable answer"),
    "chunks cut short": (Fault.CUT_CHUNKS, "no usable answer"),
    "not HTTP": (Fault.NOT_HTTP, "no usable answer"),
    "nothing": (Answer(), "no usable answer"),
    "HTML": (page(), "no usable answer"),
    "HTML that is XML": (page(data=lies.XHTML), "no usable answer"),
    "an empty object": (Answer(data=b"{}"), "no usable answer"),
    "a list": (Answer(data=b"[]"), "no usable answer"),
    "deeply nested": (Answer(data=b"[" * 100_000), "no usable answer"),
    "408": (status(408), "no usable answer"),
    "429": (status(429, Retry_After="1000000"), "no usable answer"),
    "500": (status(500), "no usable answer"),
    "503": (page(503), "no usable answer"),
}
FINAL_LIES: dict[str, tuple[Lie, str]] = {
    "403": (page(403), "no permission"),
    "412": (status(412), "refused"),
    "501": (status(501), "refused"),
}
SLOW = {"slow headers": Fault.SLOW_HEADERS, "slow answer": Fault.SLOW_ANSWER, "no answer": Fault.HOLD}


@pytest.mark.parametrize(("place", "name"), on_one_store(LIES), indirect=["place"])
def test_a_lie_in_a_page(filled: Place, proxy: Proxy, name: str) -> None:
    lie, expected = LIES[name]
    proxy.fault = when("list", lie, times=1)
    assert names(filled) == NAMES
    assert proxy.faults == [lie]
    proxy.fault = when("list", lie)
    fails(filled, expected)


@pytest.mark.parametrize("lie", SLOW.values(), ids=SLOW)
def test_a_page_without_progress(filled: Place, proxy: Proxy, lie: Fault) -> None:
    proxy.fault = when("list", lie)
    fails(filled, "no usable answer for 0.6 s")


@pytest.mark.parametrize("name", FINAL_LIES)
def test_a_refusal_is_said_at_once(filled: Place, proxy: Proxy, name: str) -> None:
    lie, expected = FINAL_LIES[name]
    proxy.fault = when("list", lie)
    fails(filled, expected)
    assert proxy.faults == [lie]


def in_page(place: Place, google: Callable[[dict[str, object]], object], amazon: tuple[str, str]) -> Lie:
    """One lie in two languages."""
    return lies.in_json(google) if place.uri.scheme == "gs" else lies.in_text(*amazon)


def test_the_same_page_for_ever(filled: Place, proxy: Proxy) -> None:
    first: list[Answer] = []

    def again(answer: Answer) -> Answer:
        first.append(answer)
        return first[0]

    proxy.fault = when("list", again)
    fails(filled, "goes in a circle: it names .*/part-00' twice")


def empty_page(place: Place, token: str) -> Answer:
    """A page without objects that says that there are more, in the store's place."""
    if place.uri.scheme == "gs":
        said = {"kind": "storage#objects", "nextPageToken": token}
        return Answer(data=json.dumps(said).encode(), headers={"Content-Type": "application/json"})
    data = (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix/><KeyCount>0</KeyCount>'
        f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>"
    )
    return Answer(data=data.encode(), headers={"Content-Type": "application/xml"})


def test_the_same_token_for_ever(filled: Place, proxy: Proxy) -> None:
    proxy.fault = when("list", empty_page(filled, "same"))
    fails(filled, "goes in a circle: its page 'same' comes twice")


def test_empty_pages_for_ever(filled: Place, proxy: Proxy) -> None:
    """Each with a token of its own."""
    proxy.fault = lambda request: empty_page(filled, f"token-{request.number}")
    fails(filled, "no usable answer for 0.6 s")


def test_a_page_that_is_empty_now_and_then_is_no_lie(filled: Place, proxy: Proxy) -> None:
    pages: list[Answer] = []

    def kept(answer: Answer) -> Answer:
        pages.append(answer)
        return answer

    proxy.fault = when("list", kept)
    assert names(filled) == NAMES
    turns = iter([pages[0], empty_page(filled, "one"), empty_page(filled, "two"), *pages[1:]])
    proxy.fault = lambda _request: next(turns)
    assert names(filled) == NAMES


@pytest.mark.parametrize("place", ["s3"], indirect=True)  # there, no token means the end
def test_truncated_without_a_token(filled: Place, proxy: Proxy) -> None:
    proxy.fault = when("list", lies.in_text("<NextContinuationToken>.*?</NextContinuationToken>", ""))
    fails(filled, "no usable answer.*NextContinuationToken")


def test_an_object_that_is_not_below_the_prefix(filled: Place, proxy: Proxy) -> None:
    lie = in_page(
        filled,
        lambda said: said["items"][0].update(name="elsewhere/part-00"),  # type: ignore[index]
        (f"<Key>{filled.uri.key}/part-00</Key>", "<Key>elsewhere/part-00</Key>"),
    )
    proxy.fault = when("list", lie, times=1)
    assert names(filled) == NAMES
    proxy.fault = when("list", lie)
    fails(filled, "no usable answer.*elsewhere/part-00")


def test_an_object_without_a_size(filled: Place, proxy: Proxy) -> None:
    lie = in_page(filled, lambda said: said["items"][0].pop("size"), ("<Size>.*?</Size>", ""))  # type: ignore[index]
    proxy.fault = when("list", lie)
    fails(filled, "no usable answer")


@pytest.mark.parametrize("place", ["s3"], indirect=True)  # a listing of gs:// does not count
def test_a_page_with_fewer_keys_than_it_counts(filled: Place, proxy: Proxy) -> None:
    one = f"<Contents><Key>{filled.uri.key}/part-03</Key>.*?</Contents>"
    proxy.fault = when("list", lies.in_text(one, ""), times=1)
    assert names(filled) == NAMES
    proxy.fault = when("list", lies.in_text(one, ""))
    fails(filled, "no usable answer.*not all of it")


def test_an_object_that_is_listed_and_not_there(tmp_path: Path, filled: Place, proxy: Proxy) -> None:
    proxy.fault = when("describe", status(404), times=1)
    with pytest.raises(StorageError, match="the object does not exist"):
        stage_folder(filled.uri, tmp_path / "there")
    assert list(tmp_path.glob("there/part-*")) == []


def test_a_size_that_the_listing_and_the_object_do_not_agree_on(tmp_path: Path, filled: Place, proxy: Proxy) -> None:
    lie = in_page(
        filled,
        lambda said: said["items"][0].update(size="8"),  # type: ignore[index]
        ("<Size>.*?</Size>", "<Size>8</Size>"),
    )
    proxy.fault = when("list", lie)
    with pytest.raises(StorageError, match="7 bytes, 8 are expected"):
        stage_folder(filled.uri, tmp_path / "there")
