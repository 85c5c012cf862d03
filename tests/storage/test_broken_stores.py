"""A store that drops connections, answers 503 and damages what it sends: what is asked for is done all the same, or the
error says that it cannot be."""

import os
from pathlib import Path

import pytest

from spanloom.errors import StorageError
from spanloom.storage.publishing import Upload, publish_file, publish_files, publish_folder
from spanloom.storage.staging import find, stage_file, stage_folder
from support.nightly import nightly
from support.object_stores import Enter, Place
from support.stores.gcs import CloudStorage
from support.stores.proxy import Answer, Fault, Lie, Proxy, Request, every

BIG = 40 << 20


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_kind_of_fault_again_and_again_and_all_arrives(tmp_path: Path, place: Place, proxy: Proxy) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for number in range(12):
        (here / f"{number:02d}").write_bytes(os.urandom(1000 * number))
    (here / "big").write_bytes(os.urandom(BIG))
    faults = (Fault.UNAVAILABLE, Fault.HALF_REQUEST, Fault.LOST_ANSWER, Fault.HALF_ANSWER)
    proxy.fault = every(3, *faults)
    publish_folder(here, place.uri, last="00")
    publish_folder(here, place.uri, last="00")
    stage_folder(place.uri, tmp_path / "there")
    assert files(tmp_path / "there") == files(here)
    assert set(proxy.faults) == set(faults)


@pytest.mark.parametrize("fault", [nightly(Fault.UNAVAILABLE), Fault.HALF_REQUEST, Fault.LOST_ANSWER])
def test_each_piece_of_a_large_upload_may_fail_and_only_that_piece_is_sent_again(
    tmp_path: Path, place: Place, proxy: Proxy, fault: Fault
) -> None:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(BIG))
    pieces: list[Request] = []

    def every_other_piece(request: Request) -> Fault | None:
        if request.bytes < 1 << 20:
            return None
        pieces.append(request)
        return fault if len(pieces) % 2 else None

    proxy.fault = every_other_piece
    publish_file(path, place.uri / "big")
    piece_bytes = {"gs": [16 << 20, 16 << 20, 8 << 20], "s3": [32 << 20, 8 << 20]}[place.uri.scheme]
    # gs:// is asked how far it got, and has the piece whose answer was lost.
    times = 1 if (place.uri.scheme, fault) == ("gs", Fault.LOST_ANSWER) else 2
    assert [piece.bytes for piece in pieces] == [size for size in piece_bytes for _ in range(times)]
    proxy.fault = lambda _request: None
    assert stage_file(place.uri / "big", tmp_path / "back").read_bytes() == path.read_bytes()


def test_an_answer_that_got_lost_does_not_make_an_upload_its_own_conflict(
    tmp_path: Path, place: Place, proxy: Proxy
) -> None:
    """The object stands, the client does not know, tries again and finds the name taken: by itself."""
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    proxy.fault = lambda request: Fault.LOST_ANSWER if request.method in ("PUT", "POST") and not proxy.faults else None
    publish_file(path, place.uri / "file")
    assert proxy.faults == [Fault.LOST_ANSWER]
    assert stage_file(place.uri / "file", tmp_path / "back").read_bytes() == b"bytes"


def test_a_broken_download_goes_on_where_it_stopped(
    tmp_path: Path, gs_place: Place, cloud_storage: CloudStorage, enter: Enter
) -> None:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(BIG))
    publish_file(path, gs_place.uri / "big")
    proxy = Proxy(
        gs_place.address, lambda r: Fault.HALF_ANSWER if "alt=media" in r.path and len(proxy.faults) < 2 else None
    )
    enter(gs_place.through(proxy.address))
    cloud_storage.log.clear()
    stage_file(gs_place.uri / "big", tmp_path / "back")
    proxy.close()
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    media = [asked or "bytes=0-" for _, path, asked in cloud_storage.log if path.startswith("/download")]
    firsts = [int(asked.removeprefix("bytes=").partition("-")[0]) for asked in media]
    assert firsts == [0, BIG // 2, BIG // 2 + BIG // 4]


def test_a_download_that_is_damaged_once_is_made_again_and_one_that_always_is_is_said(
    tmp_path: Path, gs_place: Place, enter: Enter
) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(100_000))
    publish_file(path, gs_place.uri / "file")
    proxy = Proxy(gs_place.address)
    enter(gs_place.through(proxy.address))
    proxy.fault = lambda r: Fault.CHANGED_ANSWER if "alt=media" in r.path and not proxy.faults else None
    assert stage_file(gs_place.uri / "file", tmp_path / "once").read_bytes() == path.read_bytes()
    proxy.fault = lambda r: Fault.CHANGED_ANSWER if "alt=media" in r.path else None
    with pytest.raises(StorageError, match="3 downloads were damaged on the way"):
        stage_file(gs_place.uri / "file", tmp_path / "there" / "always")
    assert list((tmp_path / "there").iterdir()) == []
    proxy.close()


def test_a_store_that_never_comes_back_is_given_up_after_the_deadline(
    tmp_path: Path, place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "1")
    proxy.fault = lambda _request: Fault.UNAVAILABLE
    path = tmp_path / "file"
    path.write_bytes(b"x")
    for fails in (
        lambda: publish_file(path, place.uri / "file"),
        lambda: stage_file(place.uri / "file", tmp_path / "b"),
    ):
        proxy.requests.clear()
        with pytest.raises(StorageError, match=r"no usable answer for 1 s.*503") as refusal:
            fails()
        assert "SPANLOOM_STORAGE_DEADLINE" in (refusal.value.remedy or "")
        assert len(proxy.requests) > 1


def test_a_store_that_is_not_there_is_given_up_too(place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "0.5")
    proxy.close()
    with pytest.raises(StorageError, match="no usable answer"):
        find(place.uri / "file")


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_deadline_that_is_no_number_is_said(place: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", text)
    with pytest.raises(StorageError, match=f"'{text}' is not a number of seconds"):
        find(place.uri / "file")


def test_a_set_that_fails_does_not_wait_for_those_that_hang(
    tmp_path: Path, place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One upload hangs for an hour, another is refused: that is the end of both."""
    monkeypatch.setenv("SPANLOOM_STORAGE_DEADLINE", "3600")
    uploads = []
    for name in ("hangs", "refused"):
        (tmp_path / name).write_bytes(name.encode())
        uploads.append(Upload(path=tmp_path / name, uri=place.uri / name))

    def refused(_answer: Answer) -> Answer:
        proxy.held.wait(60)
        return Answer(status=403)

    def fault(request: Request) -> Lie:
        if request.does == "describe" and "refused" in request.path:
            return refused
        return Fault.HOLD if request.does == "send" else None

    proxy.fault = fault
    with pytest.raises(StorageError, match="no permission"):
        publish_files(uploads)
    assert proxy.held.is_set()
    assert not proxy.go_on.is_set()
