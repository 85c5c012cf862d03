"""What stands at the output root is never lost unasked, and a root that cannot be written is said to be so."""

import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloom.dataset.manifest import ManifestError
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import ConflictError, RejectedRowError, SpanloomError, StorageError
from spanloom.families.harmony import dataset as harmony
from spanloom.families.harmony.contract.caps import Caps
from support import sources
from support.bad_builds import (
    BAD_ROWS,
    assert_nothing_looks_finished,
    build_it,
    lines_to,
    source_of,
    stored_rows,
)
from support.folders import files_of


@pytest.mark.parametrize("changes", [{"source": "other"}, {"valid_fraction": 0.25}, {"caps": Caps(max_rows=3)}])
def test_another_dataset_at_the_root_is_never_overwritten_unasked(
    changes: dict[str, Any], standing: Path, small: Path, other: Path
) -> None:
    before = files_of(standing)
    source = other if changes.get("source") else small
    where = f"where: {re.escape(str(standing))}"
    remedy = "remedy: give another --out, or replace it with --overwrite"
    why = "it was made (with other options|of another source).*"
    said = f"^the output root already holds another dataset: {why}\n  {where}\n  {remedy}$"
    with pytest.raises(ConflictError, match=said):
        build_it(source, standing, **{key: value for key, value in changes.items() if key != "source"})
    assert files_of(standing) == before


def test_overwrite_replaces_the_dataset_and_removes_the_old_one(standing: Path, other: Path, tmp_path: Path) -> None:
    result = build_it(other, standing, overwrite=True)
    assert result.report.clean
    assert result.root == standing
    fresh = build_it(other, tmp_path / "fresh" / standing.name).root
    times = {"manifest.json", "report.json", "report.html"}
    there, expected = files_of(standing), files_of(fresh)
    assert there.keys() == expected.keys()
    assert {name: there[name] for name in there.keys() - times} == {
        name: expected[name] for name in there.keys() - times
    }
    assert sources.content(standing) == sources.content(fresh)
    assert json.loads(there["report.json"])["environment"]["name"] == standing.name


def test_an_overwrite_that_fails_leaves_the_old_dataset_where_it_is(
    standing: Path, other: Path, tmp_path: Path
) -> None:
    before = files_of(standing)
    bad = source_of(tmp_path / "bad", [sources.row("a"), BAD_ROWS["role tool"].row()])
    with pytest.raises(RejectedRowError, match=r"^role_unknown: "):
        build_it(bad, standing, overwrite=True)
    assert {name: data for name, data in files_of(standing).items() if not name.startswith(".work/")} == before
    assert validate_dataset(standing, harmony).clean
    with pytest.raises(ConflictError, match=r"unfinished build.*\n.*\n.*discard it with --no-resume"):
        build_it(other, standing, overwrite=True)

    result = build_it(other, standing, overwrite=True, resume=False)
    assert result.report.clean
    assert stored_rows(standing, 0) == {0: "other-0", 1: "other-1"}
    assert not (standing / ".work").exists()


def test_an_unfinished_overwrite_does_not_hinder_the_build_of_what_stands(
    standing: Path, small: Path, tmp_path: Path
) -> None:
    bad = source_of(tmp_path / "bad", [sources.row("a"), BAD_ROWS["role tool"].row()])
    with pytest.raises(RejectedRowError):
        build_it(bad, standing, overwrite=True)
    unfinished = files_of(standing / ".work")
    assert build_it(small, standing).already_built
    assert files_of(standing / ".work") == unfinished


def test_a_folder_beside_the_root_stays_when_it_is_overwritten(standing: Path, other: Path) -> None:
    kept = Path(shutil.copytree(standing, standing.with_name("dataset.replaced")))
    before = files_of(kept)
    assert build_it(other, standing, overwrite=True).report.clean
    assert files_of(kept) == before


def test_overwrite_says_where_the_old_and_the_new_dataset_are(standing: Path, other: Path) -> None:
    said = io.StringIO()
    build_it(other, standing, overwrite=True, progress=lines_to(said))
    new = standing / ".work/new"
    assert f"the dataset at {standing} stays until the new one, made under {new}, is validated" in said.getvalue()


def test_the_same_build_again_validates_what_stands_and_touches_no_file(standing: Path, small: Path) -> None:
    def stamps() -> dict[str, tuple[int, int]]:
        paths = [path for path in standing.rglob("*") if path.is_file() and not path.name.startswith("report.")]
        return {path.name + path.parent.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in paths}

    before = stamps()
    result = build_it(small, standing)
    assert result.already_built
    assert result.report.clean
    assert result.report.as_dict()["checked"]["documents"] == 4
    assert stamps() == before
    assert len(before) == 2 + 2 * 7  # manifest and card; train and valid


