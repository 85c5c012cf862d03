"""Files of records of any kind: found by name, folder and pattern; the same records whatever they are written as."""

import gzip
import json
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from spanloom.errors import RecordError, SourceError
from spanloom.records.record_files import find_record_files, read_records

ROWS = [{"id": f"r{n}", "messages": [{"role": "user", "content": f"ü\u2028 {n}"}], "score": n / 4} for n in range(700)]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


def _lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS))


def _array(path: Path) -> None:
    path.write_text(json.dumps(ROWS, indent=1))


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=300)


def _arrow(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[Path], None]] = {
    "a.jsonl": _lines,
    "a.ndjson": _lines,
    "lines.json": _lines,
    "array.json": _array,
    "run.traj": _array,
    "a.parquet": _parquet,
    "a.arrow": _arrow,
}


def pack(path: Path, packed: str) -> Path:
    """The same file, compressed."""
    target = path.with_name(path.name + packed)
    if packed == ".gz":
        target.write_bytes(gzip.compress(path.read_bytes()))
    elif packed == ".zst":
        with pa.CompressedOutputStream(str(target), "zstd") as stream:
            stream.write(path.read_bytes())
    return target


def read(*places: Path) -> list[Any]:
    return [value for file in find_record_files(places) for _, value in read_records(file)]


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("name", WRITERS)
def test_the_same_records_whatever_they_are_written_as(tmp_path: Path, name: str, packed: str) -> None:
    WRITERS[name](tmp_path / name)
    path = pack(tmp_path / name, packed)
    (file,) = find_record_files([path])
    told: list[int] = []
    found = list(read_records(file, on_read=told.append))
    assert [value for _, value in found] == ROWS
    places = [where for where, _ in found]
    assert all(where.startswith(f"{path}, ") for where in places)
    assert [int(where.rpartition(" ")[2]) for where in places] == list(range(1, len(ROWS) + 1))
    assert told == sorted(told)
    assert 0 < told[-1] <= path.stat().st_size


def test_a_saved_data_set_is_a_place(tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved", num_shards=2)
    assert read(tmp_path / "saved") == ROWS


def test_places_are_read_in_their_order_and_patterns_by_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.json", "sub/d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"name": name}) + "\n")
    names = [value["name"] for value in read(tmp_path / "c.json", tmp_path / "*.jsonl", tmp_path / "sub")]
    assert names == ["c.json", "a.jsonl", "b.jsonl", "sub/d.jsonl"]
    assert [file.name for file in find_record_files([tmp_path / "**/*.jsonl"])] == ["a.jsonl", "b.jsonl", "d.jsonl"]


def test_a_name_that_looks_like_a_pattern_is_a_file_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a[1].jsonl").write_text("1\n")
    assert read(tmp_path / "a[1].jsonl") == [1]


def test_json_beside_data_describes_it(tmp_path: Path) -> None:
    (tmp_path / "info.json").write_text('{"about": "the data"}')
    assert read(tmp_path) == [{"about": "the data"}]
    (tmp_path / "rows.jsonl").write_text("1\n")
    assert read(tmp_path) == [1]


@pytest.mark.parametrize(
    ("places", "what"),
    [
        (["none.jsonl"], "the source does not exist"),
        (["*.jsonl.gz"], "no file matches this pattern"),
        (["empty"], "the folder holds none of"),
        (["a.txt"], "unsupported file type"),
        (["a.jsonl", "a.jsonl"], "the file is named twice"),
        (["a.jsonl", "*.jsonl"], "the file is named twice"),
        (["a.jsonl", "other/a.jsonl"], "two files are called a.jsonl"),
        (["fifo.jsonl"], "not a regular file"),
    ],
)
def test_places_that_cannot_be_read_are_refused(tmp_path: Path, places: list[str], what: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("a.jsonl", "a.txt", "other/a.jsonl"):
        (tmp_path / name).write_text("1\n")
    os.mkfifo(tmp_path / "fifo.jsonl")
    (tmp_path / "*.jsonl").unlink(missing_ok=True)
    if "*.jsonl" in places:
        (tmp_path / "fifo.jsonl").unlink()
    with pytest.raises(SourceError, match=what):
        read(*(tmp_path / place for place in places))


def test_what_a_table_holds_becomes_what_json_has(tmp_path: Path) -> None:
    calls = [{"name": "f", "x": 1, "y": None}, {"name": "g", "x": None, "y": [2]}]
    table = pa.table(
        {
            "calls": pa.array([calls]),
            "day": pa.array([date(2026, 1, 31)]),
            "missing": pa.array([float("nan")]),
            "nothing": pa.nulls(1),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [
        {
            "calls": [{"name": "f", "x": 1}, {"name": "g", "y": [2]}],
            "day": "2026-01-31",
            "missing": None,
            "nothing": None,
        }
    ]


@pytest.mark.parametrize("value", [{"raw": b"picture"}, float("inf")])
def test_what_json_cannot_hold_is_told_with_its_row(tmp_path: Path, value: object) -> None:
    pq.write_table(pa.table({"a": pa.array([None, value])}), tmp_path / "a.parquet")
    faults: list[RecordError] = []
    (file,) = find_record_files([tmp_path / "a.parquet"])
    assert [value for _, value in read_records(file, faults.append)] == [{"a": None}]
    assert [fault.where for fault in faults] == [f"{tmp_path / 'a.parquet'}, row 2"]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**62, pa.timestamp("ms")), (2**31 - 1, pa.date32())],
    ids=str,
)
def test_times_that_python_has_no_value_for_are_refused_with_their_row(
    tmp_path: Path, name: str, value: int, kind: pa.DataType
) -> None:
    table = pa.table({"a": ["x", "y"], "when": pa.array([None, value], kind)})
    path = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    faults: list[RecordError] = []
    (file,) = find_record_files([path])
    assert [value for _, value in read_records(file, faults.append)] == [{"a": "x", "when": None}]
    assert [fault.where for fault in faults] == [f"{path}, row 2"]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="two columns have the same name"):
        read(tmp_path / "a.parquet")
