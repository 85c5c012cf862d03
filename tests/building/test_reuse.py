"""A source that grew: shards of an earlier dataset are taken where they are made of the same.

The bytes are those of a build from nothing.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanloom.building.make import BuildResult
from spanloom.building.recipe import Recipe
from spanloom.building.shards import making
from spanloom.conversations.source.caps import RowCaps
from spanloom.dataset import manifest
from spanloom.dataset.manifest import ManifestError
from spanloom.errors import ArtifactError, DuplicateIdError
from spanloom.families.harmony.build import BuildOptions as HarmonyOptions
from spanloom.families.harmony.build import build as build_harmony
from spanloom.families.models.build import BuildOptions as ModelOptions
from spanloom.families.models.build import build as build_model
from spanloom.families.models.documents.rules import ModelRules
from spanloom.provenance import GIT_SHA_VARIABLE
from support import sources
from support.chat_models import write_model
from support.model_datasets import record, stored, write_conversations
from support.text_families import files

Build = Callable[..., BuildResult]


def synth(folder: Path) -> tuple[list[Any], Callable[[Path, list[Any]], Path], Build]:
    def build(source: Path, out: Path, **options: Any) -> BuildResult:
        shards = len(list(source.glob("*.parquet")))
        return build_harmony(
            HarmonyOptions(
                source=source, out=out, shards=shards, valid_fraction=0.3, workers=1, reader="independent", **options
            )
        )

    shards = [sources.rows(count, f"s{number}") for number, count in enumerate((9, 6, 5, 4))]
    return shards, sources.write_source, build


def model_chat(folder: Path) -> tuple[list[Any], Callable[[Path, list[Any]], Path], Build]:
    model = write_model(folder / "model")

    def build(source: Path, out: Path, **options: Any) -> BuildResult:
        rules = ModelRules(valid_fraction=0.3)
        return build_model(
            ModelOptions(source=source, model=model, out=out, rules=rules, workers=1, reader="independent", **options)
        )

    rows = [stored(record(seed)) for seed in range(40)]
    return [rows[:12], rows[12:20], rows[20:31], rows[31:]], write_conversations, build


@pytest.fixture(autouse=True)
def _known_sha(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GIT_SHA_VARIABLE, "0" * 40)


@pytest.fixture(params=[synth, model_chat], ids=lambda family: family.__name__)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[Any], Callable[..., Path], Build]:
    made: tuple[list[Any], Callable[..., Path], Build] = request.param(tmp_path)
    return made


@pytest.fixture
def made_shards(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The numbers of the shards that are made."""
    numbers: set[int] = set()
    write = making.write_record

    def counted(recipe: Recipe, shards: int, job: making.ShardJob, *rest: Any) -> dict[str, Any]:
        numbers.add(job.shard.index)
        return write(recipe, shards, job, *rest)

    monkeypatch.setattr("spanloom.building.shards.files.write_record", counted)
    return numbers


def test_a_source_that_grew_gives_the_bytes_of_a_build_from_nothing(
    family: tuple[list[Any], Callable[..., Path], Build], tmp_path: Path, made_shards: set[int]
) -> None:
    shards, write, build = family
    grown = write(tmp_path / "grown", shards)
    whole = build(grown, tmp_path / "whole")
    build(write(tmp_path / "few", shards[:2]), tmp_path / "earlier")
    made_shards.clear()
    result = build(grown, tmp_path / "root", reuse=tmp_path / "earlier")
    assert made_shards == {2, 3}
    assert result.report.clean, result.report.findings
    assert result.manifest.content.as_dict() == whole.manifest.content.as_dict()
    assert files(result.root) == files(whole.root)
    made_shards.clear()
    build(grown, tmp_path / "once more", reuse=tmp_path / "root")
    assert made_shards == set(), "what was taken can be taken again"


def test_a_shard_of_other_rows_or_options_is_made(
    family: tuple[list[Any], Callable[..., Path], Build], tmp_path: Path, made_shards: set[int]
) -> None:
    shards, write, build = family
    build(write(tmp_path / "few", shards[:2]), tmp_path / "earlier")
    changed = write(tmp_path / "changed", [shards[0], shards[2], shards[1]])
    made_shards.clear()
    build(changed, tmp_path / "root", reuse=tmp_path / "earlier")
    assert made_shards == {1, 2}
    made_shards.clear()
    build(changed, tmp_path / "other", reuse=tmp_path / "earlier", max_rejects="1", overwrite=True)
    assert made_shards == {1, 2}, "what may be refused does not matter"


def test_an_id_of_a_taken_shard_that_comes_again_is_found(tmp_path: Path) -> None:
    shards, write, build = synth(tmp_path)
    build(write(tmp_path / "few", shards[:2]), tmp_path / "earlier")
    twice = write(tmp_path / "twice", [*shards[:2], [*shards[2], shards[0][3]]])
    with pytest.raises(DuplicateIdError, match="'s0-3'\n  where: shard 00, row 3 and shard 02, row 5"):
        build(twice, tmp_path / "root", reuse=tmp_path / "earlier")


def test_a_damaged_earlier_dataset_is_refused_and_stays(tmp_path: Path) -> None:
    shards, write, build = synth(tmp_path)
    earlier = build(write(tmp_path / "few", shards[:2]), tmp_path / "earlier").root
    path = earlier / "train/shard_01_tokens.bin"
    path.write_bytes(b"x" * path.stat().st_size)
    grown = write(tmp_path / "grown", shards)
    with pytest.raises(ArtifactError, match="the earlier dataset is damaged: sha256") as refused:
        build(grown, tmp_path / "root", reuse=earlier)
    assert refused.value.where == str(path)
    assert build(grown, tmp_path / "root").report.clean
    with pytest.raises(ManifestError, match="no such folder"):
        build(grown, tmp_path / "third", reuse=tmp_path / "nothing")


def test_a_dataset_of_other_code_gives_no_shard(
    tmp_path: Path, made_shards: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shards, write, build = synth(tmp_path)
    earlier = build(write(tmp_path / "few", shards[:2]), tmp_path / "earlier").root
    path = earlier / "manifest.json"
    path.write_text(path.read_text().replace("0" * 40, "1" * 40))
    made_shards.clear()
    build(write(tmp_path / "grown", shards[:3]), tmp_path / "root", reuse=earlier)
    assert made_shards == {0, 1, 2}
    assert manifest.read(earlier).content.git_sha == "1" * 40
    shutil.rmtree(earlier)


def test_a_capped_run_takes_only_shards_with_the_same_rows(tmp_path: Path, made_shards: set[int]) -> None:
    shards, write, build = model_chat(tmp_path)
    source = write(tmp_path / "source", shards)
    earlier = build(source, tmp_path / "earlier", caps=RowCaps(max_rows_per_shard=9)).root
    made_shards.clear()
    build(source, tmp_path / "root", caps=RowCaps(max_rows_per_shard=9, max_rows=1000), reuse=earlier)
    assert made_shards == {0, 1, 2, 3}, "the caps are in the config of the model's build"
