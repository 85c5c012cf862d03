"""When the files for people are written, where, and where not."""

import json
import shutil
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.families.harmony import dataset as harmony
from spanloom.report.views import is_own_view, may_replace_view, remove_views
from spanloom.steps.validate_alignment import validate_alignment
from support import sources


@pytest.fixture
def pending(hostile: Path, tmp_path: Path) -> Path:
    """A dataset that was built and not validated yet."""
    root = Path(shutil.copytree(hostile, tmp_path / "root"))
    for name in ("README.md", "report.html", "report.json"):
        (root / name).unlink()
    (root / manifest.MANIFEST_NAME).rename(root / manifest.PENDING_NAME)
    return root


def stamps(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}


def test_validate_writes_where_it_is_told_and_nothing_into_the_dataset(demo: Path, tmp_path: Path, cli: Cli) -> None:
    before = stamps(demo)
    page, facts = tmp_path / "page.html", tmp_path / "facts.json"
    done = cli("validate", demo, "--html", page, "--report", facts, "-q")
    assert done.returncode == 0, done.stderr
    assert stamps(demo) == before
    assert "Clean" in page.read_text("utf-8")
    assert json.loads(facts.read_bytes())["statistics"]["total"]["sequences"] == 231


def test_the_step_leaves_report_and_card_beside_the_manifest_and_writes_its_artifacts(
    pending: Path, tmp_path: Path, cli: Cli
) -> None:
    page, facts = tmp_path / "page.html", tmp_path / "facts.json"
    done = cli("step", "validate-alignment", "--root", pending, "--html", page, "--report", facts, "-q")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in pending.iterdir() if path.is_file()) == sources.VIEWS
    assert (pending / "report.html").read_bytes() == page.read_bytes()
    assert (pending / "report.json").read_bytes() == facts.read_bytes()


def test_what_is_not_clean_gets_a_report_and_no_card(pending: Path) -> None:
    span = pending / "train/shard_00_span.bin"
    span.write_bytes(bytes([2]) + span.read_bytes()[1:])
    assert not validate_alignment(root=pending, family=harmony).clean
    assert not (pending / "README.md").exists()
    assert not (pending / manifest.MANIFEST_NAME).exists()
    page = (pending / "report.html").read_text("utf-8")
    assert page.index("This is no dataset to train on") < page.index("Splits and shards")


OTHERS = {
    "report.json": (b"", b"{", b"[]", b'{"report": "of the year"}', b"[" * 100_000),
    "report.html": (b"", b"<html>mine</html>", b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'),
    "README.md": (b"", b"# mine\n"),
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, several in OTHERS.items() for data in several])
def test_a_file_of_somebody_else_under_the_name_of_a_view_is_none(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert not is_own_view(tmp_path / name)
    assert not may_replace_view(tmp_path / name)
    remove_views(tmp_path)
    assert (tmp_path / name).read_bytes() == data


def test_views_are_recognised_and_links_to_them_are_not(demo: Path, tmp_path: Path) -> None:
    for name in OTHERS:
        assert is_own_view(demo / name)
        (tmp_path / name).symlink_to(demo / name)
        assert not is_own_view(tmp_path / name)
        assert not may_replace_view(tmp_path / name)


def test_a_page_of_an_earlier_version_is_recognised(demo: Path, tmp_path: Path) -> None:
    """It named no generator."""
    page = (demo / "report.html").read_bytes()
    earlier = page.replace(b'<meta name="generator" content="spanloom">\n', b"")
    assert len(earlier) < len(page)
    (tmp_path / "report.html").write_bytes(earlier)
    assert is_own_view(tmp_path / "report.html")


def test_views_of_somebody_else_stay_when_a_dataset_is_promoted_and_are_named(
    pending: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in OTHERS:
        (pending / name).write_text("mine")
    assert validate_alignment(root=pending, family=harmony).clean
    assert (pending / manifest.MANIFEST_NAME).exists()
    said = capsys.readouterr().err
    for name in OTHERS:
        assert (pending / name).read_text() == "mine"
        assert f"warning: {pending / name} was not made by Spanloom, or was edited; it stays as it is\n" in said


def test_without_its_card_a_dataset_is_not_promoted(pending: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest comes last: whoever sees it sees the rest."""

    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("spanloom.building.conclude.write_card", full)
    with pytest.raises(OSError, match="no space"):
        validate_alignment(root=pending, family=harmony)
    assert not (pending / manifest.MANIFEST_NAME).exists()
    monkeypatch.undo()
    assert validate_alignment(root=pending, family=harmony).clean
    assert sorted(path.name for path in pending.iterdir() if path.is_file()) == sources.VIEWS
