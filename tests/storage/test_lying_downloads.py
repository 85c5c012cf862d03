"""A store that lies about what is downloaded: the true bytes arrive, or a StorageError says why not and no file stands.

A lie told once is survived. One that is told each time ends within the deadline.
"""

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import moto.s3.models
import pytest

from spanloom.errors import StorageError
from spanloom.storage.publishing import publish_file
from spanloom.storage.staging import list_objects, read_object, stage_file
from spanloom.storage.stores import gcs, retry
from spanloom.storage.transfer import open_store
from spanloom.storage.uri import Uri
from support.nightly import nightly, on_one_store
from support.object_stores import BUCKET, Enter, Place, amazon, amazon_client
from support.stores import lies
from support.stores.lies import page, status
from support.stores.proxy import Answer, Fault, Lie, Proxy, when

DATA = os.urandom(100_000)
PART = 1 << 20
"""A fifth of the smallest part that S3 takes; moto is told to take it."""

SLOW = {"slow headers": Fault.SLOW_HEADERS, "slow answer": Fault.SLOW_ANSWER, "no answer": Fault.HOLD}

READ_LIES: dict[str, tuple[Lie, str]] = {
    "dropped": (Fault.DROP, "no usable answer"),
    "half": (Fault.HALF_ANSWER, "no usable answer"),
    "chunks cut short": (Fault.CUT_CHUNKS, "no usable answer"),
    "not HTTP": (Fault.NOT_HTTP, "no usable answer"),
    "a byte changed": (Fault.CHANGED_ANSWER, "3 downloads were damaged"),
    "bytes in another order": (lies.shifted_bytes, "3 downloads were damaged"),
    "another range": (lies.another_range, "no usable answer.*range"),
    "another total": (lies.another_total, "no usable answer.*range"),
    "206 without a range": (lies.no_content_range, "no usable answer.*range"),
    "length too large": (lies.longer_length, "no usable answer.*length"),
    "length too small": (lies.shorter_length, "no usable answer.*length"),
    "206 without bytes": (lies.nothing, "no usable answer.*length"),
    "200 without bytes": (Answer(), "no usable answer"),
    "204": (status(204), "no usable answer|refused"),
    "HTML": (page(), "no usable answer"),
    "HTML as 206": (page(206), "no usable answer"),
    "packed on the way": (lies.zipped, "no usable answer.*length"),
    "408": (status(408), "no usable answer"),
    "429": (status(429, Retry_After="1000000"), "no usable answer"),
    "429 in HTML": (page(429), "no usable answer"),
    "500": (status(500), "no usable answer"),
    "502 in HTML": (page(502), "no usable answer"),
    "503": (status(503, Retry_After="1000000"), "no usable answer"),
    "504": (status(504), "no usable answer"),
    "another version": (lies.header("ETag", f'"{"0" * 32}"'), "no usable answer.*version"),
    "another generation": (lies.header("X-Goog-Generation", "1"), "no usable answer.*version"),
}
ONE_STORE_ALONE = {"another version": "s3", "another generation": "gs"}

FINAL_READ_LIES: dict[str, tuple[Lie, str]] = {
    "412": (status(412), "replaced or removed while it was being downloaded"),
    "404": (status(404), "replaced or removed while it was being downloaded"),
    "404 in HTML": (page(404), "replaced or removed while it was being downloaded"),
    "416": (status(416), "refused"),
    "304": (status(304), "refused|redirects"),
    "400": (page(400), "refused"),
    "403": (status(403), "no permission"),
    "501": (status(501), "refused"),
}

