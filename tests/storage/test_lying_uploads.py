"""A store that lies about what is uploaded: the true bytes stand, or an error says why not, and nothing damaged stands.

A lie told once is survived. One that is told each time ends within the deadline. Nobody else's object is touched.
"""

import os
from collections.abc import Callable
from pathlib import Path

import moto.s3.models
import pytest

from spanloom.errors import ConflictError, StorageError
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import publish_file, remove_if_allowed
from spanloom.storage.staging import find, stage_file
from spanloom.storage.stores import gcs, retry, s3
from spanloom.storage.uri import Uri
from support.nightly import nightly, on_one_store
from support.object_stores import BUCKET, Contents, Place, amazon_client
from support.stores import lies
from support.stores.gcs import CloudStorage
from support.stores.lies import page, status
from support.stores.proxy import Answer, Fault, Lie, Proxy, Request, when

SMALL = os.urandom(10_000)
UNIT = 256 << 10
"""What pieces of Google's uploads are multiples of."""
LARGE = os.urandom(11 * UNIT)
"""Three pieces, with the sizes below."""
SIZES = {"small": SMALL, "large": LARGE}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fourth of what S3 takes in earnest, with the same number of requests."""
    monkeypatch.setattr(gcs, "WHOLE", UNIT)
    monkeypatch.setattr(gcs, "CHUNK", 4 * UNIT)
    monkeypatch.setattr(s3, "PART", 5 * UNIT)
    monkeypatch.setattr(moto.s3.models, "S3_UPLOAD_PART_MIN_SIZE", 5 * UNIT)


@pytest.fixture(params=[nightly("small"), "large"])
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, size: str) -> Path:
    (tmp_path / "file").write_bytes(SIZES[size])
    return tmp_path / "file"


def fails(act: Callable[[], object], expected: str, error: type[Exception] = StorageError) -> None:
    """What must end at the deadline has a short one; what must end before has the usual one."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(error, match=expected) as refusal:
        if "no usable answer" in expected:
            patch.setenv("SPANLOOM_STORAGE_DEADLINE", "0.6")
        act()
    assert refusal.value.where  # type: ignore[attr-defined]


def after(lie: Answer) -> Callable[[Answer], Answer]:
    """The store does what it is asked, and this is what the client hears."""
    return lambda _answer: lie


GIVEN_UP = "no usable answer"
LIES: dict[str, tuple[Lie, str]] = {
    "dropped": (Fault.DROP, GIVEN_UP),
    "half taken": (Fault.HALF_REQUEST, GIVEN_UP),
    "not HTTP": (Fault.NOT_HTTP, GIVEN_UP),
    "a byte changed on the way": (Fault.CHANGED_REQUEST, f"{GIVEN_UP}|3 uploads came to nothing"),
    "200 without anything": (Answer(), GIVEN_UP),
    "204": (status(204), GIVEN_UP),
    "HTML": (page(), f"{GIVEN_UP}|3 uploads came to nothing"),
    "an empty object": (Answer(data=b"{}", headers={"Content-Type": "application/json"}), GIVEN_UP),
    "408": (status(408), GIVEN_UP),
    "429": (status(429, Retry_After="1000000"), GIVEN_UP),
    "500": (status(500), GIVEN_UP),
    "502 in HTML": (page(502), GIVEN_UP),
    "503": (status(503, Retry_After="1000000"), GIVEN_UP),
}
LOST: dict[str, Lie] = {
    "answer lost": Fault.LOST_ANSWER,
    "answer cut short": Fault.HALF_ANSWER,
    "HTML in its place": after(page()),
    "XHTML in its place": after(page(data=lies.XHTML)),
    "502 in its place": after(page(502)),
    "503 in its place": after(status(503)),
    "408 in its place": after(status(408)),
    "nothing in its place": after(Answer()),
}
FINAL_LIES: dict[str, tuple[Lie, str, type[Exception]]] = {
    "400": (page(400), "refused", StorageError),
    "401": (page(401), "permission|credentials cannot be used", StorageError),
    "403": (page(403), "no permission", StorageError),
    "412": (status(412), "was there and is gone again", ConflictError),
    "501": (status(501), "refused", StorageError),
}


