"""What is where packed chat is to go: nothing of somebody else's is written, removed or followed."""

import json
import shutil
from pathlib import Path

import pytest

from spanloom.errors import ConflictError, SpanloomError
from support.chat_datasets import packed


def files_of(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class StoppedError(Exception):
    """Stands for whatever may end a run."""


def stop(*_: object, **__: object) -> None:
    raise StoppedError


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `dataset` that was packed and not validated, and what it was packed from."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanloom.report.progress.Progress.checking", stop)
        with pytest.raises(StoppedError):
            packed(folder)
    assert (folder / "dataset/train/shard_00_tokens.bin").exists()
    assert not (folder / "dataset/manifest.json").exists()
    return folder


@pytest.fixture
def unfinished(stopped: Path, tmp_path: Path) -> Path:
    """Such a folder of its own for each test."""
    return Path(shutil.copytree(stopped, tmp_path / "folder"))


@pytest.mark.parametrize(
    "name", ["train/shard_00_tokens.bin", "train/shard_000.tar", "report.html", "notes.txt", ".work/notes.txt"]
)
def test_a_root_of_somebody_else_is_refused_and_stays_as_it_is(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / "dataset" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    with pytest.raises(ConflictError, match="the output root holds what no build of Spanloom made"):
        packed(tmp_path)
    assert files_of(tmp_path / "dataset") == {name: b"mine"}


def test_an_unfinished_run_is_finished_and_files_of_others_stay(unfinished: Path) -> None:
    root = unfinished / "dataset"
    mine = ("notes.txt", "nested/.part.spanloom-tmp-abcdefgh", "report.html", ".work/notes.txt")
    for name in mine:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"mine")
    left = root / "train/.shard_00_tokens.bin.spanloom-tmp-abcdefgh"
    left.write_bytes(b"left by a run that was killed")
    assert packed(unfinished).report.clean
    assert {name: data for name, data in files_of(root).items() if name in mine} == dict.fromkeys(mine, b"mine")
    assert not left.exists()
    assert [path.name for path in (root / ".work").iterdir()] == ["notes.txt"]


def test_another_unfinished_run_is_a_conflict(unfinished: Path) -> None:
    before = files_of(unfinished / "dataset")
    with pytest.raises(ConflictError, match="the root holds an unfinished build with other options or another source"):
        packed(unfinished, block_size=32)
    assert files_of(unfinished / "dataset") == before


@pytest.mark.parametrize("link", [".work", "train", ".work/lock"])
def test_nothing_is_written_or_removed_through_a_link(unfinished: Path, tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shard_00_tokens.bin").write_bytes(b"mine")
    place = unfinished / "dataset" / link
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(elsewhere)
    with pytest.raises(ConflictError, match="nothing is written or removed through it"):
        packed(unfinished)
    assert files_of(elsewhere) == {"shard_00_tokens.bin": b"mine"}


def test_what_another_build_is_about_to_put_in_place_of_a_dataset_is_not_touched(unfinished: Path) -> None:
    """Its `.work` holds the new dataset, and perhaps the manifest of one that it has begun to replace."""
    root = unfinished / "dataset"
    shutil.rmtree(root / "train")
    (root / "manifest.pending.json").unlink()
    record = root / ".work/build.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "identity": {"another": "build"}, "files": []}))
    (root / ".work/replaced.json").write_text("{}")
    before = files_of(root)
    with pytest.raises(SpanloomError, match="there is no such folder"):  # the new dataset is gone
        packed(unfinished)
    assert files_of(root) == before
