"""Rows of Parquet come in order, each with its place; what cannot be read is named by file and row."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import RecordError, SourceError
from spanloom.records.parquet import (
    BATCH_ROWS,
    byte_lengths,
    column_values,
    open_parquet,
    parquet_batches,
    parquet_rows,
    parquet_schema,
)

ROWS = 2 * BATCH_ROWS + 90
NUMBERS = pa.array(range(ROWS), pa.int64())
TEXTS = pa.array([f"row {number}" if number % 7 else None for number in range(ROWS)])


BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def undecodable(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """A column of strings that no writer has checked."""
    return pa.array(values, BYTES[kind]).view(kind)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two columns; row groups that end neither where batches do nor with the file's last batch."""
    path = tmp_path / "records.parquet"
    pq.write_table(pa.table({"text": TEXTS, "number": NUMBERS, "other": NUMBERS}), path, row_group_size=200)
    return path


def test_rows_come_in_order_with_their_places_and_the_columns_that_were_asked_for(path: Path) -> None:
    wanted = [
        (f"{path}, row {number + 1}", [number, f"row {number}" if number % 7 else None]) for number in range(ROWS)
    ]
    assert list(parquet_rows(path, ["number", "text"])) == wanted


def test_batches_are_small_and_know_the_number_of_their_first_row(path: Path) -> None:
    seen = 0
    with open_parquet(path) as file:
        for first, batch in parquet_batches(file, path, ["number"]):
            assert first == seen
            assert 0 < batch.num_rows <= BATCH_ROWS
            assert batch.schema.names == ["number"]
            assert batch.column("number").to_pylist() == list(range(first, first + batch.num_rows))
            seen += batch.num_rows
    assert seen == ROWS


def test_a_footer_that_was_read_before_is_not_read_again(path: Path) -> None:
    footer = pq.read_metadata(path)
    data = path.read_bytes()
    path.write_bytes(data[: -len(data) // 10] + bytes(len(data) // 10))  # nothing but zeros where the footer was
    with open_parquet(path, footer) as file:
        assert file.metadata.num_rows == ROWS
    with pytest.raises(SourceError):
        open_parquet(path)


@pytest.mark.parametrize("kind", BYTES)
def test_a_row_that_is_not_utf8_is_named_once_and_the_others_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "torn.parquet"
    good: list[bytes | None] = [b"a", "ü\u2028".encode(), None, b"", b"e", b"f"]
    torn = [*good]
    torn[1], torn[4] = b"\xff\xfe", b"cut \xc3"
    also_torn = [*good]
    also_torn[4] = b"\xed\xa0\x80"
    columns = {"one": undecodable(torn, kind), "other": undecodable(also_torn, kind)}
    pq.write_table(pa.table(columns), path, row_group_size=4)
    with pytest.raises(RecordError, match=r"(?s)not UTF-8.*torn\.parquet, row 2$"):
        list(parquet_rows(path, ["one", "other"]))
    unreadable: list[RecordError] = []
    read = list(parquet_rows(path, ["one", "other"], unreadable.append))
    assert [error.where for error in unreadable] == [f"{path}, row 2", f"{path}, row 5"]
    assert [(where.rsplit(" ")[-1], row) for where, row in read] == [
        ("1", ["a", "a"]),
        ("3", [None, None]),
        ("4", ["", ""]),
        ("6", ["f", "f"]),
    ]
    assert len(list(parquet_rows(path, ["other"], unreadable.append))) == 5  # a column that is not read harms nobody


def test_text_inside_of_lists_and_structs_is_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "torn.parquet"
    content = undecodable([b"hello", b"\xff", b"bye"], pa.string())
    messages = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), pa.StructArray.from_arrays([content], ["text"])
    )
    pq.write_table(pa.table({"messages": messages}), path)
    unreadable: list[RecordError] = []
    read = [row for _, row in parquet_rows(path, ["messages"], unreadable.append)]
    assert read == [[[{"text": "hello"}]], [[{"text": "bye"}]]]
    assert [error.where for error in unreadable] == [f"{path}, row 2"]


def test_values_of_a_column_that_cannot_be_decoded_are_the_callers_to_replace() -> None:
    found: list[tuple[int, bytes]] = []

    def replaced(index: int, value: pa.Scalar) -> str:
        found.append((index, value.as_buffer().to_pybytes()))
        return "?"

    assert column_values(pa.array(["a", None]), replaced) == ["a", None]
    assert column_values(undecodable([b"a", b"\x80", None, b"\xff"], pa.string()), replaced) == ["a", "?", None, "?"]
    assert found == [(1, b"\x80"), (3, b"\xff")]


