"""Bad input: each fault is said so that a person can act on it, and nothing is left that looks finished.

Faults of options, tokenizer and source stop a build before any work; faults of rows stop it or are set aside.
"""

import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rich.console

import sources
from spanloom.build import DEFAULT_CAPPED_ROOT, DEFAULT_ROOT, BuildOptions, BuildResult, build
from spanloom.errors import (
    ConflictError,
    DuplicateIdError,
    RejectedRowError,
    SourceError,
    SpanloomError,
    StorageError,
    TokenizerError,
)
from spanloom.harmony.caps import Caps
from spanloom.report.progress import Mode, Progress
from spanloom.steps.render_shard import render_shard
from spanloom.steps.validate_alignment import validate_dataset
from spanloom.workers import Pool, process_pool

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Cell = str | bytes | None
EXIT_FAILURE = 1
STRINGS = ("messages_json", "metadata_json", "synth_id", "language", "exercise")


def build_it(
    source: Path, out: Path, *, shards: int = 1, progress: Progress | None = None, **options: Any
) -> BuildResult:
    """A build as small as it gets: one worker, half of the ids valid, nothing rendered again."""
    return build(
        BuildOptions(
            **{
                "source": source,
                "out": out,
                "shards": shards,
                "workers": 1,
                "deep": 0,
                "valid_fraction": 0.5,
                **options,
            }
        ),
        progress,
    )


def source_of(directory: Path, *shards: Sequence[sources.Row]) -> Path:
    return sources.write_source(directory, shards)


