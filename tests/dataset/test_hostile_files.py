"""Whatever lies where a manifest or a record is expected: a clear error that names it, at once, no traceback."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Cli
from spanloom.building.parts.stored import read_sidecar
from spanloom.conversations.source.folder import open_source
from spanloom.dataset import manifest
from spanloom.dataset.manifest import ManifestError
from spanloom.dataset.root.lock import BUILD_JSON, BuildRecord, is_work_of
from spanloom.errors import ArtifactError, ConflictError, SourceError, SpanloomError
from spanloom.families import check_manifest, data_folder
from spanloom.families.harmony import dataset as harmony
from spanloom.report.views import write_card
from support.strange_files import INSTEAD

FROZEN = REPOSITORY / "tests/frozen"


def check_file(refusal: SpanloomError, path: Path) -> None:
    assert refusal.where is not None
    assert str(path) in refusal.where
    assert refusal.remedy
    assert len(str(refusal)) < 2000


@pytest.fixture(params=[name for name in INSTEAD if name != "a dangling link"])  # as if nothing stood there
def make(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return INSTEAD[request.param]


def test_a_manifest(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / manifest.MANIFEST_NAME)
    for read in (manifest.read, manifest.read_any, lambda place: manifest.read_place_as(str(place), check_manifest)):
        with pytest.raises(ManifestError) as refusal:
            read(tmp_path)
        check_file(refusal.value, tmp_path)
    assert data_folder(str(tmp_path)) is None


def test_a_source_manifest(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "manifest.json")
    with pytest.raises(SourceError) as refusal:
        open_source(tmp_path)
    check_file(refusal.value, tmp_path / "manifest.json")


def test_the_record_of_a_step(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "rendered.json"
    make(path)
    with pytest.raises(ArtifactError) as refusal:
        read_sidecar(path)["parts"]
    check_file(refusal.value, path)


def test_the_record_of_an_unfinished_build(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """It is refused, or is another build's: never taken for ours."""
    make(tmp_path / BUILD_JSON)
    try:
        assert not is_work_of(tmp_path, BuildRecord(identity={"config": 1}, files=()))
    except ConflictError as refusal:
        check_file(refusal, tmp_path / BUILD_JSON)


def test_a_card(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """What is not our card stays as it is, and is not waited for."""
    content = manifest.read(FROZEN / "synth_kd").content
    make(tmp_path / "README.md")
    before = (tmp_path / "README.md").lstat()
    assert not write_card(tmp_path, content, harmony)
    after = (tmp_path / "README.md").lstat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)


@pytest.mark.parametrize("name", ["a FIFO", "a link to /dev/zero", "100,000 lists in one another", "a folder"])
def test_commands_end_with_a_clear_error(tmp_path: Path, cli: Cli, name: str) -> None:
    root = Path(shutil.copytree(FROZEN / "synth_kd", tmp_path / "root"))
    (root / "manifest.json").unlink()
    INSTEAD[name](root / "manifest.json")
    for command in (("validate",), ("manifest", "show"), ("stats",), ("export", "--out", tmp_path / "out")):
        done = cli(*command, root)
        assert done.returncode == 1, done.stdout
        assert done.stderr.splitlines()[-3].startswith("error: the manifest ")
        assert f"where: {root / 'manifest.json'}" in done.stderr
        assert "remedy: " in done.stderr


# --- Manifests of the right form -------------------------------------------------------------------------------------


def frozen() -> dict[str, Any]:
    return dict(json.loads((FROZEN / "synth_kd/manifest.json").read_bytes()))


def test_a_file_is_listed_once() -> None:
    for at in ((0, 0), (1, 1)):
        whole = frozen()
        files = whole["content"]["shards"][at[0]]["splits"]["train"]["files"]
        files.append(copy.deepcopy(whole["content"]["shards"][0]["splits"]["train"]["files"][at[1]]))
        with pytest.raises(ManifestError, match="lists a file twice"):
            manifest.check(whole, Path("there"))


@pytest.mark.parametrize("name", ["fitting", "span_tokens"])
def test_a_summary_of_counts_that_are_not_there(tmp_path: Path, cli: Cli, name: str) -> None:
    whole = frozen()
    whole["content"]["totals"]["splits"]["valid"][name] = {}
    (tmp_path / "manifest.json").write_text(json.dumps(whole))
    done = cli("manifest", "show", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout


def test_a_message_does_not_repeat_a_million_letters() -> None:
    for at in ("family", "git_sha", "alignment"):
        whole = frozen()
        whole["content"][at] = "x" * 1_000_000
        with pytest.raises(ManifestError) as refusal:
            manifest.check(whole, Path("there"))
        assert len(str(refusal.value)) < 2000
        assert refusal.value.remedy
