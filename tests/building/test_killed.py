"""Builds of each text family that are killed before a change of the file system: nothing false or foreign is touched,
and the same command finishes with the same bytes."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spanloom.dataset import manifest
from support.bytes_of_builds import Workshop
from support.killed import changes_of, killed_before
from support.nightly import NIGHTLY, nightly
from support.text_families import (
    FAMILIES,
    MODEL_ROWS,
    Family,
    content,
    files,
    model_chat,
    small_batches,
    tasks,
    tool_calls,
)

KILLS = 30 if NIGHTLY else 2
SEED = 49
BY_DAY = (model_chat, tool_calls)
"""One family that proves, one that reads rows: the others share their machine."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("sources"))


@pytest.fixture(
    params=[each if each in BY_DAY else nightly(each) for each in FAMILIES],
    ids=lambda family: family.__name__,
)
def family(
    request: pytest.FixtureRequest, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Family:
    small_batches(monkeypatch)
    made: Family = request.param(workshop, tmp_path)
    return made


def drawn(work: Callable[[], object]) -> list[int]:
    """The numbers of the changes that trials are killed before, drawn from all that `work` makes."""
    made = changes_of(work)
    return sorted(random.Random(SEED).sample(range(1, made + 1), min(KILLS, made)))


def test_a_build(family: Family, tmp_path: Path) -> None:
    def build(root: Path) -> None:
        assert family.build(root, workers=1, deep=0).report.clean

    whole = tmp_path / "whole/retain"
    build(whole)

    def begun(name: str) -> Path:
        root = tmp_path / name / "retain"
        root.mkdir(parents=True)
        (root / ".notes").write_text("of another tool")
        return root

    counted = begun("counted")
    for at in drawn(lambda: build(counted)):
        root = begun(f"killed_{at}")
        assert killed_before(at, lambda root=root: build(root))
        if (root / "manifest.json").exists():
            assert content(root) == content(whole)
        build(root)
        assert (root / ".notes").read_text() == "of another tool"
        assert (content(root), files(root)) == (content(whole), files(whole))
        assert {path.name for path in root.iterdir()} == {*(path.name for path in whole.iterdir()), ".notes"}


def test_tasks_for_each_shard(family: Family, tmp_path: Path) -> None:
    whole = tmp_path / "whole/retain"
    tasks(family, whole, tmp_path / "run")
    for at in drawn(lambda: tasks(family, tmp_path / "counted/retain", tmp_path / "counted/run")):
        folder = tmp_path / f"killed_{at}"
        root = folder / "retain"
        assert killed_before(at, lambda root=root, folder=folder: tasks(family, root, folder / "run"))
        assert not (root / manifest.MANIFEST_NAME).exists()
        tasks(family, root, folder / "run")
        made, wanted = (manifest.read_any(each).content.as_dict() for each in (root, whole))
        assert (made, files(root)) == (wanted, files(whole))


@pytest.mark.nightly
def test_a_build_that_leaves_out_longer_documents(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch)
    family = model_chat(workshop, tmp_path)

    def build(root: Path) -> None:
        assert family.build(root, workers=1, deep=0, longest=200).report.clean

    build(tmp_path / "whole")
    left_out = content(tmp_path / "whole")["totals"]["rejected"]["too_long"]
    assert 0 < left_out < MODEL_ROWS
    for at in drawn(lambda: build(tmp_path / "counted")):
        root = tmp_path / f"killed_{at}"
        assert killed_before(at, lambda root=root: build(root))
        build(root)
        assert (content(root), files(root)) == (content(tmp_path / "whole"), files(tmp_path / "whole"))
        assert sum(name.startswith("rejects/") for name in files(root)) > 0