@pytest.mark.parametrize(("place", "name"), on_one_store(LIES), indirect=["place"])
def test_a_lie_in_place_of_an_upload(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str, name: str
) -> None:
    lie, expected = LIES[name]
    uri = place.uri / "file"
    proxy.fault = when("send", lie, times=1)
    publish_file(path, uri)
    assert proxy.faults == [lie]
    assert contents.bytes(uri) == SIZES[size]
    proxy.fault = when("send", lie)
    fails(lambda: publish_file(path, place.uri / "never"), expected)
    assert contents.bytes(place.uri / "never") is None


@pytest.mark.parametrize("lie", LOST.values(), ids=LOST)
def test_the_answer_of_what_was_done_is_lost(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str, lie: Lie
) -> None:
    """Of each request of the upload in turn; the last is what makes the object."""
    publish_file(path, place.uri / "counted")
    changes = sum(request.does in ("begin", "send", "finish") for request in proxy.requests)
    assert changes == {"small": 1, "large": {"gs": 1 + 3, "s3": 1 + 3 + 1}[place.uri.scheme]}[size]
    for number in range(changes):
        uri, seen = place.uri / f"file-{number}", iter(range(1000))
        proxy.faults.clear()
        proxy.fault = lambda request, number=number, seen=seen: (  # type: ignore[misc]
            lie if request.does in ("begin", "send", "finish") and next(seen) == number else None
        )
        publish_file(path, uri)
        assert proxy.faults == [lie]
        assert contents.bytes(uri) == SIZES[size]


@pytest.mark.parametrize("name", FINAL_LIES)
def test_a_refusal_is_said_at_once(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str, name: str
) -> None:
    lie, expected, error = FINAL_LIES[name]
    for does in ("begin", "send", "finish") if size == "large" else ("send",):
        if (does, place.uri.scheme) == ("finish", "gs"):
            continue
        proxy.fault = when(does, lie)
        proxy.faults.clear()
        fails(lambda: publish_file(path, place.uri / "file"), expected, error)
        assert proxy.faults == [lie]
        assert contents.bytes(place.uri / "file") is None


SLOW = {
    "no answer": Fault.HOLD,
    "taken a byte at a time": Fault.SLOW_REQUEST,
    "slow headers": Fault.SLOW_HEADERS,
}


@pytest.mark.parametrize("lie", SLOW.values(), ids=SLOW)
def test_an_upload_without_progress(place: Place, proxy: Proxy, path: Path, size: str, lie: Fault) -> None:
    for does in ("begin", "send", "finish") if size == "large" else ("send",):
        if (does, place.uri.scheme) == ("finish", "gs") or (does, lie) == ("finish", Fault.SLOW_HEADERS):
            continue
        proxy.fault = when(does, lie)
        fails(lambda does=does: publish_file(path, place.uri / f"file-{does}"), GIVEN_UP)  # type: ignore[misc]


