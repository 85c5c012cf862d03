"""Every kind of damage is found, and named with split, shard, sequence and offset. Each test plants one."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.dataset import manifest
from spanloom.families.harmony import dataset as harmony
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.families.harmony.verify import source as verify_source
from spanloom.families.harmony.verify.documents import HarmonyDocuments
from spanloom.families.harmony.verify.reference import disk_sequences
from spanloom.findings import Finding, Report
from spanloom.steps import validate_alignment as step
from support import sources
from support.damaged_datasets import Damage, change_rows, found, validate_dataset

validate_alignment = partial(step.validate_alignment, family=harmony)


def test_an_undamaged_dataset_is_clean_and_every_check_saw_something(root: Path, source: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    report = validate_dataset(root, source=source, deep=60)
    assert report.clean
    assert report.findings == []
    assert report.checked["documents"] == 60
    assert report.checked["rows rendered again"] == 60
    assert report.checked["source rows"] == 60
    assert report.checked["tokens"] > 60 * 20
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before, "validation writes nothing"


def test_however_many_look_at_it_the_report_is_the_same(root: Path, source: Path) -> None:
    """Shards are checked side by side; what is found in them comes in their order, after files that are not theirs."""
    for split, shard in (("train", 0), ("train", 1), ("valid", 1)):
        damage = Damage(root, split, shard)
        for sequence in range(3):
            damage.set("tokens", sequence, 4, 199999)
    reports = [validate_dataset(root, source=source, workers=workers) for workers in (1, 2, 4)]
    assert reports[0].findings == reports[1].findings == reports[2].findings
    assert reports[0].as_dict() == reports[1].as_dict() == reports[2].as_dict()
    order = [(f.check, f.split, f.shard, f.sequence) for f in reports[0].findings if f.check in ("inventory", "eod")]
    assert [place[0] for place in order[:3]] == ["inventory"] * 3
    assert order[3:] == [
        ("eod", split, shard, sequence)
        for split, shard in (("valid", 1), ("train", 0), ("train", 1))
        for sequence in range(3)
    ]


def test_progress_counts_every_document_once(root: Path) -> None:
    seen: list[tuple[int, int]] = []
    validate_dataset(root, workers=4, on_progress=lambda checked, of: seen.append((checked, of)))
    assert [checked for checked, _ in seen] == sorted(checked for checked, _ in seen)
    assert seen[-1] == (60, 60)


@pytest.fixture
def shut_down(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a thread pool is told to end."""
    event, shutdown = threading.Event(), ThreadPoolExecutor.shutdown

    def told(pool: ThreadPoolExecutor, *arguments: Any, **named: Any) -> None:
        event.set()
        shutdown(pool, *arguments, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", told)
    return event


def interrupted_at_the_first(seen: list[Any], shut_down: threading.Event, work: Callable[..., Any]) -> Any:
    """`work` as if Ctrl-C came at its first call; the next waits until it has been acted on. `seen`: every call."""

    def called(*arguments: Any) -> Any:
        seen.append(arguments)
        if len(seen) == 1:
            raise KeyboardInterrupt
        assert shut_down.wait(60), "the checks go on without end"
        return work(*arguments)

    return called


def test_who_stops_waiting_stops_the_checks(
    root: Path, shut_down: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C must not have to wait for every shard to be read to its end."""
    monkeypatch.setattr("spanloom.dataset.validate.checks.TOKENS_AT_ONCE", 1)  # one document at a time
    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        validate_dataset(root, workers=1, on_progress=interrupted_at_the_first(seen, shut_down, lambda *_: None))
    assert len(seen) <= 2, "of 60 documents"


def test_who_stops_waiting_stops_rendering_again(
    root: Path, source: Path, shut_down: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(verify_source, "disk_sequences", interrupted_at_the_first(seen, shut_down, disk_sequences))
    with pytest.raises(KeyboardInterrupt):
        validate_dataset(root, source=source, deep=60, workers=1)
    assert len(seen) <= 2, "of 60 rows"


def damaged_rows(damage: Damage, kind: str) -> None:
    path = damage.path("rows.parquet")
    table = pq.read_table(path)
    match kind:
        case "garbage":
            path.write_bytes(b"no table at all")
        case "truncated":
            path.write_bytes(path.read_bytes()[:-20])
        case "no column":
            pq.write_table(table.drop_columns(["synth_id"]), path)
        case "numbers":
            at = table.column_names.index("synth_id")
            pq.write_table(table.set_column(at, "synth_id", pa.array(range(table.num_rows))), path)
        case "null":
            ids = [None, *table["synth_id"].to_pylist()[1:]]
            pq.write_table(table.set_column(table.column_names.index("synth_id"), "synth_id", pa.array(ids)), path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("garbage", "shard_01_rows.parquet cannot be read"),
        ("truncated", "shard_01_rows.parquet cannot be read"),
        ("no column", "rows.parquet has no column synth_id"),
        ("numbers", "rows.parquet cannot be read"),
        ("null", "synth_id is null"),
    ],
)
def test_a_row_table_that_is_none_is_a_finding_and_the_rest_is_checked(root: Path, kind: str, message: str) -> None:
    damage = Damage(root)
    damaged_rows(damage, kind)
    Damage(root, "train", 0).set("tokens", 3, 4, 199999)
    report = validate_dataset(root)
    assert report.findings[0].file == "train/shard_00_tokens.bin"
    assert report.findings[1].file == "train/shard_01_rows.parquet"
    assert any(f.check == "rows" and f.shard == 1 and message in f.message for f in report.findings), report.findings
    assert ("train", 0, 3, 4) in found(report, "eod")


def test_warnings_stay_as_they_are() -> None:
    """Threads that import Megatron's reader at once must not leave each other's filters behind."""
    code = (
        "import threading, warnings; from spanloom.megatron import official; before = list(warnings.filters);"
        "threads = [threading.Thread(target=official._indexed_dataset) for _ in range(4)];"
        "[t.start() for t in threads]; [t.join() for t in threads];"
        "assert ('ignore', None, Warning, None, 0) not in warnings.filters, warnings.filters"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reports_are_joined_as_if_one_had_seen_all() -> None:
    def finding(check: str, sequence: int) -> Finding:
        return Finding(check=check, message="wrong", sequence=sequence)

    found = [finding("eod", sequence) for sequence in range(50)] + [finding("ids", 7)]
    whole, joined = Report(), Report()
    for part in (found[:30], found[30:45], found[45:]):
        one = Report()
        for report in (whole, one):
            report.ran("documents", len(part))
            report.add(part)
        joined.include(one)
    assert joined.as_dict() == whole.as_dict()
    assert joined.found == {"eod": 50, "ids": 1}
    assert len(joined.findings) == 21


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.data())
def test_tokens_of_a_span_are_counted_as_one_would_count_them(lengths: list[int], data: st.DataObject) -> None:
    runs = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1))
    flat = [value for value, times in runs for _ in range(times)]
    flat = (flat * (sum(lengths) // len(flat) + 1))[: sum(lengths)]
    span = np.array(flat, dtype=np.uint8)
    documents = HarmonyDocuments(
        profile=SYNTH_KD,
        split="train",
        shard=0,
        first=0,
        lengths=np.array(lengths, dtype=np.int32),
        tokens=np.zeros(span.size, dtype=np.int32),
        lossmask=np.zeros_like(span),
        span=span,
    )
    cuts = np.cumsum(lengths)[:-1].tolist()
    counted = documents.counted(("context", "analysis", "final"))
    for value, name in enumerate(("context", "analysis", "final")):
        wanted = [part.tolist().count(value) for part in np.split(span, cuts)]
        assert counted[f"{name}_tokens"].tolist() == wanted


@pytest.mark.parametrize(
    ("name", "sequence", "offset", "value", "check"),
    [
        ("tokens", 3, 4, 199999, "eod"),
        ("tokens", 3, -1, 525, "eod"),
        ("tokens", 2, 5, 201088, "ids"),
        ("tokens", 2, 5, -1, "ids"),
        ("lossmask", 2, 1, 2, "values"),
        ("span", 2, 1, 3, "values"),
        ("lossmask", 2, 1, 1, "mask_is_span"),
        ("span", 0, -1, 2, "shift"),
        ("lossmask", 0, -1, 1, "shift"),
        ("span", 4, 1, 1, "span"),
        ("tokens", 5, 0, 1428, "structure"),
    ],
)
def test_one_wrong_value_is_found_where_it_is(
    root: Path, name: str, sequence: int, offset: int, value: int, check: str
) -> None:
    damage = Damage(root)
    damage.set(name, sequence, offset, value)
    damage.seal()
    report = validate_dataset(root)
    place = offset if offset >= 0 else int(damage.lengths()[sequence]) + offset
    assert ("train", 1, sequence, place) in found(report, check), [str(finding) for finding in report.findings]
    assert not found(report, "inventory")


def test_supervision_that_was_never_shifted_is_found(root: Path) -> None:
    damage = Damage(root)
    lengths = damage.lengths()
    for name in ("lossmask", "span"):
        flat = np.fromfile(damage.path(f"{name}.bin"), dtype=np.uint8)
        np.roll(flat, 1).tofile(damage.path(f"{name}.bin"))  # back to where the tokens are
    damage.seal()
    report = validate_dataset(root)
    assert report.found["span"] >= 2 * lengths.size, "both ends of the supervised spans of every document"


def test_a_wrong_content_token_is_found_in_its_text_and_by_rendering_again(root: Path, source: Path) -> None:
    damage = Damage(root)
    damage.set("tokens", 3, 3, 525)  # a word of the question: no structure tells that it is wrong
    damage.seal()
    assert validate_dataset(root).clean
    report = validate_dataset(root, source=source, deep=0)
    assert found(report, "source") == [("train", 1, 3, 3)]
    report = validate_dataset(root, source=source, deep=60)
    assert found(report, "rerender") == [("train", 1, 3, 3)]
    (rendered,) = (finding for finding in report.findings if finding.check == "rerender")
    assert "openai-harmony gives" in rendered.message
    assert "around" in rendered.message


def test_changed_files_differ_from_the_manifest(root: Path) -> None:
    Damage(root).set("tokens", 3, 3, 525)
    report = validate_dataset(root)
    assert [finding.file for finding in report.findings] == ["train/shard_01_tokens.bin"]
    assert "sha256" in report.findings[0].message


@pytest.mark.parametrize(
    ("damage_file", "change", "check", "message"),
    [
        ("span.bin", lambda data: data + b"\0", "bin_size", "the lengths add up to"),
        ("span.bin", lambda data: data[:-1], "bin_size", "the lengths add up to"),
        ("tokens.idx", lambda data: data[:-8], "readable", "its header requires"),
        ("tokens.idx", lambda data: b"X" + data[1:], "readable", "not an IndexedDataset index"),
        ("tokens.idx", lambda data: data[:9] + b"\x02" + data[10:], "readable", "index version 2"),
        ("lossmask.idx", lambda data: data[:17] + b"\x04" + data[18:], "dtype", "expected 1 (uint8)"),
        ("tokens.idx", lambda data: data[:34] + b"\x05" + data[35:], "bin_size", "the lengths add up to"),
        ("lossmask.idx", lambda data: data[:-16] + data[-8:] + data[-8:], "documents", "not one sequence each"),
        ("lossmask.idx", lambda _data: b"", "readable", "the file is empty"),
    ],
)
def test_files_that_megatron_would_choke_on_are_found(
    root: Path, damage_file: str, change: Callable[[bytes], bytes], check: str, message: str
) -> None:
    damage = Damage(root)
    path = damage.path(damage_file)
    path.write_bytes(change(path.read_bytes()))
    damage.seal()
    report = validate_dataset(root)
    places = [(f.split, f.shard, f.file) for f in report.findings if f.check == check and message in f.message]
    assert len(places) == 1
    assert places[0][:2] == ("train", 1)
    assert damage_file.split(".")[0] in str(places[0][2])


def test_lengths_that_differ_between_the_three_are_found(root: Path) -> None:
    damage = Damage(root)
    path = damage.path("span.idx")
    data = bytearray(path.read_bytes())
    lengths = np.frombuffer(data, dtype=np.int32, offset=34, count=2)
    lengths[:] = lengths[0] + 1, lengths[1] - 1  # the .bin still has the right size
    pointers_at = 34 + 4 * damage.lengths().size
    np.frombuffer(data, dtype=np.int64, offset=pointers_at, count=2)[1] += 1
    path.write_bytes(data)
    damage.seal()
    report = validate_dataset(root)
    assert found(report, "parallel") == [("train", 1, 0, None)]


def test_ids_in_the_wrong_split_or_in_both_are_found(root: Path) -> None:
    held_out = pq.read_table(root / "valid/shard_00_rows.parquet")["synth_id"][0].as_py()
    damage = Damage(root)
    change_rows(damage.path("rows.parquet"), "synth_id", 4, held_out)
    damage.seal()
    report = validate_dataset(root)
    assert found(report, "split") == [("train", 1, 4, None)]
    assert found(report, "disjoint") == [("train", 1, 4, None)]


@pytest.mark.parametrize(("column", "value"), [("tokens", 1), ("analysis_tokens", 0), ("sequence", 9), ("row", 0)])
def test_rows_that_do_not_describe_the_documents_are_found(root: Path, column: str, value: int) -> None:
    damage = Damage(root)
    change_rows(damage.path("rows.parquet"), column, 3, value)
    damage.seal()
    assert found(validate_dataset(root), "rows") == [("train", 1, 3, None)]


def test_rows_that_go_on_after_the_last_document_are_found(root: Path) -> None:
    damage = Damage(root)
    rows = pq.read_table(damage.path("rows.parquet"))
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), damage.path("rows.parquet"))
    damage.seal()
    messages = [f.message for f in validate_dataset(root).findings if f.check == "rows"]
    assert messages == ["rows.parquet has rows after the last document"]


def test_megatrons_own_cache_beside_the_data_is_let_be(root: Path) -> None:
    (root / "train/shard_00_tokens/cache").mkdir(parents=True)
    assert validate_dataset(root).clean


def test_data_in_a_folder_beside_the_data_are_found_and_megatrons_index_cache_is_not(root: Path) -> None:
    for name in (
        "train/cache/GPTDataset_indices/0f-GPTDataset-train-document_index.npy",
        "train/cache/notes.txt",
        "train/.hidden/shard_00_tokens.bin",
        "train/sub/shard_00_tokens.bin",
        "valid/sub/deeper/shard_07_rows.parquet",
        "rejects/old/shard_00.jsonl",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "valid/linked").symlink_to(root / "train/sub", target_is_directory=True)
    assert {(finding.file, finding.message) for finding in validate_dataset(root).findings} == {
        (name, "the manifest does not list this file")
        for name in (
            "train/sub/shard_00_tokens.bin",
            "valid/sub/deeper/shard_07_rows.parquet",
            "rejects/old/shard_00.jsonl",
        )
    }


def test_a_missing_and_an_unlisted_file_are_found(root: Path) -> None:
    (root / "valid/shard_00_span.idx").unlink()
    (root / "train/notes.txt").write_text("x")
    (root / "train/dangling").symlink_to("nowhere")
    messages = {finding.file: finding.message for finding in validate_dataset(root).findings}
    assert messages["valid/shard_00_span.idx"] == "the file is missing"
    assert messages["train/notes.txt"] == "the manifest does not list this file"
    assert messages["train/dangling"] == "the manifest does not list this file"


def test_a_manifest_whose_sums_do_not_add_up_is_found(root: Path) -> None:
    path = root / manifest.MANIFEST_NAME
    written = json.loads(path.read_bytes())
    written["content"]["totals"]["splits"]["train"]["tokens"] += 1
    written["content"]["shards"][0]["rows_read"] += 1
    written["content"]["config"]["valid_fraction"] = 0.5
    path.write_text(json.dumps(written))
    messages = [finding.message for finding in validate_dataset(root).findings if finding.check == "manifest"]
    assert messages == [
        "config_sha256 is not the hash of config",
        "rows_read is 60, the shards add up to 61",
        "tokens is 1369, the shards add up to 1368",
        "config.valid_fraction is 0.5, not 0.3",
        "31 rows read of 30, the caps allow 30",
        "31 rows read, but 30 written and 0 rejected",
    ]


def test_another_source_is_found(root: Path, tmp_path: Path) -> None:
    other = sources.write_source(tmp_path / "other", [sources.rows(30, prefix=f"o{shard}") for shard in range(2)])
    report = validate_dataset(root, source=other, deep=1)
    assert [finding.message for finding in report.findings] == ["the dataset was built from another source"]


def test_a_document_that_was_dropped_is_missed(root: Path, source: Path) -> None:
    damage = Damage(root)
    rows = pq.read_table(damage.path("rows.parquet"))
    lost = rows["row"][2].as_py()
    change_rows(damage.path("rows.parquet"), "row", 2, lost + 1000)
    damage.seal()
    report = validate_dataset(root, source=source)
    assert any(f"source row {lost}: is in neither split" in finding.message for finding in report.findings)


def test_only_a_clean_validation_promotes_the_manifest(root: Path, tmp_path: Path) -> None:
    (root / manifest.MANIFEST_NAME).rename(root / manifest.PENDING_NAME)
    span = root / "train/shard_00_span.bin"
    right = span.read_bytes()
    span.write_bytes(bytes([2]) + right[1:])
    report = validate_alignment(root=root, report_file=tmp_path / "report.json")
    assert not report.clean
    assert json.loads((tmp_path / "report.json").read_bytes())["clean"] is False
    assert not (root / manifest.MANIFEST_NAME).exists()
    with pytest.raises(manifest.ManifestError, match="it was built but not validated"):
        manifest.read(root)

    span.write_bytes(right)
    assert validate_alignment(root=root).clean
    assert not (root / manifest.PENDING_NAME).exists()
    assert manifest.read(root).content.family == "synth_kd"


def test_the_command_exits_with_4_on_findings_and_names_them(root: Path, cli: Callable[..., Any]) -> None:
    Damage(root).set("tokens", 3, 4, 199999)
    done = cli("validate", root)
    assert done.returncode == 4
    assert "eod: EOD inside a document (split train, shard 1, sequence 3, offset 4)" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_folder_without_a_manifest_is_no_dataset(tmp_path: Path, cli: Callable[..., Any]) -> None:
    done = cli("validate", tmp_path)
    assert done.returncode == 1
    assert "this is not a finished dataset" in done.stderr
