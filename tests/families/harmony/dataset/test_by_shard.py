"""Validation by shard: the reports of all shards, joined, are the report of one process, whatever the damage."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spanloom.dataset import manifest
from spanloom.errors import SpanloomError
from spanloom.families.harmony import dataset as harmony
from spanloom.findings import Report
from spanloom.report.summary import findings_text
from spanloom.steps import assemble_validation, validate_shard
from support.damaged_datasets import Damage, change_rows, validate_dataset
from support.nightly import nightly


def by_shard(root: Path, source: Path, work: Path, deep: int) -> tuple[list[Report], Report]:
    """What the tasks of the shards find, each of which sees its own files alone, and what is made of their reports."""
    reports, written = [], []
    content = manifest.read_any(root).content
    for shard in (0, 1):
        own_root, own_source = work / f"root_{shard}", work / f"source_{shard}"
        for path in root.rglob("*"):
            if path.is_file() and (f"shard_{shard:02d}" in path.name or path.parent == root):
                (own_root / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, own_root / path.relative_to(root))
        own_source.mkdir()
        for name in (f"synth_harmony_shard_{shard:02d}.parquet", "manifest.json"):
            shutil.copy(source / name, own_source / name)
        places = {name: str(work / f"{shard}.{name}") for name in ("report", "digests")}
        given = {"root": str(own_root), "shard": shard, "source": str(own_source), "deep": deep}
        reports.append(validate_shard.run(**given, **places, family_of=lambda _: harmony))
        written.append(places)
    joined = assemble_validation.run(
        root=str(root),
        source=str(source),
        shard_reports=[places["report"] for places in written],
        shard_digests=[places["digests"] for places in written],
        family_of=lambda _: harmony,
        report=str(work / "joined.json"),
    )
    assert content == manifest.read_any(root).content
    return reports, joined


def eod_inside(root: Path) -> None:
    for shard, split in ((0, "train"), (1, "train"), (1, "valid")):
        for sequence in range(3):
            Damage(root, split, shard).set("tokens", sequence, 4, 199999)


def many_eods(root: Path) -> None:
    """More findings than are kept, in both shards."""
    for shard in (0, 1):
        damage = Damage(root, "train", shard)
        for sequence in range(15):
            damage.set("tokens", sequence, 4, 199999)
            damage.set("tokens", sequence, 5, 199999)
        damage.seal()


def id_of_another_shard(root: Path, split: str) -> None:
    """The id of a document of shard 1, train, is that of one in shard 0."""
    other = pq.read_table(root / split / "shard_00_rows.parquet")["synth_id"][0].as_py()
    damage = Damage(root)
    change_rows(damage.path("rows.parquet"), "synth_id", 4, other)
    damage.seal()


def other_files(root: Path) -> None:
    (root / "train/shard_01_span.idx").unlink()
    (root / "train/notes.txt").write_text("x")
    (root / "valid/dangling").symlink_to("nowhere")
    (root / "valid/sub").mkdir()
    (root / "valid/sub/shard_00_tokens.bin").write_text("x")


def lost_row(root: Path) -> None:
    damage = Damage(root)
    change_rows(damage.path("rows.parquet"), "row", 2, 1007)
    damage.seal()


def no_table(root: Path) -> None:
    damage = Damage(root)
    damage.path("rows.parquet").write_bytes(b"no table at all")
    damage.seal()


def changed_content(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        path = root / manifest.MANIFEST_NAME
        written = json.loads(path.read_bytes())
        change(written["content"])
        path.write_text(json.dumps(written))

    return damage


DAMAGES = {
    "clean": lambda root: None,  # noqa: ARG005
    "tokens": eod_inside,
    "many findings": many_eods,
    "an id in both splits": partial(id_of_another_shard, split="valid"),
    "an id in two shards": partial(id_of_another_shard, split="train"),
    "files": other_files,
    "a lost row": lost_row,
    "no table": no_table,
    "sums": changed_content(lambda content: content["totals"]["splits"]["train"].update(tokens=1)),
    "repeated rows": changed_content(lambda content: content["split"].update(repeated_rows=7)),
    "shape": changed_content(lambda content: content["span_names"].reverse()),
    "another source": changed_content(lambda content: content["input"].update(manifest_sha256="0" * 64)),
}


IN_EVERY_RUN = ("clean", "many findings", "an id in both splits", "files", "a lost row")


@pytest.mark.parametrize("damage", [*IN_EVERY_RUN, *(nightly(name) for name in DAMAGES if name not in IN_EVERY_RUN)])
def test_the_joined_report_of_the_shards_is_that_of_one_process(
    root: Path, source: Path, tmp_path: Path, damage: str, asset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", str(asset))
    DAMAGES[damage](root)
    whole = validate_dataset(root, source=source, deep=10)
    of_shards, joined = by_shard(root, source, tmp_path, deep=10)
    told = json.dumps(joined.as_dict()).replace(str(tmp_path / "source_0"), str(source))
    assert json.loads(told) == whole.as_dict()
    assert joined.errors == whole.errors
    if damage == "clean":
        assert whole.duplicate_documents == 4
        assert "; 4 documents have the tokens of an earlier one" in str(findings_text(whole))
    if damage == "no table":
        assert whole.duplicate_documents is None, "not every document was read"
    assert json.loads((tmp_path / "joined.json").read_bytes())["found"] == whole.found
    if damage in ("a lost row", "no table", "an id in both splits"):
        assert [report.clean for report in of_shards] == [True, False], "the task of the shard says it, and no other"


def test_reports_of_shards_are_joined_only_where_they_are_of_this_dataset(
    root: Path, source: Path, tmp_path: Path, asset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", str(asset))
    (root / manifest.MANIFEST_NAME).rename(root / manifest.PENDING_NAME)
    by_shard(root, source, tmp_path, deep=0)
    assert manifest.read(root).content.family == "synth_kd", "promoted"

    def join(reports: list[str], digests: list[str]) -> Report:
        places = {"root": str(root), "source": str(source), "family_of": lambda _: harmony}
        return assemble_validation.run(
            shard_reports=[str(tmp_path / name) for name in reports],
            shard_digests=[str(tmp_path / name) for name in digests],
            **places,
        )

    both = ["0.digests", "1.digests"]
    assert join(["0.report", "1.report"], both).clean
    with pytest.raises(SpanloomError, match="1 reports of shards are given, but 2 files of digests"):
        join(["0.report"], both)
    with pytest.raises(SpanloomError, match="1 reports are given, the dataset has 2 shards"):
        join(["0.report"], both[:1])
    with pytest.raises(SpanloomError, match="not the report of shard 0 of this dataset: shard is 1, not 0"):
        join(["1.report", "0.report"], both)
    with pytest.raises(SpanloomError, match="these digests are not those of the report"):
        join(["0.report", "1.report"], both[::-1])
    changed_content(lambda content: content.update(git_sha="1" * 40))(root)
    with pytest.raises(SpanloomError, match="not the report of shard 0 of this dataset: content_sha256"):
        join(["0.report", "1.report"], both)