@pytest.fixture(scope="module")
def stopped(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose build ended when its files were published, before they were validated."""
    root = tmp_path_factory.mktemp("stopped") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanloom.report.progress.Progress.checking", stop)
        with pytest.raises(StoppedError):
            build_it(small, root)
    assert (root / "train/shard_00_tokens.bin").exists()
    assert not (root / "manifest.json").exists()
    return root


@pytest.fixture
def unfinished(stopped: Path, tmp_path: Path) -> Path:
    """Such a root of its own for each test."""
    return Path(shutil.copytree(stopped, tmp_path / "out"))


class StoppedError(Exception):
    """Stands for whatever may end a build."""


def stop(*_: object, **__: object) -> None:
    raise StoppedError


FOREIGN = (
    "train/shard_00_tokens.bin",
    "train/shard_000.tar",
    "valid/shard_00_rows.parquet",
    "rejects/shard_00.jsonl",
    "report.html",
    "report.json",
    "README.md",
    "manifest.pending.json",
    ".work/notes.txt",
    ".work/rendered_00/part_00000.parquet",
    "notes.txt",
)


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_root_of_somebody_else_is_refused_and_stays_as_it_is(
    small: Path, tmp_path: Path, name: str, resume: bool
) -> None:
    foreign = tmp_path / "out" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    first = name if name.startswith(".work") else name.split("/")[0]
    first = "/".join(first.split("/")[:2])
    said = (
        rf"^the output root holds what no build of Spanloom made: {re.escape(first)}\n  where: .*/out\n"
        r"  remedy: give an --out that is new or empty, or move away what is there$"
    )
    with pytest.raises(ConflictError, match=said):
        build_it(small, tmp_path / "out", resume=resume)
    assert files_of(tmp_path / "out") == {name: b"mine"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [name.split("/")[0]]


def test_hidden_files_and_lost_and_found_are_nobodys_concern(small: Path, tmp_path: Path) -> None:
    (tmp_path / "out/lost+found").mkdir(parents=True)
    (tmp_path / "out/.nfs0001").write_bytes(b"mine")
    assert build_it(small, tmp_path / "out").report.clean
    assert (tmp_path / "out/.nfs0001").read_bytes() == b"mine"


@pytest.mark.parametrize("link", [".work", "train", "valid", "rejects", ".work/lock", ".work/rendered_00"])
def test_nothing_is_written_or_removed_through_a_link(small: Path, unfinished: Path, tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("shard_00_tokens.bin", "build.json", "lock", "notes.txt"):
        (elsewhere / name).write_bytes(b"mine")
    before = files_of(elsewhere)
    if (unfinished / link).is_dir():
        shutil.rmtree(unfinished / link)
    (unfinished / link).unlink(missing_ok=True)
    (unfinished / link).symlink_to(elsewhere)
    for resume in (True, False):
        with pytest.raises(ConflictError, match=rf"nothing is written or removed through it\n  where: .*out/{link}\n"):
            build_it(small, unfinished, resume=resume)
    assert files_of(elsewhere) == before


def test_no_resume_removes_what_the_unfinished_build_made_and_nothing_else(unfinished: Path, other: Path) -> None:
    """Names of our own manner that the record does not hold are somebody else's."""
    root = unfinished
    foreign = (
        "notes.txt",
        "train/shard_01_tokens.bin",
        "train/shard_000.tar",
        "train/shard_00_tokens.bin.old",
        "rejects/shard_07.jsonl",
        "report.html",
        "README.md",
        ".work/notes.txt",
        "nested/.work/build.json",
        "nested/train/.shard_00_tokens.bin.spanloom-tmp-abcdefgh",
        "train/.shard_01_tokens.bin.spanloom-tmp-abcdefgh",
    )
    for name in foreign:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"mine")
    left = root / "train/.shard_00_tokens.bin.spanloom-tmp-abcdefgh"
    left.write_bytes(b"left by a build that was killed")
    before = sources.data_files(root)
    result = build_it(other, root, resume=False)
    assert {name: (root / name).read_bytes() for name in foreign} == dict.fromkeys(foreign, b"mine")
    assert not left.exists()
    assert stored_rows(root, 0) == {0: "other-0", 1: "other-1"}
    assert sources.data_files(root) != before
    assert not result.report.clean, "files that no manifest lists are beside the data"


