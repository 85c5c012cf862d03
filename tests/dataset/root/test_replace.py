"""One dataset replaced by another: killed before any change, one of the two is whole, and the rest can be done."""

import errno
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from spanloom.dataset import manifest
from spanloom.dataset.root.lock import NEW_NAME, BuildRecord, claim, remove_work
from spanloom.dataset.root.replace import finish_replacing, is_replacing, replace_dataset
from spanloom.errors import ConflictError
from spanloom.report.views import is_own_view
from support.folders import files_of
from support.killed import STRIDE, killed_before

FROZEN = Path(__file__).parents[2] / "frozen"
FOREIGN = {"notes.txt": b"mine", "nested/.part.spanloom-tmp-abcdefgh": b"mine", "report.html": b"<p>mine</p>"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A SYNTH KD dataset, packed chat made in `.work/new` to replace it, and files of others beside."""
    root = Path(shutil.copytree(FROZEN / "synth_kd", tmp_path / "root"))
    work = root / ".work"
    shutil.copytree(FROZEN / "packed_chat", work / NEW_NAME)
    for folder in (root, work / NEW_NAME):
        (folder / "report.json").write_text(json.dumps({"report": "spanloom_report_v1", "of": folder.name}))
    listed = tuple(file.path for file in manifest.read(work / NEW_NAME).content.listed_files())
    claim(root, work, BuildRecord(identity={"some": "build"}, files=listed, work=(NEW_NAME,)))
    for name, data in FOREIGN.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    return root


def expected() -> dict[str, bytes]:
    new = files_of(FROZEN / "packed_chat")
    return {**new, **FOREIGN, "report.json": json.dumps({"report": "spanloom_report_v1", "of": NEW_NAME}).encode()}


def whole(folder: Path) -> str | None:
    """The family of the dataset in a folder. Fails where its manifest stands over files that do not."""
    if not (folder / "manifest.json").exists():
        return None
    content = manifest.read(folder).content
    for file in content.listed_files():
        assert hashlib.sha256((folder / file.path).read_bytes()).hexdigest() == file.sha256, file.path
    return content.family


def replace(root: Path) -> None:
    replace_dataset(root, root / ".work", is_own_view)
    remove_work(root)


def finish(root: Path) -> None:
    """What the next run does."""
    work = root / ".work"
    if is_replacing(work):
        finish_replacing(root, work, is_own_view)
    if whole(root) == "synth_kd":
        replace_dataset(root, work, is_own_view)
    if work.exists():
        remove_work(root)


def test_killed_before_any_change_one_dataset_is_whole_and_the_next_run_does_the_rest(
    root: Path, tmp_path: Path
) -> None:
    seen = set()
    change = 0
    while True:
        change += STRIDE
        trial = Path(shutil.copytree(root, tmp_path / f"trial{change}"))
        ended = killed_before(change, lambda trial=trial: replace(trial))
        here, new = whole(trial), whole(trial / ".work" / NEW_NAME)
        assert here or new == "packed_chat", change
        assert FOREIGN.items() <= files_of(trial).items(), change
        seen.add((here, new, is_replacing(trial / ".work")))
        if not ended:
            break
        finish(trial)
        assert files_of(trial) == expected(), change
    assert files_of(trial) == expected()
    assert not (trial / "valid").exists()
    possible = {
        ("synth_kd", "packed_chat", False),  # before the commit
        (None, "packed_chat", True),
        ("packed_chat", "packed_chat", True),
        ("packed_chat", None, True),
        ("packed_chat", None, False),
    }
    assert seen == possible if STRIDE == 1 else seen <= possible


@pytest.mark.nightly
def test_finishing_may_be_killed_as_well(root: Path, tmp_path: Path) -> None:
    """Killed in the middle of the old files, then before each change of the run that finishes."""
    half = Path(shutil.copytree(root, tmp_path / "half"))
    assert killed_before(6, lambda: replace(half))
    assert is_replacing(half / ".work")
    change = 0
    while True:
        change += STRIDE
        trial = Path(shutil.copytree(half, tmp_path / f"trial{change}"))
        ended = killed_before(change, lambda trial=trial: finish(trial))
        assert "packed_chat" in (whole(trial), whole(trial / ".work" / NEW_NAME)), change
        if not ended:
            break
        finish(trial)
        assert files_of(trial) == expected(), change
    assert files_of(trial) == expected()


@pytest.mark.parametrize("refusal", ["EPERM", "ENOTSUP", "EXDEV"])
def test_where_there_are_no_hard_links_files_are_copied(
    root: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(getattr(errno, refusal), "no hard links here")

    monkeypatch.setattr("os.link", no_links)
    replace(root)
    assert files_of(root) == expected()


def test_a_file_that_came_under_a_name_of_the_new_dataset_stops_the_rest_and_stays(root: Path) -> None:
    """It came between the commit and the run that finishes, under a name that the old dataset does not have."""
    work = root / ".work"
    (work / NEW_NAME / "train/shard_01_tokens.bin").rename(work / NEW_NAME / "train/other.bin")
    whole_new = (work / NEW_NAME / "manifest.json").read_text().replace("train/shard_01_tokens.bin", "train/other.bin")
    (work / NEW_NAME / "manifest.json").write_text(whole_new)
    (root / "manifest.json").rename(work / "replaced.json")  # the commit
    (root / "train/other.bin").write_bytes(b"mine")
    with pytest.raises(ConflictError, match=r"refusing to overwrite[^\n]*\n  where: .*train/other\.bin"):
        finish_replacing(root, work, is_own_view)
    assert (root / "train/other.bin").read_bytes() == b"mine"
    assert whole(work / NEW_NAME) == "packed_chat"
    (root / "train/other.bin").unlink()
    finish_replacing(root, work, is_own_view)
    assert whole(root) == "packed_chat"


@pytest.mark.parametrize("name", ["train/mine.bin", "valid/mine", "rejects/shard_00.jsonl"])
def test_files_of_others_among_the_data_are_refused_before_anything_changes(root: Path, name: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(b"mine")
    before = files_of(root)
    with pytest.raises(ConflictError, match=f"are among its files: {name}\n"):
        replace(root)
    assert files_of(root) == before


def test_a_manifest_that_is_a_link_is_not_replaced(root: Path, tmp_path: Path) -> None:
    (root / "manifest.json").rename(tmp_path / "elsewhere.json")
    (root / "manifest.json").symlink_to(tmp_path / "elsewhere.json")
    before = files_of(root)
    with pytest.raises(ConflictError, match="the manifest here is a link or not a file"):
        replace(root)
    assert files_of(root) == before
