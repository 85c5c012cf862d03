"""What `fetch` brings is the dataset that its manifest describes, or no dataset."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.dataset.fetch import fetch
from spanloom.dataset.manifest import ManifestError
from spanloom.errors import ConflictError, SpanloomError, StorageError
from support import sources
from support.object_stores import BUCKET, Place
from support.remote_datasets import Built, build, publish
from support.stores.gcs import CloudStorage, Stored
from support.stores.proxy import Answer, Fault, Proxy


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Built:
    return build(tmp_path_factory.mktemp("built"), cli, "--valid-fraction", 0.1)


@pytest.fixture
def proxy(gs_place: Place, enter: Callable[[dict[str, str]], None]) -> Iterator[Proxy]:
    proxy = Proxy(gs_place.address)
    enter(gs_place.through(proxy.address))
    yield proxy
    proxy.close()


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_what_was_published_is_fetched_and_nothing_else(tmp_path: Path, place: Place, built: Built) -> None:
    publish(built, place.uri, tmp_path)
    heard: list[tuple[int, int]] = []
    fetched = fetch(str(place.uri), tmp_path / "dir", lambda done, total: heard.append((done, total)))
    assert sources.data_files(tmp_path / "dir") == built.files()
    assert (tmp_path / "dir" / "manifest.json").read_bytes() == (built.root / "manifest.json").read_bytes()
    assert names(tmp_path / "dir") == {*built.files(), "manifest.json"}
    assert (fetched.files_fetched, fetched.files_kept) == (len(built.files()), 0)
    total = sum(map(len, built.files().values()))
    assert fetched.bytes_fetched == total
    assert heard[-1] == (total, total)
    assert heard == sorted(heard)


def test_a_second_fetch_downloads_nothing_and_writes_nothing(tmp_path: Path, gs_place: Place, built: Built) -> None:
    publish(built, gs_place.uri, tmp_path)
    fetch(str(gs_place.uri), tmp_path / "dir")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "dir").rglob("*")}
    again = fetch(str(gs_place.uri), tmp_path / "dir")
    assert (again.files_fetched, again.files_kept) == (0, len(built.files()))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "dir").rglob("*")} == before


def test_files_that_stand_are_kept_and_the_others_come(
    tmp_path: Path, gs_place: Place, built: Built, cloud_storage: CloudStorage
) -> None:
    publish(built, gs_place.uri, tmp_path)
    fetch(str(gs_place.uri), tmp_path / "dir")
    (tmp_path / "dir" / "manifest.json").unlink()
    (tmp_path / "dir" / "train" / "shard_02_tokens.bin").unlink()
    cloud_storage.log.clear()
    again = fetch(str(gs_place.uri), tmp_path / "dir")
    assert (again.files_fetched, again.files_kept) == (1, len(built.files()) - 1)
    media = [path.rsplit("/", 1)[-1] for _, path, _ in cloud_storage.log if path.startswith("/download")]
    assert media == ["manifest.json", "shard_02_tokens.bin"]
    assert sources.data_files(tmp_path / "dir") == built.files()


@pytest.mark.parametrize("change", ["a byte", "one more byte", "gone"])
def test_an_object_that_is_not_what_the_manifest_says_stops_and_there_is_no_dataset(
    tmp_path: Path, gs_place: Place, built: Built, cloud_storage: CloudStorage, change: str
) -> None:
    publish(built, gs_place.uri, tmp_path)
    key = f"{gs_place.uri.key}/train/shard_01_tokens.bin"
    data = cloud_storage.objects[BUCKET].pop(key).data
    changed = {"a byte": bytes([data[0] ^ 1]) + data[1:], "one more byte": data + b"\0"}
    said = {
        "a byte": r"sha256 [0-9a-f]{64}, the manifest says [0-9a-f]{64}",
        "one more byte": f"{len(data) + 1} bytes, {len(data)} are expected",
        "gone": "the object does not exist",
    }
    if change in changed:
        cloud_storage.objects[BUCKET][key] = Stored(changed[change], 1, {})
    with pytest.raises(StorageError, match=said[change]) as refusal:
        fetch(str(gs_place.uri), tmp_path / "dir")
    assert refusal.value.where == f"gs://{BUCKET}/{key}"
    assert refusal.value.remedy
    assert "manifest.json" not in names(tmp_path / "dir")
    assert "train/shard_01_tokens.bin" not in names(tmp_path / "dir")


def test_a_dataset_that_was_not_validated_is_refused(tmp_path: Path, place: Place, built: Built) -> None:
    publish(built, place.uri, tmp_path, pending=True)
    with pytest.raises(ManifestError, match="built but not validated"):
        fetch(str(place.uri), tmp_path / "dir")
    assert not (tmp_path / "dir").exists()


def test_where_there_is_no_dataset_it_says_so(tmp_path: Path, place: Place) -> None:
    with pytest.raises(ManifestError, match=r"(?m)no manifest\.json: this is not a finished dataset$") as refusal:
        fetch(str(place.uri), tmp_path / "dir")
    assert refusal.value.where == str(place.uri)
    with pytest.raises(SpanloomError, match="is not a URI"):
        fetch(str(tmp_path), tmp_path / "dir")


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, gs_place: Place, built: Built) -> None:
    publish(built, gs_place.uri, tmp_path)
    theirs = tmp_path / "dir" / "train" / "shard_00_tokens.bin"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"mine")
    with pytest.raises(ConflictError, match="holds other bytes than gs://"):
        fetch(str(gs_place.uri), tmp_path / "dir")
    assert theirs.read_bytes() == b"mine"
    other = tmp_path / "other"
    other.mkdir()
    manifest = json.loads((built.root / "manifest.json").read_bytes())
    manifest["content"]["git_sha"] = "1" * 40
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConflictError, match="holds another dataset"):
        fetch(str(gs_place.uri), other)
    assert names(other) == {"manifest.json"}


def test_a_manifest_cannot_write_outside_of_the_folder(
    tmp_path: Path, gs_place: Place, built: Built, cloud_storage: CloudStorage
) -> None:
    publish(built, gs_place.uri, tmp_path)
    stored = cloud_storage.objects[BUCKET][f"{gs_place.uri.key}/manifest.json"]
    stored.data = stored.data.replace(b"train/shard_00_tokens.bin", b"../../shard_00_tokens.bin")
    stored.metadata = {}  # whoever changed it wrote no sha256
    with pytest.raises(
        ManifestError, match=r"does not follow spanloom_dataset_v1 at content\.shards\.0\.splits\.train\."
    ):
        fetch(str(gs_place.uri), tmp_path / "a" / "dir")
    assert not (tmp_path / "a").exists()


def test_temporaries_of_others_below_the_folder_stay(tmp_path: Path, gs_place: Place, built: Built) -> None:
    publish(built, gs_place.uri, tmp_path)
    others = [
        tmp_path / "dir" / name for name in (".mine.spanloom-tmp-1", "nested/train/.shard_00_tokens.bin.spanloom-tmp-1")
    ]
    ours = tmp_path / "dir/train/.shard_00_tokens.bin.spanloom-tmp-1"
    for path in (*others, ours):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine")
    fetch(str(gs_place.uri), tmp_path / "dir")
    assert [path.read_bytes() for path in others] == [b"mine"] * 2
    assert not ours.exists()


def test_a_partial_download_of_a_run_before_is_gone_on_with(
    tmp_path: Path, gs_place: Place, built: Built, proxy: Proxy, cloud_storage: CloudStorage
) -> None:
    publish(built, gs_place.uri, tmp_path)
    name = "train/shard_00_tokens.bin"
    size = len(built.files()[name])
    broken = False

    def breaks_in_the_middle(request) -> Fault | Answer | None:
        nonlocal broken
        if "shard_00_tokens.bin" not in request.path or "train" not in request.path or "media" not in request.path:
            return None
        fault, broken = (Answer(status=403) if broken else Fault.HALF_ANSWER), True
        return fault

    proxy.fault = breaks_in_the_middle
    with pytest.raises(StorageError, match="no permission"):
        fetch(str(gs_place.uri), tmp_path / "dir")
    assert "manifest.json" not in names(tmp_path / "dir")
    proxy.fault = lambda _request: None
    cloud_storage.log.clear()
    fetch(str(gs_place.uri), tmp_path / "dir")
    asked = [asked for _, path, asked in cloud_storage.log if path.startswith("/download") and path.endswith(name)]
    assert asked == [f"bytes={size // 2}-"]
    assert names(tmp_path / "dir") == {*built.files(), "manifest.json"}
    assert sources.data_files(tmp_path / "dir") == built.files()


def link_to_a_file(directory: Path, name: str) -> None:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).symlink_to(directory.parent / "precious")


def link_to_a_folder(directory: Path, name: str) -> None:
    (directory.parent / "elsewhere").mkdir()
    (directory / name).symlink_to(directory.parent / "elsewhere")


def fifo(directory: Path, name: str) -> None:
    os.mkfifo(directory / name)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (link_to_a_file, ".spanloom-fetch.lock"),
        (fifo, ".spanloom-fetch.lock"),
        (link_to_a_file, "train/shard_00_tokens.bin"),
        (link_to_a_folder, "train"),
    ],
)
def test_nothing_is_written_through_a_link_or_into_a_fifo(
    tmp_path: Path, gs_place: Place, built: Built, make: Callable[[Path, str], None], name: str
) -> None:
    publish(built, gs_place.uri, tmp_path)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "dir").mkdir()
    make(tmp_path / "dir", name)
    with pytest.raises(ConflictError, match="neither a file nor a folder"):
        fetch(str(gs_place.uri), tmp_path / "dir")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists() or not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "dir/manifest.json").exists()