def files_of(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def assert_nothing_looks_finished(root: Path) -> None:
    assert not (root / "manifest.json").exists()
    assert not (root / "manifest.pending.json").exists()
    for index in root.rglob("*.idx"):
        assert index.with_suffix(".bin").is_file()
    for folder in ("train", "valid", "rejects"):
        assert [path for path in (root / folder).rglob("*") if ".spanloom-tmp-" in path.name] == []


def sequences(result: BuildResult) -> list[int]:
    """Documents of each shard, both splits together."""
    return [
        sum(split["sequences"] for split in shard["splits"].values()) for shard in result.manifest["content"]["shards"]
    ]


def stored_rows(root: Path, shard: int) -> dict[int, str]:
    """Source row → synth_id of every document of a shard, as its rows.parquet files say."""
    found: dict[int, str] = {}
    for path in root.glob(f"*/shard_{shard:02d}_rows.parquet"):
        table = pq.read_table(path, columns=["row", "synth_id"])
        found |= dict(zip(table.column("row").to_pylist(), table.column("synth_id").to_pylist(), strict=True))
    return dict(sorted(found.items()))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right source: 4 shards of 2 rows."""
    return source_of(tmp_path_factory.mktemp("good") / "source", *(sources.rows(2, f"s{shard}") for shard in range(4)))


@pytest.fixture
def broken(good: Path, tmp_path: Path) -> Path:
    """A copy of the right source, to be broken."""
    return Path(shutil.copytree(good, tmp_path / "source"))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with process_pool(1) as opened:
        yield opened


# --- Tokenizer -------------------------------------------------------------------------------------------------------


def lost(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def one_byte_changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1_000_000] ^= 1
    path.write_bytes(data)


TOKENIZER_FAULTS = [
    pytest.param(lost, r"the tokenizer asset o200k_base\.tiktoken is not there", id="missing"),
    pytest.param(cut_short, r"the tokenizer asset has 3613822 bytes, not 3613922: truncated", id="truncated"),
    pytest.param(
        one_byte_changed,
        r"the tokenizer asset has sha256 [0-9a-f]{64}, not 446a9538[0-9a-f]{56}: it was changed",
        id="one byte changed",
    ),
]


@pytest.mark.parametrize(("break_it", "message"), TOKENIZER_FAULTS)
def test_a_wrong_tokenizer_asset_stops_before_any_work(
    break_it: Callable[[Path], None], message: str, asset: Path, good: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copyfile(asset, tmp_path / "o200k_base.tiktoken"))
    break_it(copy)
    said = rf"^{message}(.|\n)*where: {re.escape(str(copy))}\n  remedy: run `spanloom fetch-tokenizer`"
    with pytest.raises(TokenizerError, match=said):
        build_it(good, tmp_path / "out", shards=4, tokenizer=copy)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("variable", ["O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE"])
def test_an_environment_variable_that_names_no_asset_is_no_reason_to_look_elsewhere(
    variable: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("O200K_HARMONY_VOCAB_PATH")
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    with pytest.raises(TokenizerError, match=r"is not there\n  where: .*/nowhere"):
        build_it(good, tmp_path / "out", shards=4)
    assert not (tmp_path / "out").exists()


# --- Source: folder, manifest, files ---------------------------------------------------------------------------------


def edited_manifest(source: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = source / "manifest.json"
    manifest = json.loads(path.read_bytes())
    change(manifest)
    path.write_text(json.dumps(manifest))


def without_the_folder(source: Path) -> None:
    shutil.rmtree(source)


def file_for_folder(source: Path) -> None:
    shutil.rmtree(source)
    source.write_text("not a folder")


def without_manifest(source: Path) -> None:
    (source / "manifest.json").unlink()


def manifest_cut_short(source: Path) -> None:
    cut_short(source / "manifest.json")


def manifest_in_latin_1(source: Path) -> None:
    (source / "manifest.json").write_bytes('{"schema_version": "é"}'.encode("latin-1"))


def manifest_a_list(source: Path) -> None:
    (source / "manifest.json").write_text("[]")


def another_schema_version(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest.update(schema_version="synth_harmony_v2"))


def without_storage(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest.pop("storage"))


def without_shard_list(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"].pop("shards"))


def shard_list_a_dict(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"].update(shards={}))


def entry_without_sha256(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"]["shards"][2].pop("sha256"))


def entry_with_rows_as_text(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"]["shards"][1].update(rows="2"))


def entry_a_string(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"]["shards"].__setitem__(0, "shard"))


def entries_out_of_order(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"]["shards"].reverse())


def entry_in_another_folder(source: Path) -> None:
    edited_manifest(
        source, lambda manifest: manifest["storage"]["shards"][0].update(path=f"elsewhere/{sources.shard_name(0)}")
    )


def total_too_high(source: Path) -> None:
    edited_manifest(source, lambda manifest: manifest["storage"].update(total_rows=9))


def rows_disagree(source: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["storage"]["shards"][3]["rows"] = 3
        manifest["storage"]["total_rows"] = 9

    edited_manifest(source, change)


def bytes_too_high(source: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["storage"]["shards"][1]["bytes"] += 1

    edited_manifest(source, change)


def bytes_too_low(source: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["storage"]["shards"][1]["bytes"] -= 1

    edited_manifest(source, change)


def shard_lost(source: Path) -> None:
    (source / sources.shard_name(2)).unlink()


def three_listed(source: Path) -> None:
    sources.write_manifest(source, 3)


def three_there(source: Path) -> None:
    (source / sources.shard_name(3)).unlink()
    sources.write_manifest(source, 3)


def five_there(source: Path) -> None:
    shutil.copyfile(source / sources.shard_name(0), source / sources.shard_name(4))


def five_listed(source: Path) -> None:
    five_there(source)
    sources.write_manifest(source, 5)


def shard_cut_in_half(source: Path) -> None:
    path = source / sources.shard_name(1)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    sources.write_manifest(source)


def shard_cut_after_the_manifest(source: Path) -> None:
    cut_short(source / sources.shard_name(1))


def shard_of_text(source: Path) -> None:
    (source / sources.shard_name(0)).write_text("no Parquet at all")
    sources.write_manifest(source)


def shard_of_nothing(source: Path) -> None:
    (source / sources.shard_name(0)).write_bytes(b"")
    sources.write_manifest(source)


DISAGREE = r"the manifest and the shards are not of one making: fetch or convert them again"
MANIFEST = r"source/manifest\.json"
SHARD_1 = r"shard 01, .*source/synth_harmony_shard_01\.parquet"

SOURCE_FAULTS = [
    (without_the_folder, "the source is not a directory", "source", "give a synth_harmony_v1 folder"),
    (file_for_folder, "the source is not a directory", "source", "give a synth_harmony_v1 folder"),
    (without_manifest, r"the source has no manifest\.json", "source", ".*`spanloom convert-synth` writes it"),
    (manifest_cut_short, "the source manifest is not JSON: .*", MANIFEST, DISAGREE),
    (manifest_in_latin_1, "the source manifest is not JSON: .*", MANIFEST, DISAGREE),
    (manifest_a_list, "the source manifest has schema_version None, not 'synth_harmony_v1'", MANIFEST, "convert .*"),
    (
        another_schema_version,
        "the source manifest has schema_version 'synth_harmony_v2', not 'synth_harmony_v1'",
        MANIFEST,
        "convert the raw data with `spanloom convert-synth` of this release",
    ),
    (without_storage, r"the source manifest has no list storage\.shards", MANIFEST, DISAGREE),
    (without_shard_list, r"the source manifest has no list storage\.shards", MANIFEST, DISAGREE),
    (shard_list_a_dict, r"the source manifest has no list storage\.shards", MANIFEST, DISAGREE),
    (entry_without_sha256, r"storage\.shards\[2\] has no sha256 \(str\)", MANIFEST, DISAGREE),
    (entry_with_rows_as_text, r"storage\.shards\[1\] has no rows \(int\)", MANIFEST, DISAGREE),
    (entry_a_string, r"storage\.shards\[0\] has no path \(str\)", MANIFEST, DISAGREE),
    (
        entries_out_of_order,
        "the manifest must list synth_harmony_shard_00.parquet … synth_harmony_shard_03.parquet in order, it lists .*",
        MANIFEST,
        DISAGREE,
    ),
    (entry_in_another_folder, ".*elsewhere/synth_harmony_shard_00.parquet.*", "source.*", DISAGREE),
    (total_too_high, "total_rows is 9, but the shards' rows add up to 8", MANIFEST, DISAGREE),
    (
        rows_disagree,
        "the shard holds 2 rows, the manifest says 3",
        r"shard 03, .*source/synth_harmony_shard_03\.parquet",
        DISAGREE,
    ),
    (bytes_too_high, r"the shard has \d+ bytes, the manifest says \d+: truncated\?", SHARD_1, DISAGREE),
    (bytes_too_low, r"the shard has \d+ bytes, the manifest says \d+", SHARD_1, DISAGREE),
    (shard_lost, r"missing shards: synth_harmony_shard_02\.parquet", "source", DISAGREE),
    (
        three_listed,
        "the manifest lists 3 shards, 4 are expected",
        "source",
        "pass --shards 3 if that is what you mean, or bring the missing shards",
    ),
    (three_there, "the manifest lists 3 shards, 4 are expected", "source", "pass --shards 3 .*"),
    (five_there, r"shards that the manifest does not list: synth_harmony_shard_04\.parquet", "source", DISAGREE),
    (five_listed, "the manifest lists 5 shards, 4 are expected", "source", "pass --shards 5 .*"),
    (shard_cut_in_half, r"the shard is not a readable Parquet file \(truncated\?\): .*", SHARD_1, DISAGREE),
    (shard_cut_after_the_manifest, r"the shard has \d+ bytes, .*: truncated\?", SHARD_1, DISAGREE),
    (shard_of_text, r"the shard is not a readable Parquet file \(truncated\?\): .*", "shard 00, .*", DISAGREE),
    (shard_of_nothing, r"the shard is not a readable Parquet file \(truncated\?\): .*", "shard 00, .*", DISAGREE),
]


@pytest.mark.parametrize(
    ("break_it", "what", "where", "remedy"),
    [pytest.param(*fault, id=fault[0].__name__.replace("_", " ")) for fault in SOURCE_FAULTS],
)
def test_a_fault_of_the_source_stops_before_any_work(
    break_it: Callable[[Path], None], what: str, where: str, remedy: str, broken: Path, tmp_path: Path
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


# --- Source: columns -------------------------------------------------------------------------------------------------


def rewritten(source: Path, shard: int, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes one shard anew with other columns, and a manifest that fits."""
    path = source / sources.shard_name(shard)
    pq.write_table(change(pq.read_table(path)), path)
    sources.write_manifest(source)


def of_type(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


COLUMN_FAULTS = [
    pytest.param(lambda t: t.drop_columns(["messages_json"]), "the column messages_json is missing", id="no messages"),
    pytest.param(
        of_type("messages_json", pa.array([1, 2])),
        "the column messages_json is int64, not string or large_string",
        id="messages int64",
    ),
    pytest.param(
        of_type("messages_json", pa.array([b"{}", b"{}"])),
        "the column messages_json is binary, not string or large_string",
        id="messages binary",
    ),
    pytest.param(
        of_type("synth_id", pa.array([1, 2])),
        "the column synth_id is int64, not string or large_string",
        id="synth_id int64",
    ),
    pytest.param(
        of_type("metadata_json", pa.array([{"synth_id": "s2-0"}, {"synth_id": "s2-1"}])),
        r"the column metadata_json is struct<synth_id: string>, not string or large_string",
        id="metadata struct",
    ),
    pytest.param(
        lambda t: t.drop_columns(["synth_id", "metadata_json"]),
        "neither synth_id nor metadata_json is a column",
        id="no id",
    ),
]


@pytest.mark.parametrize(("change", "what"), COLUMN_FAULTS)
def test_a_fault_of_a_column_stops_before_any_work_whatever_may_be_rejected(
    change: Callable[[pa.Table], pa.Table], what: str, broken: Path, tmp_path: Path
) -> None:
    rewritten(broken, 2, change)
    where = r"shard 02, .*source/synth_harmony_shard_02\.parquet"
    remedy = r"the columns of synth_harmony_v1 are described in docs/format\.md"
    with pytest.raises(SourceError, match=rf"^{what}\n  where: {where}\n  remedy: {remedy}$"):
        build_it(broken, tmp_path / "out", shards=4, max_rejects="100%")
    assert not (tmp_path / "out").exists()


def test_shards_may_differ_in_their_columns_as_far_as_the_contract_goes(broken: Path, tmp_path: Path) -> None:
    def with_extra_columns(table: pa.Table) -> pa.Table:
        nested = pa.array([{"a": 1, "b": [1.5], "c": "x"}, None])
        return table.add_column(0, "nested", nested).append_column("score", pa.array([b"\xff", None]))

    rewritten(broken, 0, lambda t: t.cast(pa.schema([(name, pa.large_string()) for name in t.column_names])))
    rewritten(broken, 1, lambda t: t.select(["messages_json", "metadata_json"]))
    rewritten(broken, 2, with_extra_columns)
    rewritten(broken, 3, lambda t: t.select(["synth_id", "messages_json"]))
    result = build_it(broken, tmp_path / "out", shards=4, deep=8)
    assert result.report.clean, result.report.findings
    assert [stored_rows(tmp_path / "out", shard) for shard in range(4)] == [
        {0: f"s{shard}-0", 1: f"s{shard}-1"} for shard in range(4)
    ]


# --- Rows ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRow:
    """`columns` replaces columns of a right row with the id `bad`; the reject must say the other three."""

    columns: dict[str, Cell]
    reason: str
    detail: str
    synth_id: str | None = "bad"

    def row(self, synth_id: str = "bad") -> sources.Row:
        """The row, with the id that stands for `bad` in all its columns."""
        columns = {
            name: cell.replace('"bad"', f'"{synth_id}"') if isinstance(cell, str) else cell
            for name, cell in self.columns.items()
        }
        return {**sources.row(synth_id), **columns}


def messages(*of: object) -> dict[str, Cell]:
    return {"messages_json": json.dumps({"messages": list(of)})}


USER = {"role": "user", "content": "Why?"}
FINAL = {"role": "assistant", "channel": "final", "content": "So."}
SAID = '{"role": "assistant", "channel": "final", "content": "So."}'
TOOL = '{"name": "f", "description": "d", "parameters": {"type": "object", "type": "string"}}'
DEVELOPER = (
    '{"role": "developer", "content": [{"type": "developer_content", '
    '"tools": {"functions": {"name": "functions", "tools": [' + TOOL + "]}}}]}"
)
NEITHER = r"synth_id is neither in its column nor in metadata_json"
NO_LIST = r'messages_json must be an object with a list under "messages"'
NOT_UTF8 = "a column of this row is not UTF-8"
FROM_WRAPPER = r"\w+Error: .+"


def assistant(**fields: object) -> dict[str, Cell]:
    return messages(USER, {"role": "assistant", **fields})


BAD_ROWS: dict[str, BadRow] = {
    # ids
    "id in no place": BadRow(
        columns={"synth_id": None, "metadata_json": '{"language": "en"}'},
        reason="synth_id_missing",
        detail=NEITHER,
        synth_id=None,
    ),
    "id null, metadata null": BadRow(
        columns={"synth_id": None, "metadata_json": None}, reason="synth_id_missing", detail=NEITHER, synth_id=None
    ),
    "id null in both": BadRow(
        columns={"synth_id": None, "metadata_json": '{"synth_id": null}'},
        reason="synth_id_missing",
        detail=NEITHER,
        synth_id=None,
    ),
    "id empty": BadRow(
        columns={"synth_id": "", "metadata_json": None},
        reason="synth_id_missing",
        detail="synth_id is empty",
        synth_id="",
    ),
    "id empty in metadata": BadRow(
        columns={"synth_id": None, "metadata_json": '{"synth_id": ""}'},
        reason="synth_id_missing",
        detail="synth_id is empty",
        synth_id=None,
    ),
    "id of another row": BadRow(
        columns={"metadata_json": '{"synth_id": "other"}'},
        reason="synth_id_mismatch",
        detail=r"column synth_id is 'bad\S*', metadata_json says 'other'",
    ),
    "id empty here, not there": BadRow(
        columns={"synth_id": "", "metadata_json": '{"synth_id": "other"}'},
        reason="synth_id_mismatch",
        detail="column synth_id is '', metadata_json says 'other'",
        synth_id="",
    ),
    "id a number": BadRow(
        columns={"synth_id": None, "metadata_json": '{"synth_id": 7}'},
        reason="synth_id_not_string",
        detail="synth_id in metadata_json is a number, not a string",
        synth_id=None,
    ),
    "id a list": BadRow(
        columns={"metadata_json": '{"synth_id": ["bad"]}'},
        reason="synth_id_not_string",
        detail="synth_id in metadata_json is a list, not a string",
    ),
    "id with a lone surrogate": BadRow(
        columns={"synth_id": None, "metadata_json": r'{"synth_id": "a\ud800"}'},
        reason="not_utf8",
        detail=r"synth_id 'a\\ud800' holds a lone surrogate",
        synth_id=None,
    ),
    "metadata not JSON": BadRow(
        columns={"metadata_json": "{'synth_id': 1}"},
        reason="metadata_json_invalid",
        detail="metadata_json is not JSON: .+",
    ),
    "metadata a list": BadRow(
        columns={"metadata_json": "[]"},
        reason="metadata_json_invalid",
        detail="metadata_json is a list, not an object",
    ),
    "metadata says the id twice": BadRow(
        columns={"metadata_json": '{"synth_id": "other", "synth_id": "bad"}'},
        reason="duplicate_key",
        detail="metadata_json holds the key 'synth_id' twice in one object",
    ),
    # JSON
    "messages null": BadRow(
        columns={"messages_json": None}, reason="messages_json_missing", detail="messages_json is null"
    ),
    "messages empty text": BadRow(
        columns={"messages_json": ""}, reason="messages_json_invalid", detail="messages_json is not JSON: .+"
    ),
    "messages cut short": BadRow(
        columns={"messages_json": '{"messages": [' + SAID},
        reason="messages_json_invalid",
        detail="messages_json is not JSON: .+",
    ),
    "messages with NaN": BadRow(
        columns={"messages_json": '{"messages": [' + SAID + '], "score": NaN}'},
        reason="messages_json_invalid",
        detail="messages_json is not JSON: NaN is not JSON",
    ),
    "messages nested without end": BadRow(
        columns={"messages_json": '{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}"},
        reason="messages_json_invalid",
        detail="messages_json is not JSON: .+",
    ),
    "key twice at the top": BadRow(
        columns={"messages_json": '{"messages": [], "messages": [' + SAID + "]}"},
        reason="duplicate_key",
        detail="messages_json holds the key 'messages' twice in one object",
    ),
    "key twice in a message": BadRow(
        columns={"messages_json": '{"messages": [{"role": "user", ' + SAID[1:] + "]}"},
        reason="duplicate_key",
        detail="messages_json holds the key 'role' twice in one object",
    ),
    "key twice in tool parameters": BadRow(
        columns={"messages_json": '{"messages": [' + DEVELOPER + ", " + SAID + "]}"},
        reason="duplicate_key",
        detail="messages_json holds the key 'type' twice in one object",
    ),
    # structure
    "a list at the top": BadRow(columns={"messages_json": "[" + SAID + "]"}, reason="no_messages_list", detail=NO_LIST),
    "no messages": BadRow(columns={"messages_json": "{}"}, reason="no_messages_list", detail=NO_LIST),
    "messages an object": BadRow(
        columns={"messages_json": '{"messages": ' + SAID + "}"}, reason="no_messages_list", detail=NO_LIST
    ),
    "messages an empty list": BadRow(columns=messages(), reason="no_messages", detail="the list of messages is empty"),
    "message a string": BadRow(
        columns=messages(USER, "So."), reason="message_not_object", detail="message 1 is a string, not an object"
    ),
    "no assistant": BadRow(columns=messages(USER), reason="no_assistant", detail="no message is from the assistant.*"),
    "role tool": BadRow(
        columns=messages(USER, {"role": "tool", "content": "42"}, FINAL),
        reason="role_unknown",
        detail="message 1 has role 'tool', not one of system, developer, user, assistant",
    ),
    "role missing": BadRow(
        columns=messages({"content": "Why?"}, FINAL), reason="role_unknown", detail="message 0 has role None, .+"
    ),
    "role a list": BadRow(
        columns=messages({"role": ["user"], "content": "Why?"}, FINAL),
        reason="role_unknown",
        detail=r"message 0 has role \['user'\], .+",
    ),
    "channel commentary": BadRow(
        columns=messages(USER, {**FINAL, "channel": "commentary"}, FINAL),
        reason="channel_unknown",
        detail=r"message 1 \(assistant\) has channel 'commentary', not analysis or final",
    ),
    "channel missing": BadRow(
        columns=assistant(content="So."),
        reason="channel_unknown",
        detail=r"message 1 \(assistant\) has channel None, not analysis or final",
    ),
    "channel null": BadRow(
        columns=assistant(channel=None, content="So."),
        reason="channel_unknown",
        detail=r"message 1 \(assistant\) has channel None, not analysis or final",
    ),
    # content
    "content of unknown type": BadRow(
        columns=assistant(channel="final", content=[{"type": "image", "url": "x"}]),
        reason="renderer_refused",
        detail=FROM_WRAPPER,
    ),
    "content missing": BadRow(columns=assistant(channel="final"), reason="renderer_refused", detail=FROM_WRAPPER),
    "content null": BadRow(
        columns=assistant(channel="final", content=None), reason="renderer_refused", detail=FROM_WRAPPER
    ),
    "content with a lone surrogate": BadRow(
        columns=assistant(channel="final", content="a\ud800"), reason="renderer_refused", detail=FROM_WRAPPER
    ),
    "a megabyte of spaces": BadRow(
        columns=assistant(channel="final", content=" " * 1_000_000),
        reason="renderer_refused",
        detail="openai-harmony panicked: .+",
    ),
    # bytes
    "messages not UTF-8": BadRow(
        columns={"messages_json": b'{"messages": ["\xff"]}'}, reason="not_utf8", detail=NOT_UTF8
    ),
    "id not UTF-8": BadRow(
        columns={"synth_id": b"bad\xff", "metadata_json": None}, reason="not_utf8", detail=NOT_UTF8, synth_id=None
    ),
    "metadata not UTF-8": BadRow(
        columns={"metadata_json": b'{"synth_id": "\xed\xa0\x80"}'}, reason="not_utf8", detail=NOT_UTF8
    ),
}

FINE_ROWS: dict[str, dict[str, Cell]] = {
    "id only in metadata": {"synth_id": None},
    "id only in its column": {"metadata_json": None},
    "metadata without the id": {"metadata_json": '{"language": "en"}'},
    "metadata with a null id": {"metadata_json": '{"synth_id": null}'},
    "no metadata columns": {"language": None, "exercise": None},
    "assistant alone": messages(FINAL),
    "assistant in the middle": messages(USER, FINAL, USER),
    "analysis alone": messages(USER, {**FINAL, "channel": "analysis"}),
    "more beside messages": {"messages_json": '{"messages": [' + SAID + '], "note": null}'},
    "empty content": messages(USER, {**FINAL, "content": ""}),
    "special tokens as text": messages(USER, {**FINAL, "content": "<|start|>assistant<|message|>x<|end|><|return|>"}),
}


def as_unchecked_strings(binary: pa.Array) -> pa.StringArray:
    """The same bytes under the type string: neither Arrow nor Parquet looks whether they are UTF-8."""
    nulls, offsets, data = binary.buffers()
    return pa.StringArray.from_buffers(len(binary), offsets, data, nulls)


def write_cells(directory: Path, *shards: Sequence[sources.Row]) -> Path:
    """Like `sources.write_source`, but a cell may also be bytes that are no UTF-8."""
    directory.mkdir(parents=True, exist_ok=True)
    for index, rows in enumerate(shards):
        columns = {}
        for name in STRINGS:
            cells = [cell.encode() if isinstance(cell := row[name], str) else cell for row in rows]
            columns[name] = as_unchecked_strings(pa.array(cells, pa.binary()))
        pq.write_table(pa.table(columns), directory / sources.shard_name(index))
    sources.write_manifest(directory, len(shards))
    return directory


@pytest.mark.parametrize("name", BAD_ROWS)
def test_the_first_bad_row_stops_the_step_and_is_named(name: str, pool: Pool, tmp_path: Path) -> None:
    bad = BAD_ROWS[name]
    source = write_cells(tmp_path / "source", [*sources.rows(3), bad.row(), sources.row("last")])
    folders = {"rendered": tmp_path / "rendered", "ids": tmp_path / "ids"}
    where = re.escape(f"shard 00, row 3, synth_id {bad.synth_id!r}")
    remedy = r"mend the row, or let the build set bad rows aside with --max-rejects N \(or 0\.1%\)"
    with pytest.raises(RejectedRowError, match=rf"^{bad.reason}: {bad.detail}\n  where: {where}\n  remedy: {remedy}$"):
        render_shard(source=source, shard=0, shards=1, **folders, pool=pool)
    assert [list(folder.iterdir()) for folder in folders.values()] == [[], []]


@pytest.mark.parametrize("name", ["messages not UTF-8", "a megabyte of spaces"])
def test_a_bad_row_stops_the_build_until_it_may_be_set_aside(name: str, tmp_path: Path) -> None:
    bad = BAD_ROWS[name]
    source = write_cells(tmp_path / "source", sources.rows(2, "fine"), [*sources.rows(2), bad.row()])
    where = re.escape(f"shard 01, row 2, synth_id {bad.synth_id!r}")
    with pytest.raises(
        RejectedRowError, match=rf"^{bad.reason}: {bad.detail}\n  where: {where}\n  remedy: mend the row"
    ):
        build_it(source, tmp_path / "out", shards=2)
    assert_nothing_looks_finished(tmp_path / "out")
    assert not (tmp_path / "out/train").exists()

    result = build_it(source, tmp_path / "out", shards=2, max_rejects="1")  # the remedy, into the same root
    assert result.report.clean, result.report.findings
    assert sequences(result) == [2, 2]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shard 0 alternates right rows (even) and every bad row (odd); shard 1 holds every odd but right row."""
    zero: list[sources.Row] = []
    for number, bad in enumerate(BAD_ROWS.values()):
        zero += (sources.row(f"good-{number}"), bad.row(f"bad-{number}"))
    one = [{**sources.row(f"fine-{number}"), **columns} for number, columns in enumerate(FINE_ROWS.values())]
    return write_cells(tmp_path_factory.mktemp("mixed") / "source", zero, one)


def test_bad_rows_that_are_allowed_are_set_aside_one_by_one_and_all_right_rows_stay(
    mixed: Path, tmp_path: Path
) -> None:
    result = build_it(mixed, tmp_path / "out", shards=2, max_rejects="100", deep=32)
    assert result.report.clean, result.report.findings
    lines = (tmp_path / "out/rejects/shard_00.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert [(line["shard"], line["row"], line["synth_id"], line["reason"]) for line in rejects] == [
        (0, 2 * number + 1, f"bad-{number}" if bad.synth_id == "bad" else bad.synth_id, bad.reason)
        for number, bad in enumerate(BAD_ROWS.values())
    ]
    for line, bad in zip(rejects, BAD_ROWS.values(), strict=True):
        assert re.fullmatch(bad.detail, line["detail"])
    assert not (tmp_path / "out/rejects/shard_01.jsonl").exists()

    totals = sources.content(tmp_path / "out")["totals"]
    assert totals["rejected"] == Counter(bad.reason for bad in BAD_ROWS.values())
    assert totals["rejected"] == {
        "synth_id_missing": 5,
        "synth_id_mismatch": 2,
        "synth_id_not_string": 2,
        "metadata_json_invalid": 2,
        "messages_json_missing": 1,
        "messages_json_invalid": 4,
        "duplicate_key": 4,
        "not_utf8": 4,
        "no_messages_list": 3,
        "no_messages": 1,
        "no_assistant": 1,
        "message_not_object": 1,
        "role_unknown": 3,
        "channel_unknown": 3,
        "renderer_refused": 5,
    }
    assert totals["rows_read"] == 2 * len(BAD_ROWS) + len(FINE_ROWS)
    assert stored_rows(tmp_path / "out", 0) == {2 * number: f"good-{number}" for number in range(len(BAD_ROWS))}
    assert stored_rows(tmp_path / "out", 1) == {number: f"fine-{number}" for number in range(len(FINE_ROWS))}


def test_one_bad_row_more_than_allowed_stops_the_build(mixed: Path, tmp_path: Path) -> None:
    allowed = len(BAD_ROWS) - 1
    where = f"shard 00, row {2 * allowed + 1}, synth_id 'bad-{allowed}'"
    said = rf"^not_utf8: .* \(more than {allowed} rows rejected\)\n  where: {where}\n  remedy: "
    with pytest.raises(RejectedRowError, match=said):
        build_it(mixed, tmp_path / "out", shards=2, max_rejects=str(allowed))
    assert_nothing_looks_finished(tmp_path / "out")
    assert not (tmp_path / "out/rejects").exists()


def test_a_percentage_of_rejects_is_of_the_rows_of_the_shard(pool: Pool, tmp_path: Path) -> None:
    bad = BAD_ROWS["role tool"]

    def rendered(bad_rows: int) -> dict[str, Any]:
        rows = [*(bad.row(f"bad-{number}") for number in range(bad_rows)), *sources.rows(20 - bad_rows)]
        here = tmp_path / str(bad_rows)
        source = write_cells(here / "source", rows)
        folders = {"rendered": here / "rendered", "ids": here / "ids"}
        return render_shard(source=source, shard=0, shards=1, **folders, pool=pool, max_rejects="10%")

    assert rendered(2)["rejected"] == {"role_unknown": 2}
    with pytest.raises(RejectedRowError, match=r"\(more than 2 rows rejected\)\n  where: shard 00, row 2, "):
        rendered(3)


@pytest.mark.parametrize("limit", ["x", "", "%", "-1", "-1%", "101%", "0.5", "1%%", "NaN", "Infinity"])
def test_a_limit_of_rejects_that_is_no_number_or_share_is_refused_before_any_work(
    limit: str, good: Path, tmp_path: Path
) -> None:
    said = rf"^--max-rejects takes a whole number of rows per shard or a percentage such as 0\.1%, not '{limit}'$"
    with pytest.raises(SpanloomError, match=said):
        build_it(good, tmp_path / "out", shards=4, max_rejects=limit)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_duplicate": "drop"}, "on_duplicate must be one of error, keep, not 'drop'"),
        ({"valid_fraction": 1.5}, r"valid_fraction must lie in \[0, 1\], got 1\.5\n  remedy: give --valid-fraction"),
        ({"valid_fraction": float("nan")}, r"valid_fraction must lie in \[0, 1\], got nan"),
        ({"renderer": "mine"}, "there is no renderer 'mine'\n  remedy: use one of: fast, harmony"),
        ({"workers": 0}, "--workers must be at least 1, not 0"),
        ({"shards": 0}, "--shards must be at least 1, not 0"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_before_any_work(
    options: dict[str, Any], message: str, good: Path, tmp_path: Path
) -> None:
    with pytest.raises(SpanloomError, match=message):
        build_it(good, tmp_path / "out", **{"shards": 4, **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cap", ["max_rows", "max_rows_per_shard", "max_tokens"])
def test_a_cap_below_zero_is_refused_before_any_work(cap: str, good: Path, tmp_path: Path) -> None:
    with pytest.raises(SpanloomError, match=rf"{cap.replace('_', '.')}\b.*-1"):
        build_it(good, tmp_path / "out", shards=4, caps=Caps(**{cap: -1}))
    assert not (tmp_path / "out").exists()


# --- Duplicates ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`id-1` stands in row 1 of shard 0 and in row 2 of shard 1, which is its only copy."""
    shards = (sources.rows(3), [*sources.rows(2, "other"), sources.row("id-1")])
    return source_of(tmp_path_factory.mktemp("copies") / "source", *shards)


REMEDY_FOR_COPIES = "remedy: mend the source, or accept and count copies with --on-duplicate keep"


def test_an_id_that_stands_twice_in_a_shard_stops_the_build_until_copies_are_kept(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", [*sources.rows(3), sources.row("id-1")])
    where = "shard 00, row 1 and shard 00, row 3"
    with pytest.raises(
        DuplicateIdError, match=f"^synth_id 'id-1' stands twice\n  where: {where}\n  {REMEDY_FOR_COPIES}$"
    ):
        build_it(source, tmp_path / "out")
    assert_nothing_looks_finished(tmp_path / "out")
    assert not (tmp_path / "out/train").exists()

    result = build_it(source, tmp_path / "out", on_duplicate="keep")  # the remedy, into the same root
    assert result.report.clean, result.report.findings
    assert sequences(result) == [4]


def test_an_id_that_stands_in_two_shards_stops_the_build(with_copies: Path, tmp_path: Path) -> None:
    where = "shard 00, row 1 and shard 01, row 2"
    with pytest.raises(
        DuplicateIdError, match=f"^synth_id 'id-1' stands twice\n  where: {where}\n  {REMEDY_FOR_COPIES}$"
    ):
        build_it(with_copies, tmp_path / "out", shards=2)
    assert_nothing_looks_finished(tmp_path / "out")


def test_copies_that_are_kept_are_counted_and_stand_in_one_split(with_copies: Path, tmp_path: Path) -> None:
    said = io.StringIO()
    result = build_it(with_copies, tmp_path / "out", shards=2, on_duplicate="keep", progress=lines_to(said))
    assert result.report.clean, result.report.findings
    assert sources.content(tmp_path / "out")["split"]["repeated_rows"] == 1
    assert "warning: 1 rows repeat an id that an earlier row has; all were kept" in said.getvalue()
    holding = [
        path.parent.name
        for path in sorted((tmp_path / "out").glob("*/*_rows.parquet"))
        if "id-1" in pq.read_table(path).column("synth_id").to_pylist()
    ]
    assert len(holding) == 2
    assert len(set(holding)) == 1


# --- Empty shards and splits -----------------------------------------------------------------------------------------


def lines_to(stream: io.StringIO) -> Progress:
    return Progress(console=rich.console.Console(file=stream, width=500), mode=Mode.LINES)


def test_a_shard_without_rows_is_legal_and_warned_about(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", sources.rows(3), [])
    said = io.StringIO()
    result = build_it(source, tmp_path / "out", shards=2, progress=lines_to(said))
    assert result.report.clean, result.report.findings
    assert sequences(result) == [3, 0]
    assert list((tmp_path / "out").glob("*/shard_01_*")) == []
    path = source / sources.shard_name(1)
    assert f"warning: shard 01, {path} has 0 rows; it will have no files\n" in said.getvalue()
    assert "warning: shard 00" not in said.getvalue()


def test_a_source_without_any_row_gives_a_dataset_without_files(tmp_path: Path) -> None:
    result = build_it(source_of(tmp_path / "source", [], []), tmp_path / "out", shards=2, deep=4)
    assert result.report.clean, result.report.findings
    assert sequences(result) == [0, 0]
    assert sorted(files_of(tmp_path / "out")) == ["manifest.json", "report.json"]


@pytest.mark.parametrize(("fraction", "empty", "full"), [(0.0, "valid", "train"), (1.0, "train", "valid")])
def test_a_split_that_gets_no_row_has_no_files(
    fraction: float, empty: str, full: str, small: Path, tmp_path: Path
) -> None:
    result = build_it(small, tmp_path / "out", valid_fraction=fraction)
    assert result.report.clean, result.report.findings
    splits = sources.content(tmp_path / "out")["totals"]["splits"]
    assert (splits[empty]["sequences"], splits[empty]["tokens"], splits[full]["sequences"]) == (0, 0, 4)
    assert list((tmp_path / "out").glob(f"{empty}/*")) == []
    assert len(list((tmp_path / "out").glob(f"{full}/*"))) == 7


def test_a_shard_may_have_no_row_in_a_split_where_another_has(tmp_path: Path) -> None:
    # With half of the ids valid, id-0 falls into train and id-1 into valid.
    source = source_of(tmp_path / "source", [sources.row("id-0")], [sources.row("id-1")])
    result = build_it(source, tmp_path / "out", shards=2)
    assert result.report.clean, result.report.findings
    shards = sources.content(tmp_path / "out")["shards"]
    counts = [[shard["splits"][split]["sequences"] for split in ("train", "valid")] for shard in shards]
    assert sorted(counts) == [[0, 1], [1, 0]]
    assert len(list((tmp_path / "out").glob("*/shard_*.idx"))) == 2 * 3


# --- What stands at the output root ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(tmp_path_factory.mktemp("small") / "source", sources.rows(4))


@pytest.fixture(scope="module")
def built(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built") / "dataset"
    assert build_it(small, root).report.clean
    return root


@pytest.fixture
def standing(built: Path, tmp_path: Path) -> Path:
    """A finished dataset of its own for each test."""
    return Path(shutil.copytree(built, tmp_path / "dataset"))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return source_of(tmp_path / "other", sources.rows(2, "other"))


@pytest.mark.parametrize("changes", [{"source": "other"}, {"valid_fraction": 0.25}, {"caps": Caps(max_rows=3)}])
def test_another_dataset_at_the_root_is_never_overwritten_unasked(
    changes: dict[str, Any], standing: Path, small: Path, other: Path
) -> None:
    before = files_of(standing)
    source = other if changes.get("source") else small
    where = f"where: {re.escape(str(standing))}"
    remedy = "remedy: give another --out, or replace it with --overwrite"
    why = "it was built with other options or from another source"
    said = f"^the output root already holds another dataset: {why}\n  {where}\n  {remedy}$"
    with pytest.raises(ConflictError, match=said):
        build_it(source, standing, **{key: value for key, value in changes.items() if key != "source"})
    assert files_of(standing) == before


def test_overwrite_replaces_the_dataset_and_removes_the_old_one(standing: Path, other: Path) -> None:
    result = build_it(other, standing, overwrite=True)
    assert result.report.clean
    assert stored_rows(standing, 0) == {0: "other-0", 1: "other-1"}
    assert not standing.with_name("dataset.replaced").exists()
    assert not (standing / ".work").exists()


def test_an_overwrite_that_fails_keeps_the_old_dataset_until_a_good_one_stands(
    standing: Path, other: Path, tmp_path: Path
) -> None:
    before = files_of(standing)
    bad = source_of(tmp_path / "bad", [sources.row("a"), BAD_ROWS["role tool"].row()])
    with pytest.raises(RejectedRowError, match=r"^role_unknown: "):
        build_it(bad, standing, overwrite=True)
    kept = standing.with_name("dataset.replaced")
    assert_nothing_looks_finished(standing)
    assert files_of(kept) == before
    assert validate_dataset(kept).clean

    result = build_it(other, standing, overwrite=True, resume=False)
    assert result.report.clean
    assert stored_rows(standing, 0) == {0: "other-0", 1: "other-1"}
    assert not kept.exists()


def test_a_dataset_that_was_set_aside_is_not_lost_to_a_second_overwrite(standing: Path, other: Path) -> None:
    kept = Path(shutil.copytree(standing, standing.with_name("dataset.replaced")))
    before = files_of(standing)
    with pytest.raises(
        ConflictError,
        match=rf"^a dataset that an earlier --overwrite set aside is still there\n  where: {re.escape(str(kept))}\n"
        r"  remedy: move it back to dataset, or remove it$",
    ):
        build_it(other, standing, overwrite=True)
    assert files_of(standing) == before
    assert files_of(kept) == before


def test_the_same_build_again_validates_what_stands_and_touches_no_file(standing: Path, small: Path) -> None:
    def stamps() -> dict[str, tuple[int, int]]:
        paths = [path for path in standing.rglob("*") if path.is_file() and path.name != "report.json"]
        return {path.name + path.parent.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in paths}

    before = stamps()
    result = build_it(small, standing)
    assert result.already_built
    assert result.report.clean
    assert result.report.as_dict()["checked"]["documents"] == 4
    assert stamps() == before
    assert len(before) == 1 + 2 * 7


def test_a_foreign_file_under_a_final_name_is_a_conflict_and_stays(good: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "out/train/shard_00_tokens.bin"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    said = (
        r"^refusing to overwrite a file that holds other bytes \(there: sha256 [0-9a-f]{64}; new: [0-9a-f]{64}\)"
        rf"\n  where: {re.escape(str(foreign))}\n  remedy: build into another --out, or remove that dataset first$"
    )
    with pytest.raises(ConflictError, match=said):
        build_it(good, tmp_path / "out", shards=4, workers=2)  # the other worker is ended in the middle of a shard
    assert foreign.read_bytes() == b"mine"
    assert_nothing_looks_finished(tmp_path / "out")


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


# --- Caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caps", [Caps(max_rows=1), Caps(max_rows_per_shard=1), Caps(max_tokens=1), Caps(max_rows=0)])
def test_a_capped_run_refuses_the_canonical_root(
    caps: Caps, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert BuildOptions(caps=caps).root == DEFAULT_CAPPED_ROOT == Path("data/megatron/synth_kd_v1_smoke")
    assert BuildOptions().root == DEFAULT_ROOT == Path("data/megatron/synth_kd_v1")
    for out in (DEFAULT_ROOT, tmp_path / "data/../data/megatron/synth_kd_v1"):
        with pytest.raises(
            ConflictError,
            match=r"^a capped run must not write the canonical dataset\n  where: .*data/megatron/synth_kd_v1\n"
            r"  remedy: leave --out away \(it then is data/megatron/synth_kd_v1_smoke\), or give another$",
        ):
            build_it(good, out, shards=4, caps=caps)
    assert list(tmp_path.iterdir()) == []


SHORT_TOKENS = 23
"""Tokens of a document with the words of `sources.conversation()`, its EOD among them."""


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 shards of 5 documents, each of `SHORT_TOKENS` tokens."""
    shards = [[sources.row(f"s{shard}-{row}", sources.conversation()) for row in range(5)] for shard in range(4)]
    return source_of(tmp_path_factory.mktemp("even") / "source", *shards)


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        pytest.param(Caps(max_rows=10), [3, 3, 2, 2], id="10 rows"),
        pytest.param(Caps(max_rows=100, max_rows_per_shard=2), [2, 2, 2, 2], id="2 rows a shard"),
        # 4 x 46 tokens less one: the last shard gets 45, one too few for its second document.
        pytest.param(Caps(max_tokens=4 * 2 * SHORT_TOKENS - 1), [2, 2, 2, 1], id="183 tokens"),
    ],
)
def test_caps_are_divided_over_the_shards_exactly(caps: Caps, expected: list[int], even: Path, tmp_path: Path) -> None:
    result = build_it(even, tmp_path / "out", shards=4, caps=caps)
    assert result.report.clean, result.report.findings
    assert sequences(result) == expected
    content = sources.content(tmp_path / "out")
    assert sum(split["tokens"] for split in content["totals"]["splits"].values()) == SHORT_TOKENS * sum(expected)
    assert [list(stored_rows(tmp_path / "out", shard)) for shard in range(4)] == [
        list(range(count)) for count in expected
    ]


def test_the_row_that_would_cross_the_token_cap_is_left_out_and_all_after_it_too(tmp_path: Path) -> None:
    short, long = sources.conversation(), sources.conversation(final="word " * 100)
    first = [sources.row("a-0", short), sources.row("a-1", long), sources.row("a-2", short)]
    source = source_of(tmp_path / "source", first, [sources.row(f"b-{row}", short) for row in range(3)])
    # 47 tokens for shard 0 and 46 for shard 1: after a-0, a-2 alone would still fit, yet a-1 ended the shard.
    result = build_it(source, tmp_path / "out", shards=2, caps=Caps(max_tokens=4 * SHORT_TOKENS + 1))
    assert result.report.clean, result.report.findings
    assert stored_rows(tmp_path / "out", 0) == {0: "a-0"}
    assert stored_rows(tmp_path / "out", 1) == {0: "b-0", 1: "b-1"}
    assert [shard["rows_read"] for shard in result.manifest["content"]["shards"]] == [1, 2]


# --- Through the command ---------------------------------------------------------------------------------------------


def assert_said(done: "subprocess.CompletedProcess[str]", message: str) -> None:
    assert done.returncode == EXIT_FAILURE
    assert re.match(f"error: {message}", done.stderr), done.stderr
    assert "  where: " in done.stderr
    assert "  remedy: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def run_build(cli: Cli, source: Path, out: Path, *options: object, **environment: str) -> Any:
    return cli(
        *("build", "--source", source, "--out", out, "--workers", 1, "--deep", 0, "--quiet"), *options, **environment
    )


def test_the_command_says_that_the_tokenizer_is_wrong(cli: Cli, good: Path, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    done = run_build(cli, good, tmp_path / "out", O200K_HARMONY_VOCAB_PATH=nowhere)
    assert_said(done, r"the tokenizer asset o200k_base\.tiktoken is not there\n  where: .*/nowhere\n")
    assert not (tmp_path / "out").exists()


def test_the_command_says_that_the_source_is_wrong(cli: Cli, broken: Path, tmp_path: Path) -> None:
    three_there(broken)
    done = run_build(cli, broken, tmp_path / "out")
    assert_said(done, "the manifest lists 3 shards, 4 are expected\n")
    assert not (tmp_path / "out").exists()


def test_the_command_says_which_row_is_bad(cli: Cli, tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", [sources.row("a"), BAD_ROWS["role tool"].row()])
    done = run_build(cli, source, tmp_path / "out", "--shards", 1)
    assert_said(done, r"role_unknown: message 1 has role 'tool'.*\n  where: shard 00, row 1, synth_id 'bad'\n")
    assert_nothing_looks_finished(tmp_path / "out")


def test_the_command_says_which_id_stands_twice(cli: Cli, with_copies: Path, tmp_path: Path) -> None:
    done = run_build(cli, with_copies, tmp_path / "out", "--shards", 2)
    assert_said(done, r"synth_id 'id-1' stands twice\n  where: shard 00, row 1 and shard 01, row 2\n")
    assert_nothing_looks_finished(tmp_path / "out")


def test_a_damaged_dataset_is_said_to_be_damaged(standing: Path, small: Path) -> None:
    tokens = standing / "train/shard_00_tokens.bin"
    tokens.write_bytes(b"\0" * tokens.stat().st_size)
    with pytest.raises(ConflictError, match=r"it is this one, but damaged: .*file train/shard_00_tokens\.bin"):
        build_it(small, standing)


def test_a_dataset_with_rejects_is_not_the_one_without(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", [*sources.rows(3), BAD_ROWS["role tool"].row()])
    assert build_it(source, tmp_path / "out", max_rejects="1").report.clean
    assert build_it(source, tmp_path / "out", max_rejects="1").already_built
    with pytest.raises(ConflictError, match="rows were rejected for it, more than --max-rejects allows"):
        build_it(source, tmp_path / "out")


def test_the_command_says_that_another_dataset_is_in_the_way(cli: Cli, standing: Path, other: Path) -> None:
    before = files_of(standing)
    done = run_build(cli, other, standing, "--shards", 1)
    assert_said(done, "the output root already holds another dataset: it was built with other options")
    assert files_of(standing) == before


def test_the_command_says_that_the_output_cannot_be_written(cli: Cli, good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run_build(cli, good, tmp_path / "file/out")
    assert_said(done, "the output root cannot be written: Not a directory\n")


def test_the_command_refuses_a_bad_limit_of_rejects(cli: Cli, good: Path, tmp_path: Path) -> None:
    done = run_build(cli, good, tmp_path / "out", "--max-rejects", "101%")
    assert done.returncode == EXIT_FAILURE
    assert done.stderr.startswith("error: --max-rejects takes a whole number of rows per shard or a percentage")
    assert not (tmp_path / "out").exists()
