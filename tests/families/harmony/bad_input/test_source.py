"""A fault of the source's folder, manifest or files stops a build."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import SourceError
from support import sources
from support.bad_builds import STRINGS, assert_nothing_looks_finished, build_it, cut_short, sequences, source_of

Break = Callable[[Path], object]


def edited(change: Callable[[dict[str, Any]], object]) -> Break:
    """Breaks the manifest by `change`, which gets it as a dict."""

    def break_it(source: Path) -> None:
        path = source / "manifest.json"
        manifest = json.loads(path.read_bytes())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return break_it


def storage(change: Callable[[dict[str, Any]], object]) -> Break:
    return edited(lambda manifest: change(manifest["storage"]))


def entry(shard: int, change: Callable[[dict[str, Any]], object]) -> Break:
    return storage(lambda section: change(section["shards"][shard]))


def manifest_of(data: bytes) -> Break:
    return lambda source: (source / "manifest.json").write_bytes(data)


def shard_of(shard: int, change: Callable[[bytes], bytes]) -> Break:
    """Other bytes for a shard, and a manifest that fits them."""

    def break_it(source: Path) -> None:
        path = source / sources.shard_name(shard)
        path.write_bytes(change(path.read_bytes()))
        sources.write_manifest(source)

    return break_it


def without(name: str) -> Break:
    return lambda source: (source / name).unlink()


def file_for_folder(source: Path) -> None:
    shutil.rmtree(source)
    source.write_text("not a folder")


def rows_disagree(section: dict[str, Any]) -> None:
    section["shards"][3]["rows"] = 3
    section["total_rows"] = 9


def three_there(source: Path) -> None:
    (source / sources.shard_name(3)).unlink()
    sources.write_manifest(source, 3)


def five_there(source: Path) -> None:
    shutil.copyfile(source / sources.shard_name(0), source / sources.shard_name(4))


def five_listed(source: Path) -> None:
    five_there(source)
    sources.write_manifest(source, 5)


DISAGREE = r"the manifest and the shards do not belong together: fetch or convert them again"
FORMATS = "synth_harmony_v1 or harmony_conversations_v1 or conversations_v1"
NO_FOLDER = ("source", f"give a folder of {FORMATS}")
MANIFEST = r"source/manifest\.json"
NOT_JSON = ("the source manifest is not JSON: .*", MANIFEST, DISAGREE)
NO_LIST = (r"the source manifest has no list storage\.shards", MANIFEST, DISAGREE)
SHARD_0 = "shard 00, .*"
SHARD_1 = r"shard 01, .*source/synth_harmony_shard_01\.parquet"
SHARD_3 = r"shard 03, .*source/synth_harmony_shard_03\.parquet"
UNREADABLE = r"the shard cannot be read: not a Parquet file, or a truncated one: .*"

# What the test is called → how the source is broken; what must be said, where, and with which remedy.
SOURCE_FAULTS: dict[str, tuple[Break, str, str, str]] = {
    "without the folder": (shutil.rmtree, "the source does not exist", *NO_FOLDER),
    "file for folder": (file_for_folder, "the source is not a directory", *NO_FOLDER),
    "without manifest": (
        without("manifest.json"),
        r"the source has no manifest\.json",
        "source",
        ".*`spanloom convert-synth` or `spanloom convert` writes it",
    ),
    "manifest cut short": (lambda source: cut_short(source / "manifest.json"), *NOT_JSON),
    "manifest in latin 1": (manifest_of('{"schema_version": "é"}'.encode("latin-1")), *NOT_JSON),
    "manifest a list": (
        manifest_of(b"[]"),
        f"the source manifest has schema_version None, not {FORMATS}",
        MANIFEST,
        "convert .*",
    ),
    "another schema version": (
        edited(lambda manifest: manifest.update(schema_version="synth_harmony_v2")),
        f"the source manifest has schema_version 'synth_harmony_v2', not {FORMATS}",
        MANIFEST,
        "convert the raw data with `spanloom convert-synth` or `spanloom convert` of this release",
    ),
    "without storage": (edited(lambda manifest: manifest.pop("storage")), *NO_LIST),
    "without shard list": (storage(lambda section: section.pop("shards")), *NO_LIST),
    "shard list a dict": (storage(lambda section: section.update(shards={})), *NO_LIST),
    "entry without sha256": (
        entry(2, lambda shard: shard.pop("sha256")),
        r"storage\.shards\[2\] has no sha256 \(str\)",
        MANIFEST,
        DISAGREE,
    ),
    "entry with rows as text": (
        entry(1, lambda shard: shard.update(rows="2")),
        r"storage\.shards\[1\] has no rows \(int\)",
        MANIFEST,
        DISAGREE,
    ),
    "entry a string": (
        storage(lambda section: section["shards"].__setitem__(0, "shard")),
        r"storage\.shards\[0\] has no path \(str\)",
        MANIFEST,
        DISAGREE,
    ),
    "entries out of order": (
        storage(lambda section: section["shards"].reverse()),
        "the manifest must list synth_harmony_shard_00.parquet … synth_harmony_shard_03.parquet in order, it lists .*",
        MANIFEST,
        DISAGREE,
    ),
    "entry in another folder": (
        entry(0, lambda shard: shard.update(path=f"elsewhere/{sources.shard_name(0)}")),
        ".*elsewhere/synth_harmony_shard_00.parquet.*",
        "source.*",
        DISAGREE,
    ),
    "total too high": (
        storage(lambda section: section.update(total_rows=9)),
        "total_rows is 9, but the shards' rows add up to 8",
        MANIFEST,
        DISAGREE,
    ),
    "rows disagree": (storage(rows_disagree), "the shard holds 2 rows, the manifest says 3", SHARD_3, DISAGREE),
    "bytes too high": (
        entry(1, lambda shard: shard.update(bytes=shard["bytes"] + 1)),
        r"the shard has \d+ bytes, the manifest says \d+: truncated\?",
        SHARD_1,
        DISAGREE,
    ),
    "bytes too low": (
        entry(1, lambda shard: shard.update(bytes=shard["bytes"] - 1)),
        r"the shard has \d+ bytes, the manifest says \d+",
        SHARD_1,
        DISAGREE,
    ),
    "shard lost": (
        without(sources.shard_name(2)),
        r"missing shards: synth_harmony_shard_02\.parquet",
        "source",
        DISAGREE,
    ),
    "three listed": (
        lambda source: sources.write_manifest(source, 3),
        "the manifest lists 3 shards, 4 are expected",
        "source",
        "pass --shards 3 if that is what you mean, or bring the missing shards",
    ),
    "three there": (three_there, "the manifest lists 3 shards, 4 are expected", "source", "pass --shards 3 .*"),
    "five there": (
        five_there,
        r"shards that the manifest does not list: synth_harmony_shard_04\.parquet",
        "source",
        DISAGREE,
    ),
    "five listed": (five_listed, "the manifest lists 5 shards, 4 are expected", "source", "pass --shards 5 .*"),
    "shard cut in half": (shard_of(1, lambda data: data[: len(data) // 2]), UNREADABLE, SHARD_1, DISAGREE),
    "shard cut after the manifest": (
        lambda source: cut_short(source / sources.shard_name(1)),
        r"the shard has \d+ bytes, .*: truncated\?",
        SHARD_1,
        DISAGREE,
    ),
    "shard of text": (shard_of(0, lambda _: b"no Parquet at all"), UNREADABLE, SHARD_0, DISAGREE),
    "shard of nothing": (shard_of(0, lambda _: b""), UNREADABLE, SHARD_0, DISAGREE),
}


@pytest.mark.parametrize(("break_it", "what", "where", "remedy"), SOURCE_FAULTS.values(), ids=SOURCE_FAULTS)
def test_a_fault_of_the_source_stops_before_any_work(
    break_it: Break, what: str, where: str, remedy: str, broken: Path, tmp_path: Path
) -> None:
    break_it(broken)
    with pytest.raises(SourceError, match=rf"^{what}\n  where: (.*/)?{where}\n  remedy: {remedy}$"):
        build_it(broken, tmp_path / "out", shards=4)
    assert not (tmp_path / "out").exists()


def test_five_shards_are_right_when_five_are_asked_for(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", *(sources.rows(1, f"s{shard}") for shard in range(5)))
    result = build_it(source, tmp_path / "out", shards=5)
    assert result.report.clean
    assert sequences(result) == [1, 1, 1, 1, 1]


def test_a_shard_whose_bytes_are_not_those_of_the_manifest_stops_the_build(broken: Path, tmp_path: Path) -> None:
    # Same number of bytes and rows, right columns: only the hash tells.
    path = broken / sources.shard_name(1)
    data = path.read_bytes()
    assert data.count(b"s1-0") > 0
    changed = bytearray(data)
    changed[4] ^= 1  # in the first data page, after the magic bytes
    path.write_bytes(changed)
    said = rf"^the shard has sha256 [0-9a-f]{{64}}, the manifest says [0-9a-f]{{64}}\n  where: {SHARD_1}\n  remedy: "
    with pytest.raises(SourceError, match=said):
        build_it(broken, tmp_path / "out", shards=4)
    assert_nothing_looks_finished(tmp_path / "out")


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip"])
def test_a_data_page_that_cannot_be_decompressed_stops_the_build(compression: str, tmp_path: Path) -> None:
    """The footer is whole and the manifest's hash fits: the fault shows only when the page is read."""
    source = source_of(tmp_path / "source", [])
    path = source / sources.shard_name(0)
    rows = [{name: row[name] for name in STRINGS} for row in sources.rows(400)]
    pq.write_table(pa.Table.from_pylist(rows), path, compression=compression, use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    middle = chunk.data_page_offset + chunk.total_compressed_size // 2
    data = bytearray(path.read_bytes())
    data[middle : middle + 64] = b"\xff" * 64
    path.write_bytes(data)
    sources.write_manifest(source, 1)
    with pytest.raises(
        SourceError,
        match=r"^the shard cannot be read after row 0: .*\n  where: shard 00, .*\n  remedy: the manifest and",
    ):
        build_it(source, tmp_path / "out", max_rejects="100%")
    assert_nothing_looks_finished(tmp_path / "out")