def test_an_unfinished_build_is_finished_and_files_of_others_stay(unfinished: Path, small: Path) -> None:
    mine = ("notes.txt", "nested/.part.spanloom-tmp-abcdefgh", "report.html", ".work/notes.txt")
    for name in mine:
        (unfinished / name).parent.mkdir(exist_ok=True)
        (unfinished / name).write_bytes(b"mine")
    left = unfinished / "train/.shard_00_tokens.bin.spanloom-tmp-abcdefgh"
    left.write_bytes(b"left by a build that was killed")
    assert build_it(small, unfinished).report.clean
    assert {name: (unfinished / name).read_bytes() for name in mine} == dict.fromkeys(mine, b"mine")
    assert not left.exists()
    assert [path.name for path in (unfinished / ".work").iterdir()] == ["notes.txt"]


def test_what_another_build_is_about_to_put_in_place_of_a_dataset_is_not_touched(unfinished: Path, small: Path) -> None:
    """Its `.work` holds the new dataset, and perhaps the manifest of one that it has begun to replace."""
    shutil.rmtree(unfinished / "train")
    (unfinished / "manifest.pending.json").unlink()
    record = unfinished / ".work/build.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "identity": {"another": "build"}, "files": []}))
    (unfinished / ".work/replaced.json").write_text("{}")
    before = files_of(unfinished)
    with pytest.raises(SpanloomError, match="there is no such folder"):  # the new dataset is gone
        build_it(small, unfinished)
    assert files_of(unfinished) == before


