"""Large objects move in several pieces at once: the same bytes and checksums, bounded memory; a fault ends them all."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from spanloom.errors import StorageError
from spanloom.storage import staging
from spanloom.storage.publishing import Upload, publish_file, publish_files
from spanloom.storage.staging import Download, find, stage_file, stage_files
from spanloom.storage.stores import s3
from spanloom.storage.stores.in_order import in_order
from spanloom.storage.stores.objects import PIECES
from spanloom.storage.stores.retry import StoppedError
from support.object_stores import BUCKET, Contents, Place, amazon_client
from support.stores.proxy import Answer, Fault, Lie, Proxy, Request, every

FROM, RANGE, PART = 4 << 20, 2 << 20, 5 << 20
"""Smaller than what is used, so that the tests are quick; S3 takes no smaller parts."""
LARGE = 10 * (1 << 20) + 12_345
"""Six ranges and three parts, the last of each a short one."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "RANGE", RANGE)
    monkeypatch.setattr(staging, "PIECES_FROM", FROM)
    monkeypatch.setattr(s3, "PART", PART)
    monkeypatch.setattr(s3, "PIECES_FROM", FROM)


def large(path: Path) -> Path:
    path.write_bytes(os.urandom(1 << 20) * (LARGE >> 20) + os.urandom(LARGE & ((1 << 20) - 1)))
    return path


def put(path: Path, place: Place, contents: Contents) -> None:
    contents.put(place.uri / "large", path.read_bytes())


def ranges(proxy: Proxy) -> list[str]:
    return [next(v for k, v in r.headers.items() if k.lower() == "range") for r in proxy.requests if r.does == "read"]