DESCRIBE_LIES: dict[str, tuple[Lie, str]] = {
    "dropped": (Fault.DROP, "no usable answer"),
    "not HTTP": (Fault.NOT_HTTP, "no usable answer"),
    "200 without anything": (Answer(), "no usable answer"),
    "an empty object": (Answer(data=b"{}", headers={"Content-Type": "application/json"}), "no usable answer"),
    "a list": (Answer(data=b"[]", headers={"Content-Type": "application/json"}), "no usable answer"),
    "408": (status(408), "no usable answer"),
    "429": (status(429), "no usable answer"),
    "503": (status(503), "no usable answer"),
}
GS_DESCRIBE_LIES: dict[str, tuple[Lie, str]] = {
    "half": (Fault.HALF_ANSWER, "no usable answer"),
    "HTML": (page(), "no usable answer"),
    "another object": (lies.in_json(lambda said: said.update(name="other")), "no usable answer"),
    "no generation": (lies.in_json(lambda said: said.pop("generation")), "no usable answer"),
    "a size that is none": (lies.in_json(lambda said: said.update(size="many")), "no usable answer"),
    "a negative size": (lies.in_json(lambda said: said.update(size="-1")), "no usable answer"),
    "size too large": (lies.in_json(lambda said: said.update(size="100001")), "no usable answer"),
    "size too small": (lies.in_json(lambda said: said.update(size="99999")), "no usable answer"),
    "size nothing": (lies.in_json(lambda said: said.update(size="0")), "3 downloads were damaged"),
    "another generation": (lies.in_json(lambda said: said.update(generation="1")), "replaced or removed"),
    "another crc32c": (lies.in_json(lambda said: said.update(crc32c="AAAAAA==", metadata={})), "3 downloads were dam"),
    "another sha256": (
        lies.in_json(lambda said: said.update(metadata={"spanloom-sha256": "0" * 64})),
        "not the one that its writer recorded",
    ),
}
S3_DESCRIBE_LIES: dict[str, tuple[Lie, str]] = {
    "size too large": (lies.told_length(100_001), "no usable answer"),
    "size too small": (lies.told_length(99_999), "no usable answer"),
    "size nothing": (lies.told_length(0), "3 downloads were damaged"),
    "a date that is none": (lies.header("Last-Modified", "99 Foo 99999"), "no usable answer"),
    "another ETag": (lies.header("ETag", f'"{"0" * 32}"'), "replaced or removed"),
    "another sha256": (lies.header("x-amz-meta-spanloom-sha256", "0" * 64), "not the one that its writer recorded"),
}


@pytest.fixture
def uri(tmp_path: Path, place: Place) -> Uri:
    """An object with DATA in it."""
    path = tmp_path / "written"
    path.write_bytes(DATA)
    publish_file(path, place.uri / "file")
    return place.uri / "file"