def test_no_resume_that_was_killed_at_its_end_is_finished_by_the_same_command(standing: Path, small: Path) -> None:
    """The manifest stood already, and its record was not gone yet."""
    with pytest.raises(ConflictError, match="--no-resume asks to build again"):
        build_it(small, standing, resume=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanloom.building.make.remove_work", stop)
        with pytest.raises(StoppedError):
            build_it(small, standing, overwrite=True)
    assert (standing / "manifest.json").exists()
    assert (standing / ".work/build.json").exists()
    assert build_it(small, standing, resume=False).already_built
    assert not (standing / ".work").exists()


def test_a_foreign_file_under_a_final_name_is_a_conflict_and_stays(good: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:  # a build that has begun, so that the root is ours
        patch.setattr("spanloom.building.shards.files.count_ids", stop)
        with pytest.raises(StoppedError):
            build_it(good, root, shards=4, workers=2)
    foreign = root / "train/shard_00_tokens.bin"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    said = (
        r"^refusing to overwrite a file that holds other bytes \(there: sha256 [0-9a-f]{64}; new: [0-9a-f]{64}\)"
        rf"\n  where: {re.escape(str(foreign))}\n  remedy: build into another --out, or remove that dataset first$"
    )
    with pytest.raises(ConflictError, match=said):
        build_it(good, root, shards=4, workers=2)  # the other worker is ended in the middle of a shard
    assert foreign.read_bytes() == b"mine"
    assert_nothing_looks_finished(root)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"config": {}}'])
def test_a_damaged_record_of_a_build_is_said_to_be_damaged(small: Path, unfinished: Path, damage: bytes) -> None:
    root = unfinished
    record = root / ".work/build.json"
    record.write_bytes(damage)
    before = files_of(root)
    for resume in (True, False):
        with pytest.raises(ConflictError, match=r"^the record of the build that has begun here (is|holds) "):
            build_it(small, root, resume=resume)
    assert files_of(root) == before


@pytest.mark.parametrize(
    "name", ["../precious.txt", "/etc/hostname", "train/../../precious.txt", "a\\b", "", "train//x"]
)
def test_a_record_whose_names_leave_the_root_is_refused(
    small: Path, unfinished: Path, tmp_path: Path, name: str
) -> None:
    root = unfinished
    (tmp_path / "precious.txt").write_text("mine")
    record = root / ".work/build.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "files": [name]}))
    with pytest.raises(ConflictError, match="is damaged"):
        build_it(small, root, resume=False)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_an_output_root_below_a_file_cannot_be_written(good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file/out"
    with pytest.raises(
        StorageError,
        match=rf"^the output root cannot be written: Not a directory\n  where: {re.escape(str(out))}\n"
        r"  remedy: give an --out that you may write to$",
    ):
        build_it(good, out, shards=4)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A read-only mount: permissions alone do not keep root out."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a read-only file system")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a read-only file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_an_output_root_on_a_read_only_file_system_cannot_be_written(read_only: Path, good: Path) -> None:
    with pytest.raises(
        StorageError,
        match=r"^the output root cannot be written: Read-only file system\n  where: .*/out\n  remedy: give",
    ):
        build_it(good, read_only / "out", shards=4)


def test_a_damaged_dataset_is_said_to_be_damaged(standing: Path, small: Path) -> None:
    tokens = standing / "train/shard_00_tokens.bin"
    tokens.write_bytes(b"\0" * tokens.stat().st_size)
    with pytest.raises(ConflictError, match=r"it is this one, but damaged: .*file train/shard_00_tokens\.bin"):
        build_it(small, standing)


def test_a_dataset_with_rejects_is_not_the_one_without(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", [*sources.rows(3), BAD_ROWS["role tool"].row()])
    assert build_it(source, tmp_path / "out", max_rejects="1").report.clean
    assert build_it(source, tmp_path / "out", max_rejects="1").already_built
    with pytest.raises(ConflictError, match="more rows were refused for it than --max-rejects allows"):
        build_it(source, tmp_path / "out")


def test_overwrite_keeps_what_somebody_else_put_beside_the_dataset(standing: Path, other: Path) -> None:
    mine = ("notes.txt", "nested/train/shard_00_tokens.bin", "nested/.part.spanloom-tmp-abcdefgh", "README.md")
    for name in mine:
        (standing / name).parent.mkdir(parents=True, exist_ok=True)
        (standing / name).write_text("mine")
    said = io.StringIO()
    assert build_it(other, standing, overwrite=True, progress=lines_to(said)).report.clean
    assert {(standing / name).read_text() for name in mine} == {"mine"}
    assert f"warning: {standing / 'README.md'} was not made by Spanloom, or was edited; it stays" in said.getvalue()
    assert not standing.with_name("dataset.replaced").exists()


@pytest.mark.parametrize("name", ["train/mine.bin", "rejects/shard_00.jsonl", "valid/shard_01_tokens.bin"])
def test_overwrite_refuses_files_of_others_among_the_data(standing: Path, other: Path, name: str) -> None:
    (standing / name).parent.mkdir(exist_ok=True)
    (standing / name).write_text("mine")
    before = files_of(standing)
    with pytest.raises(ConflictError, match=rf"^files that are not part of the dataset are among its files: {name}\n"):
        build_it(other, standing, overwrite=True)
    assert files_of(standing) == before


@pytest.mark.parametrize(
    "path", ["../precious.txt", "{absolute}", "train/../../precious.txt", "", "train\\x", "train//x"]
)
def test_overwrite_refuses_a_manifest_whose_paths_leave_the_root(
    standing: Path, other: Path, tmp_path: Path, path: str
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    file = standing / "manifest.json"
    whole = json.loads(file.read_bytes())
    whole["content"]["shards"][0]["splits"]["train"]["files"][0]["path"] = path.format(absolute=precious)
    file.write_text(json.dumps(whole))
    before = files_of(standing)
    with pytest.raises(
        ManifestError, match=r"does not follow spanloom_dataset_v1 at content\.shards\.0\.splits\.train"
    ):
        build_it(other, standing, overwrite=True)
    assert files_of(standing) == before
    assert precious.read_text() == "mine"


def test_overwrite_never_touches_a_folder_whose_manifest_is_not_ours(small: Path, other: Path, tmp_path: Path) -> None:
    foreign = Path(shutil.copytree(other, tmp_path / "foreign"))  # a source has a manifest.json too
    before = files_of(foreign)
    with pytest.raises(ManifestError, match="a source of conversations, not a dataset"):
        build_it(small, foreign, overwrite=True)
    assert files_of(foreign) == before
    assert not foreign.with_name("foreign.replaced").exists()


def test_reports_of_somebody_else_stay_and_are_named(
    standing: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.json", "report.html"):
        (standing / name).write_text('{"report": "of the year"}')
    assert build_it(small, standing).already_built
    said = capsys.readouterr().err
    for name in ("report.json", "report.html"):
        assert (standing / name).read_text() == '{"report": "of the year"}'
        assert f"warning: {standing / name} was not made by Spanloom, or was edited; it stays as it is" in said


@pytest.mark.parametrize("place", [".", "dataset", ".."])
def test_a_root_in_its_source_or_around_it_is_refused(small: Path, place: str) -> None:
    before = files_of(small)
    with pytest.raises(ConflictError, match="the output root and the source contain one another"):
        build_it(small, small / place, overwrite=True)
    assert files_of(small) == before


def test_without_megatron_a_build_that_asks_for_it_stops_before_any_work(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanloom.megatron.official.find_spec", lambda _name: None)
    with pytest.raises(SpanloomError, match=r"torch and megatron cannot be imported.*\n.*spanloom\[megatron\]"):
        build_it(small, tmp_path / "out", reader="megatron")
    assert not (tmp_path / "out").exists()
