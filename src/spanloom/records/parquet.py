"""Parquet files of records: rows in order, each with its place; what cannot be read is named.

In: a local file. Out: its columns, batches of rows, rows as Python values. Memory follows a batch, not the file.
And how a writer of such a file is ended that did not come to its end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import RecordError, SourceError
from spanloom.records.files import OnUnreadable, stop
from spanloom.records.place import RecordPlace

BATCH_ROWS = 256
BATCH_BYTES = 128 << 20
"""What a batch may hold at most where each of its rows names the longest text that the column can hold."""
_REMEDY = "fetch it again"


def open_parquet(path: Path, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """The file, to be read in small buffers and without read-ahead: else a row group, often a file, is in memory.

    Pages are checked against their checksums where the file has such. `footer`: what was read of it before. Raises
    SourceError for what cannot be opened or is not a Parquet file.
    """
    try:
        return pq.ParquetFile(
            path, metadata=footer, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        )
    except (FileNotFoundError, PermissionError) as fault:
        raise SourceError(
            f"the file cannot be opened: {one_line(fault)}",
            where=str(path),
            remedy="check the path and its permissions",
        ) from None
    except (pa.ArrowException, OSError) as fault:
        raise SourceError(
            f"not a Parquet file, or a truncated one: {one_line(fault)}",
            where=str(path),
            remedy="give a Parquet file; if it is one, fetch it again",
        ) from None


def abandon(writer: pq.ParquetWriter) -> None:
    """Ends a writer whose file goes away in any case, be the disk full or not.

    Closing writes a footer; a writer that could not be closed would try again when it is collected, and say on stderr
    in a traceback of its own that it cannot.
    """
    with suppress(pa.ArrowException, OSError):
        writer.close()
    writer.is_open = False


def parquet_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file. Raises SourceError for what is none."""
    with open_parquet(path) as file:
        return file.schema_arrow


def parquet_batches(
    file: pq.ParquetFile, path: Path, columns: Sequence[str], row_groups: Sequence[int] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The number of its first row, from 0, and each batch, of these row groups or of all.

    Rows count from the first that is read. Raises SourceError naming the row where reading failed.
    """
    row = 0
    # Named now: a reader that is left in the middle is closed when Python ends, after its modules were emptied.
    unreadable = (pa.ArrowException, OSError)
    try:
        batch_rows = _batch_rows(file.metadata, columns)
        for batch in file.iter_batches(batch_size=batch_rows, row_groups=row_groups, columns=list(columns)):
            yield row, batch
            row += batch.num_rows
    except unreadable as fault:
        raise SourceError(
            f"the file cannot be read: {one_line(fault)}", where=f"{path}, after row {row}", remedy=_REMEDY
        ) from None


def _batch_rows(footer: pq.FileMetaData, columns: Sequence[str]) -> int:
    """Rows to read at once: `BATCH_ROWS`, or fewer where a dictionary could repeat a long text in every row.

    A dictionary is at most as large as its column in the row group, by the sizes of the footer.
    """
    chunks = (
        footer.row_group(group).column(leaf)
        for group in range(footer.num_row_groups)
        for leaf in range(footer.num_columns)
    )
    largest = max(
        (
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.has_dictionary_page and chunk.path_in_schema.partition(".")[0] in columns
        ),
        default=1,
    )
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(largest, 1)))


def byte_lengths(texts: pa.Array) -> list[int]:
    """The bytes of each text of a column, 0 of a null. By its buffers: importing pyarrow.compute takes 0.04 s."""
    wide = texts.type in (pa.large_string(), pa.large_binary())
    bounds = np.frombuffer(texts.buffers()[1] or b"", dtype=np.int64 if wide else np.int32)
    lengths: list[int] = np.diff(bounds[texts.offset : texts.offset + len(texts) + 1]).tolist()
    if not texts.null_count:
        return lengths
    return [length if text.is_valid else 0 for text, length in zip(texts, lengths, strict=True)]


def column_values(column: pa.Array, undecodable: Callable[[int, pa.Scalar], Any]) -> list[Any]:
    """The values of a column; `undecodable(index, value)` for one that is not UTF-8, which Parquet readers let pass, or
    that Python has no value for: a time of nanoseconds, a day beyond the year 9999."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        return [_value(index, value, undecodable) for index, value in enumerate(column)]
    return values


def _value(index: int, value: pa.Scalar, undecodable: Callable[[int, pa.Scalar], Any]) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return undecodable(index, value)


def parquet_rows(
    path: Path, columns: list[str], unreadable: OnUnreadable = stop
) -> Iterator[tuple[RecordPlace, list[Any]]]:
    """Place and values of each row, in the order of `columns`, streamed. Rows count from 1 in a place."""
    with open_parquet(path) as file:
        for first, batch in parquet_batches(file, path, columns):
            values, torn = batch_values(batch, columns)
            for index, row in enumerate(zip(*values, strict=True)):
                where = RecordPlace.of(path, "row", first + index + 1)
                if index in torn:
                    unreadable(RecordError(f"the row holds {torn[index]}", where=where))
                else:
                    yield where, list(row)


def batch_values(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[list[list[Any]], dict[int, str]]:
    """The values of each column, and the rows of which one cannot be read: index → what they hold."""
    torn: dict[int, str] = {}

    def note(index: int, value: pa.Scalar) -> None:
        try:
            value.as_py()
        except UnicodeDecodeError:
            torn[index] = "bytes that are not UTF-8"
        except (ValueError, OverflowError) as fault:
            torn[index] = f"a value of type {value.type} that cannot be read: {one_line(fault)}"

    return [column_values(batch.column(name), note) for name in names], torn


def one_line(fault: Exception) -> str:
    """What Arrow says of a fault, without its line breaks."""
    return " ".join(str(fault).split())