def test_a_download_asks_for_each_range_once_and_has_the_bytes(
    tmp_path: Path, place: Place, proxy: Proxy, contents: Contents
) -> None:
    path = large(tmp_path / "large")
    put(path, place, contents)
    stage_file(place.uri / "large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    firsts = range(0, LARGE, RANGE)
    assert sorted(ranges(proxy)) == sorted(f"bytes={first}-{min(first + RANGE, LARGE) - 1}" for first in firsts)


def test_ranges_are_under_way_at_once(tmp_path: Path, place: Place, proxy: Proxy, contents: Contents) -> None:
    """Each answer is held until all ranges were asked for: one stream would wait for ever."""
    path = large(tmp_path / "large")
    put(path, place, contents)
    others = threading.Barrier(len(range(0, LARGE, RANGE)))

    def together(answer: Answer) -> Answer:
        others.wait(60)
        return answer

    proxy.fault = lambda request: together if request.does == "read" else None
    stage_file(place.uri / "large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    assert not others.broken


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.HALF_ANSWER, Fault.DROP])
def test_faults_of_ranges_cost_these_ranges(
    tmp_path: Path, place: Place, proxy: Proxy, contents: Contents, fault: Fault
) -> None:
    path = large(tmp_path / "large")
    put(path, place, contents)
    proxy.fault = every(3, fault)
    stage_file(place.uri / "large", tmp_path / "back", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    assert proxy.faults


def test_a_damaged_range_is_found_by_the_checksum(
    tmp_path: Path, place: Place, proxy: Proxy, contents: Contents
) -> None:
    path = large(tmp_path / "large")
    put(path, place, contents)
    proxy.fault = lambda r: Fault.CHANGED_ANSWER if r.does == "read" and not proxy.faults else None
    stage_file(place.uri / "large", tmp_path / "back")
    assert proxy.faults == [Fault.CHANGED_ANSWER]
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_a_download_that_broke_off_goes_on_after_what_was_written(
    tmp_path: Path, place: Place, proxy: Proxy, contents: Contents
) -> None:
    path = large(tmp_path / "large")
    put(path, place, contents)

    def refused(request: Request) -> Lie:
        asked = next((v for k, v in request.headers.items() if k.lower() == "range"), "")
        return Answer(status=403) if request.does == "read" and asked.startswith(f"bytes={4 * RANGE}-") else None

    proxy.fault = refused
    there = tmp_path / "there"
    with pytest.raises(StorageError, match="no permission"):
        stage_file(place.uri / "large", there / "back")
    (partial_file,) = there.iterdir()
    assert partial_file.read_bytes() == path.read_bytes()[: 4 * RANGE]
    proxy.fault = lambda _request: None
    proxy.requests.clear()
    # What is left is less than FROM: one request.
    stage_file(place.uri / "large", there / "back")
    assert ranges(proxy) == [f"bytes={4 * RANGE}-"]
    assert (there / "back").read_bytes() == path.read_bytes()


def test_an_upload_in_parts_has_the_etag_of_its_parts_in_order(
    tmp_path: Path, place: Place, proxy: Proxy, contents: Contents
) -> None:
    path = large(tmp_path / "large")
    proxy.fault = every(4, Fault.UNAVAILABLE, Fault.LOST_ANSWER)
    publish_file(path, place.uri / "large")
    data = path.read_bytes()
    assert contents.bytes(place.uri / "large") == data
    if place.uri.scheme == "s3":
        md5s = b"".join(hashlib.md5(data[at : at + PART]).digest() for at in range(0, LARGE, PART))
        assert (found := find(place.uri / "large")) is not None
        assert found.version == f"{hashlib.md5(md5s).hexdigest()}-3"


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_an_upload_that_is_refused_leaves_no_parts(tmp_path: Path, place: Place, proxy: Proxy) -> None:
    path = large(tmp_path / "large")
    proxy.fault = lambda r: Answer(status=403) if r.does == "send" and "partNumber=2" in r.path else None
    with pytest.raises(StorageError, match="no permission"):
        publish_file(path, place.uri / "large")
    uploads = amazon_client(place.address).list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    own = str(place.uri / "large").partition(f"{BUCKET}/")[2]
    assert own
    assert [upload for upload in uploads if upload["Key"] == own] == []  # the server serves other tests too


def test_several_large_objects_share_the_slots(tmp_path: Path, place: Place, contents: Contents) -> None:
    paths = [large(tmp_path / f"large{number}") for number in range(2)]
    publish_files([Upload(path=path, uri=place.uri / path.name) for path in paths])
    stage_files([Download(uri=place.uri / path.name, path=tmp_path / "back" / path.name) for path in paths])
    for path in paths:
        assert contents.bytes(place.uri / path.name) == path.read_bytes()
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()


# The pieces themselves, without a store.


@pytest.mark.parametrize("slots", [1, 2, PIECES])
def test_results_come_in_order_and_slots_bound_what_is_in_memory(slots: int) -> None:
    semaphore = threading.BoundedSemaphore(slots)
    lock, living, most = threading.Lock(), 0, 0

    def jobs() -> Iterator[partial[int]]:
        nonlocal living, most
        for number in range(40):
            with lock:
                living += 1
                most = max(most, living)
            yield partial(lambda number, _halt: number, number)

    results = []
    with closing(in_order(jobs(), semaphore, PIECES, None)) as pieces:
        for number in pieces:
            results.append(number)
            with lock:
                living -= 1
    assert results == list(range(40))
    assert most <= slots + 1  # the one that was yielded, and is counted out only after
    assert all(semaphore.acquire(blocking=False) for _ in range(slots))


def test_a_fault_halts_the_others_and_frees_their_slots() -> None:
    semaphore, ended = threading.BoundedSemaphore(3), threading.Semaphore(0)

    def waits(halt: threading.Event) -> None:
        assert halt.wait(60)
        ended.release()

    def fails(_halt: threading.Event) -> None:
        raise ValueError("the first")

    with (
        pytest.raises(ValueError, match="the first"),
        closing(in_order([fails, waits, waits], semaphore, 3, None)) as pieces,
    ):
        list(pieces)
    assert all(semaphore.acquire(blocking=False) for _ in range(3))


def test_a_stop_ends_a_piece_that_waits_for_a_slot_or_a_result() -> None:
    stop = threading.Event()
    stop.set()
    taken = threading.Semaphore(0)
    with pytest.raises(StoppedError), closing(in_order([lambda _halt: 1], taken, 3, stop)) as pieces:
        list(pieces)

    def waits(halt: threading.Event) -> int:
        return int(halt.wait(60))

    with pytest.raises(StoppedError), closing(in_order([waits], threading.Semaphore(1), 3, stop)) as pieces:
        list(pieces)
