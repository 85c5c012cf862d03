"""Arrow files as `datasets` and pyarrow write them: every row with its place, and nothing believed of a damaged one."""

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.ipc
import pytest

from spanloom.errors import RecordError, SourceError
from spanloom.records.arrow import arrow_rows, saved_files

ROWS = [{"id": n, "messages": [{"role": "user", "content": f"ü {n}"}]} for n in range(600)]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


def write(path: Path, table: pa.Table, *, stream: bool, **options: object) -> Path:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=250)
    return path


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_both_formats_give_their_rows(tmp_path: Path, stream: bool, compression: str | None) -> None:
    path = write(tmp_path / "rows.arrow", pa.Table.from_pylist(ROWS), stream=stream, compression=compression)
    wanted = [(f"{path}, row {n + 1}", list(row.values())) for n, row in enumerate(ROWS)]
    assert list(arrow_rows(path)) == wanted


@pytest.mark.parametrize("shards", [1, 3])
def test_a_saved_folder_gives_its_files_in_order(tmp_path: Path, shards: int) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved", num_shards=shards)
    files = saved_files(tmp_path / "saved")
    assert files is not None
    assert len(files) == shards
    assert [row for file in files for _, row in arrow_rows(file, list(ROWS[0]))] == [list(row.values()) for row in ROWS]


def test_a_folder_of_splits_names_them(tmp_path: Path) -> None:
    one = datasets.Dataset.from_list(ROWS[:2])
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path / "saved")
    with pytest.raises(SourceError, match=r"2 splits: train, test\n.*\n  remedy: give the folder of one: .*train"):
        saved_files(tmp_path / "saved")
    datasets.DatasetDict({"train": one}).save_to_disk(tmp_path / "one")
    assert saved_files(tmp_path / "one") == saved_files(tmp_path / "one/train")


def test_any_other_folder_is_none(tmp_path: Path) -> None:
    assert saved_files(tmp_path) is None


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ({}, "lists no data files"),
        ({"_data_files": [{"filename": "../away.arrow"}]}, "lists no data files"),
        ({"_data_files": [{"filename": "a.arrow"}, {}]}, "lists no data files"),
        ({"_data_files": [{"filename": "a.arrow"}]}, "files are missing: a.arrow"),
        ({"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i"}]}, "file of indices"),
    ],
)
def test_a_damaged_description_is_refused(tmp_path: Path, state: object, what: str) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(SourceError, match=what):
        saved_files(tmp_path)


def test_a_row_that_is_not_utf8_is_told_alone(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    nested = pa.array([[{"t": "x"}]] * 3)
    path = write(tmp_path / "rows.arrow", pa.table({"text": texts, "nested": nested}), stream=True)
    faults: list[RecordError] = []
    assert [row for _, row in arrow_rows(path, ["text"], faults.append)] == [["a"], ["c"]]
    assert [fault.where for fault in faults] == [f"{path}, row 2"]


def test_offsets_that_lead_out_of_a_buffer_are_not_followed(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 1_000_000, 5)))
    damaged = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abcde")])
    path = write(tmp_path / "rows.arrow", pa.table({"text": damaged}), stream=True)
    with pytest.raises(SourceError, match="the Arrow file cannot be read"):
        list(arrow_rows(path))


@pytest.mark.parametrize("data", [b"", b"no arrow at all", b"ARROW1\0\0 but no more"])
def test_what_is_no_arrow_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "rows.arrow").write_bytes(data)
    with pytest.raises(SourceError, match="the Arrow file cannot be read"):
        list(arrow_rows(tmp_path / "rows.arrow"))


@pytest.mark.parametrize("stream", [True, False])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, stream: bool) -> None:
    path = write(tmp_path / "rows.arrow", pa.Table.from_pylist(ROWS), stream=stream)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SourceError, match="the Arrow file cannot be read"):
        list(arrow_rows(path))
