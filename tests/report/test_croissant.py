"""Croissant metadata: mlcroissant reads them, and records through them; hashes and provenance are the manifest's."""

import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.export.form import export_form
from spanloom.errors import DatasetError
from spanloom.families.harmony import dataset as harmony
from spanloom.report.croissant import wants_croissant
from spanloom.report.export_views import export_views
from spanloom.storage import sha256_file

mlcroissant = pytest.importorskip("mlcroissant")


@pytest.fixture(scope="module", params=["parquet", "trl", "megatron-bridge"])
def exported(request: pytest.FixtureRequest, demo: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    out = tmp_path_factory.mktemp("croissant") / str(request.param)
    packed = ("--sequence-length", 20_000) if request.param == "megatron-bridge" else ()
    done = cli("export", demo, "--to", request.param, *packed, "--out", out, "--croissant", "--tokens-per-file", 20_000)
    assert done.returncode == 0, done.stderr
    return out


def test_mlcroissant_finds_no_fault_and_reads_the_rows(exported: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        dataset = mlcroissant.Dataset(jsonld=exported / "croissant.json")
    assert "@context" not in caplog.text, "the vocabulary is the standard's"
    assert {one.uuid for one in dataset.metadata.record_sets} == {"train", "validation"}
    rows = [row for file in sorted((exported / "valid").iterdir()) for row in pq.read_table(file).to_pylist()]
    found = list(dataset.records("validation"))
    assert len(found) == len(rows) > 1

    def plain(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else list(value)

    named = [{key.removeprefix("validation/"): plain(value) for key, value in row.items()} for row in found]
    assert sorted(map(str, named)) == sorted(map(str, rows))


def test_files_and_provenance_are_those_of_the_manifest(exported: Path, demo: Path) -> None:
    said = json.loads((exported / "croissant.json").read_bytes())
    content = manifest.read(demo).content
    hashes = {one["contentUrl"]: one["sha256"] for one in said["distribution"] if one["@type"] == "cr:FileObject"}
    files = list(exported.rglob("*.parquet"))
    assert hashes == {path.relative_to(exported).as_posix(): sha256_file(path) for path in files}
    sources = {one["prov:label"]: one["sc:sha256"] for one in said["prov:wasDerivedFrom"]}
    assert sources == {
        "manifest.json": content.input.manifest_sha256,
        **{Path(file.path).name: file.sha256 for file in content.input.shards},
    }
    activity = said["prov:wasGeneratedBy"]
    assert activity["prov:wasAssociatedWith"]["sc:softwareVersion"] == content.git_sha
    assert f"content sha256 {content.sha256}" in activity["sc:identifier"]
    assert said["license"] == "CC0-1.0"
    assert f"{content.totals.rows_read} rows read" in said["rai:dataCollection"]
    assert "http://mlcommons.org/croissant/1.1" in said["conformsTo"]
    assert "@base" not in said["@context"]
    assert str(exported) not in (exported / "croissant.json").read_text()


def test_without_mlcroissant_the_card_stands_alone_unless_it_is_asked_for(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = manifest.read(demo).content
    form = export_form("parquet", content)
    assert list(export_views(demo, content, harmony, form)) == ["README.md", "croissant.json"]
    assert list(export_views(demo, content, harmony, form, croissant=False)) == ["README.md"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert list(export_views(demo, content, harmony, form)) == ["README.md"]
    with pytest.raises(DatasetError, match=r"need mlcroissant(?s:.*)spanloom\[croissant\]"):
        wants_croissant(True)