def fails(fetch: Callable[[], object], expected: str, directory: Path) -> None:
    """What must end at the deadline has a short one; what must end before has the usual one."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError, match=expected) as refusal:
        if "no usable answer" in expected:
            patch.setenv("SPANLOOM_STORAGE_DEADLINE", "0.6")
        fetch()
    assert refusal.value.where
    assert not (directory / "back").exists()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        *on_one_store(name for name in READ_LIES if name not in ONE_STORE_ALONE),
        *((store, name) for name, store in ONE_STORE_ALONE.items()),
    ],
    indirect=["place"],
)
def test_a_lie_about_the_bytes(tmp_path: Path, uri: Uri, proxy: Proxy, name: str) -> None:
    lie, expected = READ_LIES[name]
    proxy.fault = when("read", lie, times=1)
    assert stage_file(uri, tmp_path / "once").read_bytes() == DATA
    assert proxy.faults == [lie]
    proxy.fault = when("read", lie)
    fails(lambda: stage_file(uri, tmp_path / "there" / "back"), expected, tmp_path / "there")


@pytest.mark.parametrize("name", ["a byte changed", "bytes in another order", "half", "HTML", "429"])
def test_a_lie_about_the_bytes_of_a_manifest(tmp_path: Path, uri: Uri, proxy: Proxy, name: str) -> None:
    lie, expected = READ_LIES[name]
    proxy.fault = when("read", lie, times=1)
    assert read_object(uri) == DATA
    proxy.fault = when("read", lie)
    fails(lambda: read_object(uri), expected, tmp_path)


@pytest.mark.parametrize(
    ("place", "does", "name"),
    [
        (store, does, name)
        for store in ("gs", "s3")
        for does in ("describe", "read")
        for name in SLOW
        if (store, does, name) != ("s3", "describe", "slow answer")  # an answer to HEAD has no body
    ],
    indirect=["place"],
)
def test_an_answer_without_progress(tmp_path: Path, uri: Uri, proxy: Proxy, name: str, does: str) -> None:
    proxy.fault = when(does, SLOW[name])
    fails(lambda: stage_file(uri, tmp_path / "back"), "no usable answer for 0.6 s", tmp_path)


@pytest.mark.parametrize("name", FINAL_READ_LIES)
def test_a_refusal_of_the_bytes_is_said_at_once(tmp_path: Path, uri: Uri, proxy: Proxy, name: str) -> None:
    lie, expected = FINAL_READ_LIES[name]
    proxy.fault = when("read", lie)
    fails(lambda: stage_file(uri, tmp_path / "back"), expected, tmp_path)
    assert proxy.faults == [lie]


@pytest.mark.parametrize("code", [301, *map(nightly, (302, 303)), 307, nightly(308)])
@pytest.mark.parametrize("does", ["describe", "read", "list"])
def test_redirects_in_a_circle(tmp_path: Path, uri: Uri, proxy: Proxy, code: int, does: str) -> None:
    proxy.fault = lambda request: lies.circle(code, proxy.address, request) if request.does == does else None
    if does == "list":
        with pytest.raises(StorageError, match="redirect"):
            list_objects(uri)
    else:
        fails(lambda: stage_file(uri, tmp_path / "back"), "redirect", tmp_path)
    assert len(proxy.faults) < 200


@pytest.mark.parametrize(
    ("place", "name"),
    [
        *on_one_store(DESCRIBE_LIES),
        *(("gs", name) for name in GS_DESCRIBE_LIES),
        *(("s3", name) for name in S3_DESCRIBE_LIES),
    ],
    indirect=["place"],
)
def test_a_lie_about_the_object(tmp_path: Path, uri: Uri, proxy: Proxy, name: str) -> None:
    told = {**DESCRIBE_LIES, **(GS_DESCRIBE_LIES if uri.scheme == "gs" else S3_DESCRIBE_LIES)}
    lie, expected = told[name]
    proxy.fault = when("describe", lie)
    fails(lambda: stage_file(uri, tmp_path / "back"), expected, tmp_path)
    if name in DESCRIBE_LIES:
        proxy.fault = when("describe", lie, times=1)
        assert stage_file(uri, tmp_path / "once").read_bytes() == DATA


def test_a_store_that_answers_less_than_it_was_asked_for(tmp_path: Path, uri: Uri, proxy: Proxy) -> None:
    """That is no lie: the rest is asked for."""
    proxy.fault = when("read", lies.part_of_the_range, times=3)
    assert stage_file(uri, tmp_path / "back").read_bytes() == DATA
    assert len(proxy.faults) == 3


def test_a_store_that_knows_no_ranges(tmp_path: Path, uri: Uri, proxy: Proxy) -> None:
    """It answers 200 with all of it; what is there already is left out, on a download that is gone on with too."""
    turns = iter([Fault.HALF_ANSWER])
    whole = lies.whole_as_200(DATA)
    proxy.fault = lambda request: next(turns, whole) if request.does == "read" else None
    assert stage_file(uri, tmp_path / "back").read_bytes() == DATA
    assert proxy.faults == [Fault.HALF_ANSWER, whole]


def test_a_byte_at_a_time_is_no_progress(tmp_path: Path, uri: Uri, proxy: Proxy) -> None:
    """Each answer is cut after one byte: at that rate the object would take a day."""

    def one_byte(answer: Answer) -> Answer:
        return Answer(status=answer.status, headers=answer.headers, data=answer.data[:1], length=len(answer.data))

    proxy.fault = when("read", one_byte)
    fails(lambda: stage_file(uri, tmp_path / "back"), "no usable answer for 0.6 s", tmp_path)


def test_an_object_that_is_replaced_between_two_ranges(tmp_path: Path, uri: Uri, proxy: Proxy) -> None:
    """The second half of another object is not put behind the first of this one."""
    other = tmp_path / "other"
    other.write_bytes(os.urandom(len(DATA)))

    def half_and_then_replaced(answer: Answer) -> Answer:
        proxy.fault = lambda _request: None
        publish_file(other, uri, replace=True)
        half = answer.data[: len(answer.data) // 2]
        return Answer(status=answer.status, headers=answer.headers, data=half, length=len(answer.data))

    proxy.fault = when("read", half_and_then_replaced)
    fails(lambda: stage_file(uri, tmp_path / "back"), "replaced or removed while it was being downloaded", tmp_path)
    assert stage_file(uri, tmp_path / "back").read_bytes() == other.read_bytes()


# Objects that somebody else put into s3:// in parts: no sha256 of ours, an ETag that is no md5 of the bytes.


@pytest.fixture
def in_parts(tmp_path: Path, s3_address: str, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A bucket of moto's, with `even` (two full parts and a rest) and `uneven` (parts of other sizes) in it."""
    monkeypatch.setattr(moto.s3.models, "S3_UPLOAD_PART_MIN_SIZE", PART)
    place = amazon(s3_address, tmp_path.name)
    enter(place.environment)
    client = amazon_client(place.address)
    for name, sizes in {"even": (PART, PART, 70_000), "uneven": (PART, PART + 1, 70_000)}.items():
        where = {"Bucket": BUCKET, "Key": f"{place.uri.key}/{name}"}
        data = os.urandom(sum(sizes))
        (tmp_path / name).write_bytes(data)
        begun = client.create_multipart_upload(**where)["UploadId"]
        parts, at = [], 0
        for number, size in enumerate(sizes, 1):
            done = client.upload_part(**where, UploadId=begun, PartNumber=number, Body=data[at : at + size])
            parts.append({"PartNumber": number, "ETag": done["ETag"]})
            at += size
        client.complete_multipart_upload(**where, UploadId=begun, MultipartUpload={"Parts": parts})
    return place


