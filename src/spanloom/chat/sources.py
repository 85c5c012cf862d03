"""Files that hold records: found, opened, read record by record; what cannot be read is named.

In: a file or a folder, local. Out: lines of text and rows of Parquet, each with its place.

A line that cannot be read is handed to `unreadable`, with a ChatError that names file and line; `stop`, the default,
raises it. A file that cannot be opened always stops.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import ChatError, SourceError

BATCH_ROWS = 256
_BOM = b"\xef\xbb\xbf"

OnUnreadable = Callable[[ChatError], None]


def stop(error: ChatError) -> None:
    """What is done with a record that cannot be read, where nothing else is asked for."""
    raise error


def find_files(place: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The file `place`, or all files below the folder with one of these endings, by relative path, or a SourceError."""
    wanted = ", ".join(f"*{suffix}" for suffix in suffixes)
    if place.is_dir():
        # What begins with a dot is no data: a temporary file of a run that was killed, a cache.
        found = sorted(
            path.relative_to(place).as_posix()
            for path in place.rglob("*")
            if path.name.endswith(suffixes) and path.is_file() and not path.name.startswith(".")
        )
        if not found:
            raise SourceError("the folder holds none of " + wanted, where=str(place), remedy="give such files")
        return [place / name for name in found]
    if not place.exists():
        raise SourceError("the source is not there", where=str(place), remedy=f"give a file ({wanted}) or a folder")
    if not place.name.endswith(suffixes):
        raise SourceError("the file is of no kind that is read here", where=str(place), remedy=f"give one of {wanted}")
    return [place]


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Place and bytes of each line, without its end. `.gz` is unpacked on the way."""
    number = 0
    try:
        with _opened(path) as stream:
            for number, line in enumerate(stream, start=1):
                if number == 1:
                    line = line.removeprefix(_BOM)
                yield f"{path}, line {number}", line.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, gzip.BadGzipFile, zlib.error) as fault:
        raise SourceError(
            f"the file cannot be unpacked: {fault}", where=f"{path}, after line {number}", remedy="fetch it again"
        ) from None


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def json_lines(path: Path, unreadable: OnUnreadable = stop) -> Iterator[tuple[str, Any]]:
    """Place and value of each line of a JSONL file; lines of white space alone are passed over."""
    for where, line in lines(path):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as fault:
            remedy = "mend it, or skip and count such lines with --on-error skip"
            unreadable(ChatError(f"the line is not JSON: {fault}", where=where, remedy=remedy))
            continue
        yield where, value


def parquet_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file. Raises SourceError for what is none."""
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow
    except (pa.ArrowException, OSError) as fault:
        raise SourceError(
            f"not a readable Parquet file (truncated?): {_one_line(fault)}", where=str(path), remedy="fetch it again"
        ) from None


def parquet_rows(path: Path, columns: list[str], unreadable: OnUnreadable = stop) -> Iterator[tuple[str, list[Any]]]:
    """Place and values of each row, in the order of `columns`, streamed."""
    row = 0
    try:
        # Small buffers and no read-ahead: otherwise a whole row group, often a whole file, would lie in memory.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                arrays = [batch.column(name) for name in columns]
                try:
                    rows = list(zip(*(array.to_pylist() for array in arrays), strict=True))
                except UnicodeDecodeError:  # Parquet readers do not check that strings are UTF-8
                    rows = []
                for index in range(batch.num_rows):
                    row += 1
                    where = f"{path}, row {row}"
                    try:
                        values = rows[index] if rows else tuple(array[index].as_py() for array in arrays)
                    except UnicodeDecodeError:
                        unreadable(ChatError("the row holds bytes that are not UTF-8", where=where))
                        continue
                    yield where, list(values)
    except (pa.ArrowException, OSError) as fault:
        raise SourceError(
            f"the file cannot be read: {_one_line(fault)}", where=f"{path}, after row {row}", remedy="fetch it again"
        ) from None


def _one_line(fault: Exception) -> str:
    return " ".join(str(fault).split())