def test_a_slow_upload_is_not_given_up_while_bytes_leave(
    tmp_path: Path, place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`progress` hears of bytes as the connection takes them, not of whole pieces."""
    heard: list[int] = []
    (tmp_path / "file").write_bytes(SMALL * 100)
    original = retry._SentBytes.read

    def read(stream: retry._SentBytes, size: int | None = -1, /) -> bytes:
        data = original(stream, size)
        heard.append(stream.tell())
        return data

    monkeypatch.setattr(retry._SentBytes, "read", read)
    publish_file(tmp_path / "file", place.uri / "file")
    assert len(set(heard)) > 5
    assert heard == sorted(heard)


def wrong_checksum(place: Place) -> Lie:
    if place.uri.scheme == "gs":
        return lies.in_json(lambda said: "crc32c" in said and said.update(crc32c="AAAAAA=="))
    zeros = "0" * 32

    def lie(answer: Answer) -> Answer:
        tagged = lies.header("ETag", f'"{zeros}"')(answer)
        return lies.in_text("<ETag>.*?</ETag>", f"<ETag>&quot;{zeros}-3&quot;</ETag>")(tagged)

    return lie


def test_an_answer_with_a_wrong_checksum_does_not_decide(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str
) -> None:
    """What stands does: it is looked at, found right, and stays."""
    made = "finish" if (size, place.uri.scheme) == ("large", "s3") else "send"
    last = iter(range(100))
    wanted = 2 if (size, place.uri.scheme) == ("large", "gs") else 0
    lie = wrong_checksum(place)
    proxy.fault = lambda request: lie if request.does == made and next(last) == wanted else None
    publish_file(path, place.uri / "file")
    assert proxy.faults == [lie]
    assert contents.bytes(place.uri / "file") == SIZES[size]
    assert all(request.does != "delete" for request in proxy.requests)


def test_somebody_elses_object_is_not_deleted_for_a_lying_answer(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str
) -> None:
    """The store is said to be empty, the upload to have been stored damaged: what is there is another's."""
    uri = place.uri / "file"
    contents.put(uri, b"theirs")
    looks = iter(range(100))
    made = "finish" if (size, place.uri.scheme) == ("large", "s3") else "send"

    def lie(request: Request) -> Lie:
        if request.does == "describe":
            return status(404) if next(looks) == 0 else None
        return stored_damaged(place, uri) if request.does == made else None

    proxy.fault = lie
    fails(lambda: publish_file(path, uri), "refusing to overwrite an object that holds other bytes", ConflictError)
    assert contents.bytes(uri) == b"theirs"
    assert all(request.does != "delete" or "uploadId" in request.path for request in proxy.requests)


def stored_damaged(place: Place, uri: Uri) -> Answer:
    if place.uri.scheme == "gs":
        said = f'{{"name": "{uri.key}", "size": "6", "generation": "7", "crc32c": "AAAAAA=="}}'
        return Answer(data=said.encode(), headers={"Content-Type": "application/json"})
    xml = '<CompleteMultipartUploadResult><ETag>"0"</ETag></CompleteMultipartUploadResult>'
    return Answer(headers={"ETag": f'"{"0" * 32}"', "Content-Type": "application/xml"}, data=xml.encode())


def test_a_store_that_keeps_what_it_damaged(
    gs_place: Place, cloud_storage: CloudStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload: three times, and what was damaged does not stay."""
    (tmp_path / "file").write_bytes(SMALL)
    uri = gs_place.uri / "file"
    cloud_storage.damage.extend([uri.key] * 3)
    fails(lambda: publish_file(tmp_path / "file", uri), "3 uploads came to nothing")
    assert uri.key not in cloud_storage.objects[BUCKET]
    assert cloud_storage.damage == []


def test_damage_that_may_not_be_removed_is_said(
    gs_place: Place, cloud_storage: CloudStorage, tmp_path: Path, enter: Callable[[dict[str, str]], None]
) -> None:
    """An account that may only create: what it cannot take back it does not call written."""
    (tmp_path / "file").write_bytes(SMALL)
    uri = gs_place.uri / "file"
    cloud_storage.damage.append(uri.key)
    proxy = Proxy(gs_place.address, when("delete", page(403)))
    enter(gs_place.through(proxy.address))
    with pytest.raises(StorageError, match="has another checksum") as refusal:
        publish_file(tmp_path / "file", uri)
    assert "it is damaged: remove it" in (refusal.value.remedy or "")
    with pytest.raises(ConflictError, match="unknown, not that of its metadata"):
        publish_file(tmp_path / "file", uri)
    proxy.close()


def test_a_lost_answer_and_then_nothing_there(place: Place, proxy: Proxy, tmp_path: Path) -> None:
    """The answer of the upload got lost, and the store says afterwards that there is no such object."""
    (tmp_path / "file").write_bytes(SMALL)
    lose = when("send", Fault.LOST_ANSWER, times=1)
    proxy.fault = lambda request: status(404) if request.does == "describe" else lose(request)
    fails(lambda: publish_file(tmp_path / "file", place.uri / "file"), "was there and is gone again", ConflictError)


def test_an_object_that_was_said_not_to_be_there(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str
) -> None:
    """404 for an object that stands: the precondition holds, the same bytes count as written, others do not."""
    publish_file(path, place.uri / "same")
    contents.put(place.uri / "other", b"theirs")
    proxy.fault = when("describe", status(404), times=1)
    publish_file(path, place.uri / "same")
    proxy.fault = when("describe", status(404), times=1)
    fails(lambda: publish_file(path, place.uri / "other"), "holds other bytes", ConflictError)
    assert contents.bytes(place.uri / "other") == b"theirs"
    assert contents.bytes(place.uri / "same") == SIZES[size]


def test_a_report_that_replaces_another_survives_lost_answers(
    place: Place, proxy: Proxy, contents: Contents, path: Path, size: str
) -> None:
    contents.put(place.uri / "report", b"before")
    proxy.fault = when("finish" if (size, place.uri.scheme) == ("large", "s3") else "send", Fault.LOST_ANSWER, times=1)
    publish_file(path, place.uri / "report", replace=True)
    assert proxy.faults == [Fault.LOST_ANSWER]
    assert contents.bytes(place.uri / "report") == SIZES[size]


# What large uploads have of their own.


@pytest.fixture
def large(tmp_path: Path) -> Path:
    (tmp_path / "large").write_bytes(LARGE)
    return tmp_path / "large"


def gone(place: Place, code: int) -> Answer:
    if place.uri.scheme == "gs":
        return status(code)
    said = "<Error><Code>NoSuchUpload</Code><Message>The specified upload does not exist.</Message></Error>"
    return Answer(status=code, data=said.encode(), headers={"Content-Type": "application/xml"})


@pytest.mark.parametrize("code", [404, 410])
def test_an_upload_that_the_store_has_forgotten_is_begun_again(
    place: Place, proxy: Proxy, contents: Contents, large: Path, code: int
) -> None:
    proxy.fault = when("send", gone(place, code), times=1)
    publish_file(large, place.uri / "file")
    assert [request.does for request in proxy.requests].count("begin") == 2
    assert contents.bytes(place.uri / "file") == LARGE
    proxy.fault = when("send", gone(place, code))
    fails(lambda: publish_file(large, place.uri / "never"), "3 uploads came to nothing: the store no longer knows")


@pytest.mark.parametrize("place", ["s3"], indirect=True)  # there, the last piece is the end
def test_an_s3_upload_that_is_forgotten_at_its_end(place: Place, proxy: Proxy, contents: Contents, large: Path) -> None:
    proxy.fault = when("finish", gone(place, 404), times=1)
    publish_file(large, place.uri / "file")
    assert contents.bytes(place.uri / "file") == LARGE


@pytest.mark.parametrize("place", ["s3"], indirect=True)  # S3 alone does so
def test_an_error_in_an_answer_of_200(place: Place, proxy: Proxy, contents: Contents, large: Path) -> None:
    """S3 begins to answer before it is done, and may end in an error."""
    said = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
    error = Answer(data=said, headers={"Content-Type": "application/xml"})
    proxy.fault = when("finish", error, times=1)
    publish_file(large, place.uri / "file")
    assert contents.bytes(place.uri / "file") == LARGE
    proxy.fault = when("finish", error)
    fails(lambda: publish_file(large, place.uri / "never"), GIVEN_UP)
    assert contents.bytes(place.uri / "never") is None


@pytest.mark.parametrize("place", ["s3"], indirect=True)  # an upload that is not gone on with vanishes by itself
def test_parts_do_not_stay_when_an_upload_fails(place: Place, proxy: Proxy, large: Path) -> None:
    proxy.fault = when("finish", page(403))
    fails(lambda: publish_file(large, place.uri / "file"), "no permission")
    client = amazon_client(place.address)
    begun = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    assert [upload for upload in begun if upload["Key"].startswith(place.uri.key)] == []


def resumable(answer: Answer, kept: int | None) -> Answer:
    """`308`, with the first `kept` bytes in the store; None leaves the header out."""
    return Answer(status=308, headers={} if kept is None else {"Range": f"bytes=0-{kept - 1}"})


def test_a_store_that_keeps_half_of_a_piece(
    gs_place: Place, cloud_storage: CloudStorage, enter: Callable[[dict[str, str]], None], large: Path
) -> None:
    """It may: the next piece begins where the store says."""
    cloud_storage.keeps = 3 * UNIT
    proxy = Proxy(gs_place.address)
    enter(gs_place.through(proxy.address))
    try:
        publish_file(large, gs_place.uri / "file")
    finally:
        cloud_storage.keeps = None
        proxy.close()
    assert cloud_storage.objects[BUCKET][(gs_place.uri / "file").key].data == LARGE
    assert [request.bytes // UNIT for request in proxy.requests if request.does == "send"] == [4, 4, 4, 2]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (None, "took none of the bytes"),
        (11 * UNIT, "calls it unfinished"),
        (12 * UNIT, "calls it unfinished"),
    ],
    ids=["nothing", "all", "more than all"],
)
def test_an_upload_that_never_gets_further(
    gs_place: Place, enter: Callable[[dict[str, str]], None], large: Path, kept: int | None, expected: str
) -> None:
    proxy = Proxy(gs_place.address, lambda r: resumable(Answer(), kept) if r.does in ("send", "ask") else None)
    enter(gs_place.through(proxy.address))
    fails(lambda: publish_file(large, gs_place.uri / "file"), f"{GIVEN_UP}.*{expected}")
    proxy.close()


def test_a_range_that_is_none(gs_place: Place, enter: Callable[[dict[str, str]], None], large: Path) -> None:
    lie = Answer(status=308, headers={"Range": "bytes=4-8"})
    proxy = Proxy(gs_place.address, when("send", lie))
    enter(gs_place.through(proxy.address))
    fails(lambda: publish_file(large, gs_place.uri / "file"), GIVEN_UP)
    proxy.close()


def test_an_upload_that_is_begun_nowhere(gs_place: Place, enter: Callable[[dict[str, str]], None], large: Path) -> None:
    proxy = Proxy(gs_place.address, when("begin", Answer()))
    enter(gs_place.through(proxy.address))
    fails(lambda: publish_file(large, gs_place.uri / "file"), f"{GIVEN_UP}.*did not say where")
    proxy.close()


@pytest.mark.parametrize("code", [301, *map(nightly, (302, 303)), 307, nightly(308)])
def test_redirects_in_a_circle(place: Place, proxy: Proxy, contents: Contents, path: Path, code: int) -> None:
    proxy.fault = lambda request: (
        lies.circle(code, proxy.address, request) if request.does in ("send", "begin", "list") else None
    )
    fails(lambda: publish_file(path, place.uri / "file"), "redirect")
    assert contents.bytes(place.uri / "file") is None


# Claims and removals.


def test_a_claim_survives_lies_that_are_told_once(place: Place, proxy: Proxy) -> None:
    for number, (does, lie) in enumerate(
        [("send", Fault.LOST_ANSWER), ("send", page()), ("read", Fault.CHANGED_ANSWER), ("read", page())]
    ):
        proxy.fault = when(does, lie, times=1)
        claim_root(place.uri / f"{number}", {"git_sha": "a"})
        claim_root(place.uri / f"{number}", {"git_sha": "a"})
        with pytest.raises(ConflictError, match="git_sha is not the same"):
            claim_root(place.uri / f"{number}", {"git_sha": "b"})


def test_a_claim_that_is_never_seen_again(place: Place, proxy: Proxy) -> None:
    proxy.fault = when("describe", status(404))
    fails(lambda: claim_root(place.uri, {"git_sha": "a"}), "the claim was written, but does not exist")


@pytest.mark.parametrize("lie", [status(403), status(404), status(412), page(), Fault.DROP, Fault.LOST_ANSWER])
def test_a_removal_that_fails_is_no_error(
    place: Place, proxy: Proxy, tmp_path: Path, lie: Lie, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(SMALL)
    publish_file(tmp_path / "file", place.uri / "file")
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "1")
    proxy.fault = when("delete", lie)
    remove_if_allowed(place.uri / "file")
    proxy.fault = lambda _request: None
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "20")
    remove_if_allowed(place.uri / "file")
    assert find(place.uri / "file") is None


def test_what_we_wrote_in_parts_is_known_by_its_etag(place: Place, proxy: Proxy, tmp_path: Path, large: Path) -> None:
    """One download, whatever the ETag of parts is, and damage to it is seen."""
    publish_file(large, place.uri / "file")
    proxy.requests.clear()
    assert stage_file(place.uri / "file", tmp_path / "back").read_bytes() == LARGE
    assert [request.does for request in proxy.requests].count("read") == 1
    proxy.fault = when("read", Fault.CHANGED_ANSWER)
    fails(lambda: stage_file(place.uri / "file", tmp_path / "damaged"), "not the one that its writer|3 downloads were")