PART_LIES: dict[str, Lie] = {
    "a byte changed": Fault.CHANGED_ANSWER,
    "bytes in another order": lies.shifted_bytes,
    "another range": lies.another_range,
    "another total": lies.another_total,
}


@pytest.mark.parametrize("lie", PART_LIES.values(), ids=PART_LIES)
@pytest.mark.parametrize("name", ["even", "uneven"])
def test_parts_of_somebody_else_that_are_damaged_once(
    tmp_path: Path, in_parts: Place, enter: Enter, name: str, lie: Lie
) -> None:
    with_proxy = Proxy(in_parts.address, when("read", lie, times=1))
    enter(in_parts.through(with_proxy.address))
    assert stage_file(in_parts.uri / name, tmp_path / "back").read_bytes() == (tmp_path / name).read_bytes()
    assert with_proxy.faults == [lie]
    with_proxy.close()


@pytest.mark.parametrize("name", ["even", "uneven"])
def test_parts_of_somebody_else_that_are_damaged_each_time_in_another_way(
    tmp_path: Path, in_parts: Place, enter: Enter, name: str
) -> None:
    turn = iter(range(100))

    def another_byte(answer: Answer) -> Answer:
        at = next(turn)
        data = answer.data[:at] + bytes([answer.data[at] ^ 1]) + answer.data[at + 1 :]
        return Answer(status=answer.status, headers=answer.headers, data=data)

    with_proxy = Proxy(in_parts.address, when("read", another_byte))
    enter(in_parts.through(with_proxy.address))
    fails(lambda: stage_file(in_parts.uri / name, tmp_path / "back"), "3 downloads were damaged", tmp_path)
    with_proxy.close()


def test_how_often_parts_of_somebody_else_are_downloaded(tmp_path: Path, in_parts: Place, enter: Enter) -> None:
    """Once where the ETag can be made from the file; else twice, and both must be the same."""
    with_proxy = Proxy(in_parts.address)
    enter(in_parts.through(with_proxy.address))
    reads = []
    for name in ("even", "uneven"):
        with_proxy.requests.clear()
        stage_file(in_parts.uri / name, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / name).read_bytes()
        reads.append(sum(request.does == "read" for request in with_proxy.requests))
    assert reads == [1, 2]
    with_proxy.requests.clear()
    data = (tmp_path / "uneven").read_bytes()
    stage_file(in_parts.uri / "uneven", tmp_path / "known", sha256=hashlib.sha256(data).hexdigest())
    assert sum(request.does == "read" for request in with_proxy.requests) == 1
    with_proxy.close()


def test_a_damaged_download_of_a_known_sha256_is_made_again(tmp_path: Path, in_parts: Place, enter: Enter) -> None:
    data = (tmp_path / "uneven").read_bytes()
    with_proxy = Proxy(in_parts.address, when("read", Fault.CHANGED_ANSWER, times=1))
    enter(in_parts.through(with_proxy.address))
    path = stage_file(in_parts.uri / "uneven", tmp_path / "back", sha256=hashlib.sha256(data).hexdigest())
    assert path.read_bytes() == data
    with_proxy.close()


def test_a_slow_store_is_not_given_up_while_bytes_come(
    tmp_path: Path, gs_place: Place, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 bytes a second, of which 5 are the least: the object takes twice the deadline."""
    monkeypatch.setattr(retry, "SLOWEST", 5)
    monkeypatch.setattr(gcs, "BLOCK", 10)
    path = tmp_path / "written"
    path.write_bytes(b"x" * 100)
    publish_file(path, gs_place.uri / "file")
    with_proxy = Proxy(gs_place.address, when("read", Fault.SLOW_ANSWER))
    enter(gs_place.through(with_proxy.address))
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "1")
    assert stage_file(gs_place.uri / "file", tmp_path / "back").read_bytes() == b"x" * 100
    with_proxy.close()


def test_the_deadline_is_the_same_for_a_client_that_spins(
    tmp_path: Path, uri: Uri, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a try does that never ends, it is left."""
    store, go_on = open_store(uri), threading.Event()
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "0.5")
    with pytest.raises(StorageError, match=r"no usable answer for 0\.5 s; too little came, or nothing"):
        retry.keep_trying(go_on.wait, store=store, uri=uri)
    go_on.set()
