"""A JSON document of records: read in pieces of any size it gives what it holds, and says where it is broken."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.errors import RecordError, SourceError
from spanloom.records import json_array as module
from spanloom.records.json_array import is_json_lines, json_array
from support.nightly import drawn

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=12,
)


def read(path: Path) -> list[Any]:
    return [value for _, value in json_array(path)]


@settings(max_examples=drawn(300, 50))
@given(
    records=st.lists(VALUES, max_size=5),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    piece=st.integers(1, 40),
)
def test_an_array_read_in_pieces_gives_its_elements(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], indent: int | None, ascii_only: bool, piece: int
) -> None:
    path = tmp_path_factory.mktemp("array") / "records.json"
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", piece)
        assert read(path) == records


def test_each_record_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    path.write_text('\ufeff[{"a": 1},\n {"a": 2}]\n', encoding="utf-8")
    assert list(json_array(path)) == [(f"{path}, record 1", {"a": 1}), (f"{path}, record 2", {"a": 2})]


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ("[]", []),
        (" [ ] ", []),
        ("", []),
        ('{"a": 1}', [{"a": 1}]),
        ('{\n "a": 1\n}\n', [{"a": 1}]),
        ("[[1], 2]", [[1], 2]),
    ],
)
def test_whole_documents(tmp_path: Path, text: str, records: list[Any]) -> None:
    (tmp_path / "records.json").write_text(text)
    assert read(tmp_path / "records.json") == records


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[{"a": 1} {"a": 2}]', r"a comma or the end of the array is missing\n  where: .*, character 11"),
        ('[{"a": 1}', r"a comma or the end of the array is missing"),
        ("[1,]", r"Expecting value\n  where: .*, character 4"),
        ('[{"a": }]', r"Expecting value"),
        ('{"a": 1', r"Expecting ',' delimiter"),
        ('["abc', r"Unterminated string"),
        ('{"a": 1} 2', r"something follows the end of the JSON document"),
        ("[1] x", r"something follows"),
        ("nothing", r"Expecting value"),
    ],
)
def test_a_document_that_is_broken_stops_with_the_place(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "records.json").write_text(text)
    with pytest.raises(SourceError, match=what):
        read(tmp_path / "records.json")


def test_a_fault_in_the_middle_of_a_long_file_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 1000)
    before = json.dumps([{"a": "x" * 50}] * 100)[:-1]
    (tmp_path / "records.json").write_text(before + ', {"a" 1}, ' + json.dumps("y" * 100_000) + "]")
    with pytest.raises(SourceError, match=f"Expecting ':' delimiter\n  where: .*, character {len(before) + 8}"):
        read(tmp_path / "records.json")


@pytest.mark.parametrize(
    ("record", "what"),
    [('{"a": 1, "a": 2}', "the key 'a' twice"), ('{"a": "\\ud800"}', "is not JSON"), ('{"a": 1e400}', "is not JSON")],
)
def test_a_record_that_is_refused_alone_leaves_the_others(tmp_path: Path, record: str, what: str) -> None:
    path = tmp_path / "records.json"
    path.write_text(f"[1, {record}, 3]")
    faults: list[RecordError] = []
    assert [value for _, value in json_array(path, faults.append)] == [1, 3]
    assert [fault.where for fault in faults] == [f"{path}, record 2"]
    assert what in faults[0].what
    with pytest.raises(RecordError):
        read(path)


def test_bytes_that_are_not_utf8_stop(tmp_path: Path) -> None:
    (tmp_path / "records.json").write_bytes(b'["a\xff"]')
    with pytest.raises(SourceError, match="it is not UTF-8"):
        read(tmp_path / "records.json")


def test_a_damaged_compressed_file_stops(tmp_path: Path) -> None:
    data = gzip.compress(json.dumps([os.urandom(50).hex() for _ in range(100)]).encode())
    (tmp_path / "records.json.gz").write_bytes(data[:-200])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        read(tmp_path / "records.json.gz")


def test_a_record_without_an_end_is_not_read_into_memory_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 100)
    monkeypatch.setattr(module, "LONGEST_RECORD", 1000)
    (tmp_path / "records.json").write_text('["' + "x" * 10_000 + '"]')
    with pytest.raises(SourceError, match="does not end within 1,000 characters"):
        read(tmp_path / "records.json")


MEASURED = """
import resource, sys
from pathlib import Path
from spanloom.records.json_array import is_json_lines, json_array
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert not is_json_lines(Path(sys.argv[1]))
assert sum(1 for _ in json_array(Path(sys.argv[1]))) == 20_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_follows_a_record_and_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    path.write_text(json.dumps([{"text": "word " * 1000}] * 20_000))
    assert path.stat().st_size > 100_000_000
    done = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30_000, "kilobytes"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": 1}\n{"a": 2}\n', True),
        ('\n{"a": 1}\n\n{"a": 2}', True),
        ('{"a": 1}\n', False),
        ('{"a": 1}', False),
        ("[1]\n[2]\n", False),
        ('{\n"a": 1}\n', False),
        ("", False),
    ],
)
def test_json_lines_under_another_name_are_told_apart(tmp_path: Path, text: str, lines: bool) -> None:
    (tmp_path / "records.json").write_text(text)
    assert is_json_lines(tmp_path / "records.json") is lines
