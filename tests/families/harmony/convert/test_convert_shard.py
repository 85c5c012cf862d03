"""Shards converted one by one are those of `convert-synth --assignment contiguous`, and so is their manifest."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.errors import ArtifactError, ConflictError, SpanloomError, StorageError
from spanloom.families.harmony.convert import assemble_source, convert_shard
from spanloom.families.harmony.convert.raw_files import RawFooter, Run, runs_of_shard
from spanloom.families.harmony.convert.synth import Conversion, convert_synth
from spanloom.families.harmony.sample import sample_rows
from spanloom.report.progress import Mode, Progress
from spanloom.storage.publishing import publish_folder
from spanloom.storage.staging import stage_folder
from support.object_stores import Contents, Place
from support.raw_synth import tree, write_raw
from support.stores.proxy import Proxy, without_condition


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample in three files of several row groups each, one of them in a folder, and a file without rows."""
    folder = tmp_path_factory.mktemp("raw")
    rows = sample_rows()
    write_raw(folder / "a.parquet", rows[:100], row_group_size=40)
    write_raw(folder / "b/c.parquet", rows[100:130], row_group_size=13)
    pq.write_table(pq.read_table(folder / "a.parquet").slice(0, 0), folder / "d.parquet")
    write_raw(folder / "e.parquet", rows[130:], row_group_size=64)
    return folder


def conversion(shards: int) -> Conversion:
    return Conversion(shards=shards, assignment="contiguous", dataset="sample", license="CC0", with_seed_text=True)


def convert(raw: object, out: object, work: object, shards: int, numbers: list[int]) -> list[str]:
    """Converts these shards; returns the places of their inventories."""
    places = [f"{work}/{shard}.json" for shard in numbers]
    for shard, inventory in zip(numbers, places, strict=True):
        convert_shard.run(
            raw=str(raw),
            shard=shard,
            out=str(out),
            inventory=inventory,
            conversion=conversion(shards),
            progress=Progress(mode=Mode.SILENT),
        )
    return places


def whole(raw: Path, out: Path, shards: int) -> dict[str, str]:
    convert_synth(raw=raw, out=out, conversion=conversion(shards))
    return tree(out)


@pytest.mark.parametrize("shards", [1, 4, 7])
def test_shards_one_by_one_and_joined_are_the_conversion_in_one_process(tmp_path: Path, raw: Path, shards: int) -> None:
    backwards = list(reversed(range(shards)))
    inventories = convert(raw, tmp_path / "out", tmp_path / "work", shards, backwards)
    convert(raw, tmp_path / "out", tmp_path / "work", shards, [0])  # one of them twice: a retry
    assemble_source.run(inventories=inventories[::-1], out=str(tmp_path / "out"))
    assert tree(tmp_path / "out") == whole(raw, tmp_path / "whole", shards)
    assemble_source.run(inventories=inventories[::-1], out=str(tmp_path / "out"))  # and of the join


