"""CSV and TSV: what Python's own writer writes is read again; what is no table is refused with its row."""

import csv
import gzip
from pathlib import Path

import pytest

from spanloom.errors import RecordError, SourceError
from spanloom.records.record_files import find_record_files, read_records

ROWS = [
    {"prompt": "a,b\tc", "response": 'say "so"\nand\r\nso', "note": ""},
    {"prompt": "ü\u2028x\x85y", "response": "[1, 2]", "note": "n"},
    {"prompt": "x" * 300_000, "response": "long", "note": "7"},
]


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("a.csv.gz", ",")])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_rows_as_pythons_writer_writes_them(tmp_path: Path, name: str, delimiter: str, encoding: str) -> None:
    plain = tmp_path / "plain"
    with plain.open("w", newline="", encoding=encoding) as stream:
        writer = csv.DictWriter(stream, ["prompt", "response", "note"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
    data = plain.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (file,) = find_record_files([tmp_path / name])
    read = list(read_records(file))
    assert [row for _, row in read] == [{**row, "note": row["note"] or None} for row in ROWS]
    assert [str(where) for where, _ in read] == [f"{tmp_path / name}, row {number}" for number in (1, 2, 3)]


def test_a_row_with_another_number_of_fields_is_told_and_the_next_one_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("q,a\n1,2\n3\n\n4,5,6\n7,8\n")
    (file,) = find_record_files([tmp_path / "a.csv"])
    faults: list[RecordError] = []
    assert [row for _, row in read_records(file, faults.append)] == [{"q": "1", "a": "2"}, {"q": "7", "a": "8"}]
    assert [(fault.what, str(fault.where)) for fault in faults] == [
        ("the row has 1 fields, the header 2", f"{tmp_path / 'a.csv'}, row 2"),
        ("the row has 3 fields, the header 2", f"{tmp_path / 'a.csv'}, row 3"),
    ]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no header"),
        (b"q,q\n1,2\n", "two columns have the same name"),
        (b"q,a\n1,\xff\n", "not UTF-8"),
        (b'q,a\n1,"x\n', "not a valid table"),
        (b'q,a\n1,"x"y\n', "not a valid table"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    (file,) = find_record_files([tmp_path / "a.csv"])
    with pytest.raises(SourceError, match=what):
        list(read_records(file))


def test_beside_data_tables_describe_it(tmp_path: Path) -> None:
    (tmp_path / "about.csv").write_text("q,a\n1,2\n")
    assert [file.name for file in find_record_files([tmp_path])] == ["about.csv"]
    (tmp_path / "b.json").write_text("{}")
    assert [file.name for file in find_record_files([tmp_path])] == ["b.json"]
    (tmp_path / "c.jsonl").write_text("{}\n")
    assert [file.name for file in find_record_files([tmp_path])] == ["c.jsonl"]
