"""Parquet files of records: rows in order, each with its place; unreadable values are reported.

In: a local file. Out: its columns, batches of rows, rows as Python values. Memory use depends on the size of a batch,
not of the file. `abandon` closes a Parquet writer after a failure.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import RecordError, SourceError
from spanloom.records.files import OnUnreadable, RecordPlace, stop
from spanloom.records.json_values import UNREADABLE, plain_array
from spanloom.storage.local import refused_access

BATCH_ROWS = 256
BATCH_BYTES = 128 << 20
"""Most bytes of a batch in the worst case: every row refers to the longest text of the column's dictionary."""
_REMEDY = "fetch it again"


def open_parquet(path: Path, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Opens the file with small buffers and no read-ahead, which would load a whole row group, often the whole file.

    Page checksums are verified if the file has them. `footer`: the file's metadata, if it was read before. Raises
    SourceError for a file that cannot be opened or is not Parquet.
    """
    try:
        return pq.ParquetFile(
            path, metadata=footer, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        )
    except PermissionError as fault:
        what, remedy = refused_access(path) or (one_line(fault), "look at its permissions")
        raise SourceError(f"the file cannot be opened: {what}", where=str(path), remedy=remedy) from None
    except FileNotFoundError as fault:
        raise SourceError(
            f"the file cannot be opened: {one_line(fault)}",
            where=str(path),
            remedy="check the path",
        ) from None
    except pa.ArrowNotImplementedError as fault:
        raise SourceError(
            f"a column has a type that pyarrow {pa.__version__} cannot read: {one_line(fault)}",
            where=str(path),
            remedy="cast that column, or leave it out, and write the file again",
        ) from None
    except (pa.ArrowException, OSError) as fault:
        raise SourceError(
            f"not a Parquet file, or a truncated one: {one_line(fault)}",
            where=str(path),
            remedy="give a Parquet file; if it is one, fetch it again",
        ) from None


def abandon(writer: pq.ParquetWriter) -> None:
    """Closes a writer whose file will be removed, and ignores errors such as a full disk.

    Closing writes a footer. If that fails, the writer would try again when it is garbage-collected, and print a
    traceback to stderr.
    """
    with suppress(pa.ArrowException, OSError):
        writer.close()
    writer.is_open = False


def parquet_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file. Raises SourceError for a file that is not Parquet."""
    with open_parquet(path) as file:
        return file.schema_arrow


def parquet_batches(
    file: pq.ParquetFile, path: Path, columns: Sequence[str], row_groups: Sequence[int] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these row groups (default: all), each with the number of its first row, from 0.

    Row 0 is the first row that is read. Raises SourceError naming the row after which reading failed.
    """
    row = 0
    # Looked up now: a generator that is not exhausted may be closed at interpreter exit, after modules were cleared.
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
    """Rows to read at once: `BATCH_ROWS`, or fewer if a dictionary could repeat a long text in every row.

    A dictionary is at most as large as its column chunk, whose size is in the footer.
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
    """The length of each text of a column in bytes, 0 for null. Read from its buffers: importing pyarrow.compute takes
    0.04 s."""
    wide = texts.type in (pa.large_string(), pa.large_binary())
    bounds = np.frombuffer(texts.buffers()[1] or b"", dtype=np.int64 if wide else np.int32)
    lengths: list[int] = np.diff(bounds[texts.offset : texts.offset + len(texts) + 1]).tolist()
    if not texts.null_count:
        return lengths
    return [length if text.is_valid else 0 for text, length in zip(texts, lengths, strict=True)]


def column_values(column: pa.Array, undecodable: Callable[[int, pa.Scalar], Any]) -> list[Any]:
    """The values of a column. `undecodable(index, value)` replaces a value that is not UTF-8 (Parquet readers accept
    it), or that Python cannot represent: a day after the year 9999. Texts in views and dictionaries, and times in
    nanoseconds, are returned as text: see `json_values.plain_type`."""
    column = plain_array(column)
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
    path: Path, columns: list[str], unreadable: OnUnreadable = stop, needless: Collection[str] = ()
) -> Iterator[tuple[RecordPlace, list[Any]]]:
    """Place and values of each row, in the order of `columns`, streamed. Places count rows from 1. In columns in
    `needless`, a value that Python cannot represent is UNREADABLE, and the row goes on."""
    with open_parquet(path) as file:
        for first, batch in parquet_batches(file, path, columns):
            values, torn = batch_values(batch, columns, needless)
            for index, row in enumerate(zip(*values, strict=True)):
                where = RecordPlace.of(path, "row", first + index + 1)
                if index in torn:
                    unreadable(RecordError(f"the row holds {torn[index]}", where=where))
                else:
                    yield where, list(row)


def batch_values(
    batch: pa.RecordBatch, names: Sequence[str], needless: Collection[str] = ()
) -> tuple[list[list[Any]], dict[int, str]]:
    """The values of each column, and the rows with an unreadable value: index → description of that value. In columns
    in `needless` such a value is UNREADABLE."""
    torn: dict[int, str] = {}

    def note(index: int, value: pa.Scalar) -> None:
        try:
            value.as_py()
        except UnicodeDecodeError:
            torn[index] = "bytes that are not UTF-8"
        except (ValueError, OverflowError) as fault:
            torn[index] = f"a value of type {value.type} that cannot be read: {one_line(fault)}"

    def leave(_index: int, _value: pa.Scalar) -> Any:
        return UNREADABLE

    return [column_values(batch.column(name), leave if name in needless else note) for name in names], torn


def one_line(fault: Exception) -> str:
    """The message of an Arrow error, without its line breaks."""
    return " ".join(str(fault).split())
