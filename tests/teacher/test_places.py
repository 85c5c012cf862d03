"""Datasets and signals in buckets: what is there is what a local run writes; another machine goes on with a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spanloom
from spanloom.api.scoring import carried, checked, scored, size_of
from spanloom.report.progress import Progress
from spanloom.storage.publishing import publish_folder
from spanloom.storage.staging import list_objects
from spanloom.storage.uri import Uri
from spanloom.teacher import places, score
from spanloom.teacher.sources.options import ScoringOptions, TeacherOptions
from support.nightly import nightly
from support.object_stores import Place
from support.teachers import write_scored_dataset

QUIET = Progress.given(False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A dataset, its teacher, signals of a local run."""
    folder = tmp_path_factory.mktemp("places")
    root, model = write_scored_dataset(folder, conversations=30)
    scored(str(root), str(folder / "signals"), ScoringOptions(model=model, top_k=3), QUIET)
    return root, model, folder / "signals"


def names(uri: Uri) -> list[str]:
    return [str(each.uri).removeprefix(f"{uri}/") for each in list_objects(uri)]


@pytest.mark.parametrize("place", ["s3", nightly("gs")], indirect=True)
def test_signals_in_a_bucket(place: Place, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, model, local = made
    publish_folder(root, place.uri / "root", last="manifest.json")
    options = ScoringOptions(model=model, top_k=3)
    dataset, out = f"{place.uri}/root", f"{place.uri}/signals"
    assert size_of(dataset, options) == size_of(str(root), options)
    content, there = scored(dataset, out, options, QUIET)
    assert not there
    wanted = {path.relative_to(local).as_posix() for path in local.rglob("*") if path.is_file()}
    assert {*names(place.uri / "signals")} == wanted
    assert content.model_dump() == json.loads((local / "teacher.json").read_text())["content"]
    assert scored(dataset, out, options, QUIET)[1], "it is there already"
    assert checked(out, dataset, TeacherOptions(model=model), 2, "independent", QUIET).clean
    shown = spanloom.inspect(dataset, "train/0/1", teacher=out)
    assert shown == spanloom.inspect(root, "train/0/1", teacher=local)
    assert any(token.score is not None for token in shown[0].tokens)
    again, environment, _ = carried(out, None, dataset, f"{place.uri}/carried", TeacherOptions(), True, QUIET)
    assert again == content
    assert environment["root"] == dataset
    assert environment["carried"]["labels"] == sum(split.positions for split in content.splits.values())


@pytest.mark.parametrize("place", ["s3", nightly("gs")], indirect=True)
def test_another_machine_goes_on(
    place: Place, made: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first machine is lost, with its scratch folder, after two parts; the second scores the others alone."""
    root, model, local = made
    options = ScoringOptions(model=model, top_k=3)
    out = f"{place.uri}/signals"
    monkeypatch.setattr(score, "PART_TOKENS", 1500)
    whole, _ = scored(str(root), str(tmp_path / "whole"), options, QUIET)
    uploaded: list[str] = []
    scored_parts: list[str] = []
    publish, write = places.publish_file, score.write_part

    def lost(path: Path, uri: Uri, **more: Any) -> None:
        if len(uploaded) == 4:
            raise KeyboardInterrupt
        uploaded.append(path.name)
        publish(path, uri, **more)

    def counted(write: Callable[..., str]) -> Callable[..., str]:
        def write_part(path: Path, arrays: Any) -> str:
            scored_parts.append(path.name)
            return write(path, arrays)

        return write_part

    monkeypatch.setattr(places, "publish_file", lost)
    with pytest.raises(KeyboardInterrupt):
        scored(str(root), out, options, QUIET, tmp_path / "first")
    assert uploaded == ["000001.npz", score.RECORD_NAME, "000002.npz", score.RECORD_NAME]
    assert "teacher.json" not in names(place.uri / "signals")
    monkeypatch.setattr(places, "publish_file", publish)
    monkeypatch.setattr(score, "write_part", counted(write))
    scored(str(root), out, options, QUIET, tmp_path / "second")
    assert scored_parts[0] == "000003.npz"
    assert len(scored_parts) > 1
    there = names(place.uri / "signals")
    assert {*there} == {path.relative_to(local).as_posix() for path in local.rglob("*") if path.is_file()}
    content, _ = scored(str(root), out, options, QUIET, tmp_path / "third")
    assert content == whole