def test_a_bucket_gives_the_same_and_only_objects_with_rows_of_the_shard_are_staged(
    tmp_path: Path, raw: Path, ordinary_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ordinary_place.uri
    publish_folder(raw, at / "raw", last="e.parquet")
    monkeypatch.setenv("SPANLOOM_SCRATCH", str(tmp_path / "scratch"))
    for name, value in ordinary_place.environment.items():
        monkeypatch.setenv(name, value)
    staged: list[str] = []
    original = convert_shard.RawPlace.files

    def watched(self, wanted):
        files = original(self, wanted)
        staged.extend(sorted(file.name for file in files.values()))
        on_disk = {path.name for path in (tmp_path / "scratch").rglob("*.parquet")}
        assert on_disk == {Path(file.name).name for file in files.values()}
        return files

    monkeypatch.setattr(convert_shard.RawPlace, "files", watched)
    inventories = convert(at / "raw", at / "out", at / "work", 4, [0, 1, 2, 3])
    # 240 rows: 60 a shard; a has the rows 0 to 99, b/c 100 to 129, e 130 to 239.
    assert staged == ["a.parquet", "a.parquet", "b/c.parquet", "b/c.parquet", "e.parquet", "e.parquet"]
    assemble_source.run(inventories=inventories, out=str(at / "out"))
    stage_folder(at / "out", tmp_path / "out")
    assert tree(tmp_path / "out") == whole(raw, tmp_path / "whole", 4)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("other", [3, 5])
def test_another_number_of_shards_at_one_place_is_refused_before_anything_is_read(
    tmp_path: Path, raw: Path, seaweedfs_place: Place, other: int, remote: bool
) -> None:
    at = seaweedfs_place.uri / "out" if remote else tmp_path / "out"
    inventories = convert(raw, at, tmp_path / "work", 4, [0, 1, 2, 3])
    assemble_source.run(inventories=inventories, out=str(at))
    with pytest.raises(ConflictError, match=f"a source with another number of shards than {other}"):
        convert(tmp_path / "nowhere", at, tmp_path / "other", other, [0])
    assert not (tmp_path / "other").exists()


def test_of_two_numbers_of_shards_begun_at_one_uri_the_first_has_it(
    tmp_path: Path, raw: Path, seaweedfs_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has a shard there yet: the first was killed while it converted."""

    def killed(**_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(convert_shard, "convert_shard", killed)
        convert(raw, seaweedfs_place.uri, tmp_path / "work", 4, [0])
    with pytest.raises(ConflictError, match="the place of the source belongs to another build"):
        convert(raw, seaweedfs_place.uri, tmp_path / "work", 3, [0])
    convert(raw, seaweedfs_place.uri, tmp_path / "work", 4, [0])


def test_a_store_that_ignores_the_condition_gets_no_shard(
    tmp_path: Path, raw: Path, place: Place, proxy: Proxy, contents: Contents
) -> None:
    proxy.fault = without_condition("send", "finish", "begin")
    with pytest.raises(StorageError, match="it overwrites objects that exist"):
        convert(raw, place.uri, tmp_path / "work", 4, [0])
    assert contents.names(place.uri) == ["claim.json"]


FOOTERS = [
    RawFooter(name="a", bytes=1, version="", group_rows=(4, 4)),
    RawFooter(name="empty", bytes=1, version="", group_rows=(0,)),
    RawFooter(name="b", bytes=1, version="", group_rows=(2,)),
]


def test_rows_are_dealt_out_as_runs_of_row_groups() -> None:
    assert runs_of_shard(FOOTERS, 0, 2) == [Run(file=0, groups=(0, 1), skip=0, rows=5)]
    assert runs_of_shard(FOOTERS, 1, 2) == [
        Run(file=0, groups=(1,), skip=1, rows=3),
        Run(file=2, groups=(0,), skip=0, rows=2),
    ]
    # 10 rows over 3: `row * 3 // 10` is 0 for rows 0 to 3, 1 for 4 to 6, 2 for 7 to 9.
    assert [[run.rows for run in runs_of_shard(FOOTERS, shard, 3)] for shard in range(3)] == [[4], [3], [1, 2]]


@pytest.mark.parametrize(
    ("shard", "shards", "message"),
    [
        (0, 4, "4 shards need as many row groups, and the raw Parquet files have 3"),
        (3, 3, "there is no shard 3 of 3"),
        (-1, 3, "no shard"),
    ],
)
def test_more_shards_than_row_groups_and_a_shard_that_there_is_not_are_refused(
    shard: int, shards: int, message: str
) -> None:
    with pytest.raises(SpanloomError, match=message):
        runs_of_shard(FOOTERS, shard, shards)


def test_nothing_is_written_when_a_shard_is_refused(tmp_path: Path, raw: Path, cli: Cli) -> None:
    arguments = ("--raw", raw, "--out", tmp_path / "out", "--inventory", tmp_path / "inventory", "--quiet")
    done = cli("step", "convert-shard", *arguments, "--shard", 4, "--shards", 4)
    assert done.returncode == 2
    assert "shard 4 of 4" in done.stderr
    done = cli("step", "convert-shard", *arguments, "--shard", 0, "--shards", 60)
    assert done.returncode == 1
    assert "60 shards need as many row groups, and the raw Parquet files have 8" in done.stderr
    assert "row_group_size=ROWS" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_steps_as_commands(tmp_path: Path, raw: Path, cli: Cli) -> None:
    inventory, out = tmp_path / "inventory.json", tmp_path / "out"
    options = ("--dataset", "sample", "--license", "CC0", "--with-seed-text")
    done = cli(
        "step",
        "convert-shard",
        "--raw",
        raw,
        "--shard",
        0,
        "--shards",
        1,
        "--out",
        out,
        "--inventory",
        inventory,
        *options,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(inventory.read_bytes())
    done = cli("step", "assemble-source", "--inventory", inventory, "--out", out)
    assert done.returncode == 0, done.stderr
    assert tree(out) == whole(raw, tmp_path / "whole", 1)


# --- The join refuses ------------------------------------------------------------------------------------------------


def test_inventories_in_another_order_or_of_another_conversion_are_refused(tmp_path: Path, raw: Path) -> None:
    two = convert(raw, tmp_path / "two", tmp_path / "work-2", 2, [0, 1])
    three = convert(raw, tmp_path / "three", tmp_path / "work-3", 3, [0, 1, 2])
    for inventories, message in (
        (two[::-1], "this is the inventory of shard 1, not 0"),
        (two[:1], "there are 1 inventories of 2 shards"),
        ([two[0], three[1]], "of different conversions: conversion is not that of the first"),
    ):
        with pytest.raises(ArtifactError, match=message):
            assemble_source.run(inventories=inventories, out=str(tmp_path / "two"))
    assert not (tmp_path / "two/manifest.json").exists()


def test_shards_that_do_not_stand_as_the_inventories_say_are_refused(tmp_path: Path, raw: Path) -> None:
    out = tmp_path / "out"
    inventories = convert(raw, out, tmp_path / "work", 2, [0, 1])
    extra = out / "synth_harmony_shard_02.parquet"
    extra.write_bytes(b"")
    with pytest.raises(ConflictError, match="a shard of another conversion: synth_harmony_shard_02"):
        assemble_source.run(inventories=inventories, out=str(out))
    extra.unlink()
    shard = out / "synth_harmony_shard_01.parquet"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match=f"has {len(data) - 1} bytes, not {len(data)}"):
        assemble_source.run(inventories=inventories, out=str(out))
    shard.unlink()
    with pytest.raises(ArtifactError, match="there is no synth_harmony_shard_01"):
        assemble_source.run(inventories=inventories, out=str(out))


def test_a_place_that_holds_another_conversion_is_left_alone(tmp_path: Path, raw: Path) -> None:
    convert(raw, tmp_path / "out", tmp_path / "work-2", 2, [0])
    before = tree(tmp_path / "out")
    with pytest.raises(ConflictError, match="refusing to overwrite"):
        convert(raw, tmp_path / "out", tmp_path / "work-3", 3, [0])
    assert tree(tmp_path / "out") == before
