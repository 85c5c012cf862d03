"""JSON Lines: one JSON value a line, split at LF alone; compressed with gzip or zstd, or not.

In: a local file. Out: lines as bytes, or their JSON values, each with its place, `FILE, line N` counted from 1. A byte
order mark at the beginning is passed over, and a CR before LF. U+2028 and its like are text: they end no line.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import orjson
import pyarrow as pa

from spanloom.errors import RecordError, SourceError
from spanloom.records import strict_json
from spanloom.records.files import OnUnreadable, stop

COMPRESSED = (".gz", ".zst")
"""Endings of compressed files, after the ending that says what is in them."""

RepeatedKeys = Literal["refuse", "last"]
"""What is done with an object that holds a key twice: the record cannot be read, or the last value counts."""

_BOM = b"\xef\xbb\xbf"


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Place and bytes of each line, without its end. Raises SourceError for a file that cannot be unpacked."""
    number = 0
    try:
        with _opened(path) as stream:
            for number, line in enumerate(stream, start=1):
                if number == 1:
                    line = line.removeprefix(_BOM)
                yield f"{path}, line {number}", line.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, gzip.BadGzipFile, zlib.error, pa.ArrowException) as fault:
        raise SourceError(
            f"the file cannot be unpacked: {fault}", where=f"{path}, after line {number}", remedy="fetch it again"
        ) from None
    except OSError as fault:
        if path.suffix not in COMPRESSED or fault.errno is not None:
            raise
        raise SourceError(  # Arrow's word for a stream that is damaged
            f"the file cannot be unpacked: {fault}", where=f"{path}, after line {number}", remedy="fetch it again"
        ) from None


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    if path.suffix == ".zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"), buffer_size=1 << 16)
    return path.open("rb")


def json_lines(
    path: Path, unreadable: OnUnreadable = stop, *, repeated_keys: RepeatedKeys = "last"
) -> Iterator[tuple[str, Any]]:
    """Place and value of each line of a JSON Lines file; lines of white space alone are passed over."""
    parse = orjson.loads if repeated_keys == "last" else strict_json.loads
    for where, line in lines(path):
        if not line.strip():
            continue
        try:
            value = parse(line)
        except (ValueError, RecursionError) as fault:  # orjson's and the standard library's error are ValueErrors
            remedy = "mend it, or skip and count such lines with --on-error skip"
            unreadable(RecordError(f"the line is not JSON: {fault}", where=where, remedy=remedy))
            continue
        yield where, value
