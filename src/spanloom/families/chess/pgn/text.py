"""PGN as text: decompressed, and cut into runs of whole games that are parsed independently.

In: a local file, plain or compressed by gzip, bzip2 or zstd, detected by its first bytes. Out: `GameText`s in order.

A run ends before a header such as `[Event "…"]` that follows a blank line and a game's result. So parsing the runs
gives the same games as parsing the whole file. The same file always gives the same runs.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast

import pyarrow as pa

from spanloom.errors import SourceError

RUN_CHARACTERS = 64 * 1024
"""The approximate size of a run: about 0.1 s of work, so that all workers finish at about the same time."""

_HEADER = re.compile(r"\[\w+ \"")
_RESULTS = ("1-0", "0-1", "1/2-1/2", "*")
_REFUSED = {b"PK\x03\x04": "a zip archive", b"7z\xbc\xaf": "a 7z archive", b"\xfd7zX": "packed by xz"}


@dataclass(frozen=True, slots=True)
class GameText:
    """The text of whole games. `line`: the line of the file where it begins, from 1."""

    line: int
    text: str


def game_texts(path: Path) -> Iterator[GameText]:
    """Yields the runs of a file. Raises SourceError if it cannot be read or decompressed to its end."""
    try:
        with _opened(path) as stream:
            yield from _runs(stream)
    except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, OSError) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise SourceError(f"the file cannot be read: {fault.strerror}", where=str(path)) from None
        raise SourceError(f"the file cannot be unpacked: {fault}", where=str(path), remedy="fetch it again") from None


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    with path.open("rb") as file:
        begin = file.read(4)
        file.seek(0)
        for magic, kind in _REFUSED.items():
            if begin.startswith(magic):
                raise SourceError(
                    f"the file is {kind}", where=str(path), remedy="unpack it; .pgn, .gz, .bz2 and .zst are read"
                )
        packed: BinaryIO = file
        if begin.startswith(b"\x1f\x8b"):
            packed = cast(BinaryIO, gzip.GzipFile(fileobj=file))
        elif begin.startswith(b"BZh"):
            packed = cast(BinaryIO, bz2.BZ2File(file))
        elif begin.startswith(b"\x28\xb5\x2f\xfd"):
            packed = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), 1 << 16)
        yield io.TextIOWrapper(packed, encoding="utf-8-sig", errors="replace")


def _runs(stream: TextIO) -> Iterator[GameText]:
    lines: list[str] = []
    first = number = 1
    size = 0
    blank = ended = False
    for number, line in enumerate(stream, start=1):
        if size >= RUN_CHARACTERS and blank and ended and _HEADER.match(line):
            yield GameText(first, "".join(lines))
            lines, size, first = [], 0, number
        blank = line.isspace()
        if not blank:
            ended = line.rstrip().endswith(_RESULTS)
        lines.append(line)
        size += len(line)
    if lines:
        yield GameText(first, "".join(lines))