def damaged(path: Path, row_group: int) -> None:
    """Zeros where the pages of a row group lie."""
    group = pq.read_metadata(path).row_group(row_group)
    chunks = [group.column(number) for number in range(group.num_columns)]
    begin = min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
    size = sum(chunk.total_compressed_size for chunk in chunks)
    data = bytearray(path.read_bytes())
    data[begin : begin + size] = bytes(size)
    path.write_bytes(data)


@pytest.mark.parametrize("row_group", [0, 1, 2, 3])
def test_a_page_that_cannot_be_read_is_an_error_that_names_the_last_row_before_it(path: Path, row_group: int) -> None:
    damaged(path, row_group)
    read: list[Any] = []
    with pytest.raises(SourceError, match="the file cannot be read") as refused:
        read.extend(row for _, row in parquet_rows(path, ["number"]))
    assert "\n" not in refused.value.what
    count = int(str(refused.value.where).removeprefix(f"{path}, after row "))
    assert count <= 200 * row_group < count + BATCH_ROWS  # whole batches came before it
    assert refused.value.remedy == "fetch it again"


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b'{"messages": []}\n', b"PAR1" + b"\0" * 100 + b"PAR1"], ids=lambda data: str(data[:9])
)
def test_what_is_no_parquet_file_is_an_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "records.parquet"
    path.write_bytes(data)
    for read in (parquet_schema, open_parquet, lambda path: list(parquet_rows(path, ["text"]))):
        with pytest.raises(SourceError, match=r"not a Parquet file, or a truncated one") as refused:
            read(path)
        assert refused.value.where == str(path)
        assert "\n" not in refused.value.what


def test_a_file_that_was_cut_is_an_error(path: Path) -> None:
    data = path.read_bytes()
    for length in (len(data) - 1, len(data) // 2, 10):
        path.write_bytes(data[:length])
        with pytest.raises(SourceError, match="truncated"):
            parquet_schema(path)


def test_the_schema_is_that_of_the_file(path: Path) -> None:
    assert parquet_schema(path).names == ["text", "number", "other"]
    assert parquet_schema(path).field("text").type == pa.string()


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert list(parquet_rows(path, ["text"])) == []


def flipped_in_a_page(path: Path, table: pa.Table) -> None:
    """The table in a file whose pages have checksums, with one bit of a value flipped."""
    pq.write_table(
        table, path, write_page_checksum=True, compression="none", use_dictionary=False, write_statistics=False
    )
    data = bytearray(path.read_bytes())
    data[data.index(b"the needle") + 4] ^= 1
    path.write_bytes(data)


def test_a_page_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    """Without the checksum it would be read as another text."""
    path = tmp_path / "records.parquet"
    flipped_in_a_page(path, pa.table({"text": ["one", "the needle", "three"]}))
    assert pq.read_table(path)["text"].to_pylist()[1] == "the oeedle"
    with pytest.raises(SourceError, match="CRC checksum") as refusal:
        list(parquet_rows(path, ["text"]))
    assert refusal.value.where == f"{path}, after row 0"


def test_a_long_text_that_a_dictionary_repeats_is_read_few_rows_at_a_time(tmp_path: Path) -> None:
    """1,500 bytes name a text of 8 MiB in each of 300 rows: 256 of them at once would be 2 GiB."""
    text = "a b " * (2 << 20)
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array([text]))
    path = tmp_path / "records.parquet"
    table = pa.table({"text": rows, "number": pa.array(range(300))})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, store_schema=False)
    with open_parquet(path) as file:
        sizes = [batch.nbytes for _, batch in parquet_batches(file, path, ["text", "number"])]
        assert max(sizes) < 160 << 20
        assert sum(sizes) > 300 * len(text)  # nothing was left out
        numbers = [batch.num_rows for _, batch in parquet_batches(file, path, ["number"])]
    assert numbers == [256, 44]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_lengths_in_bytes_of_a_column_and_of_its_slices(kind: pa.DataType) -> None:
    column = pa.array(["a", "é", None, "", "xyz"], kind)
    assert byte_lengths(column) == [1, 2, 0, 0, 3]
    assert byte_lengths(column.slice(1, 3)) == [2, 0, 0]
    assert byte_lengths(column.slice(5)) == byte_lengths(pa.array([], kind)) == []
