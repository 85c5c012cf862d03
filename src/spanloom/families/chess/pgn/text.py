"""PGN as text: decompressed, and cut into runs of whole games that are read independently.

In: a local file, plain or compressed by gzip, bzip2 or zstd, detected by its first bytes. Out: `GameText`s in order;
the unit of the file's evaluations.

A run ends before a tag line that follows a result or a move and is in no comment. So reading the runs gives the same
games as reading the whole file. The same file always gives the same runs. Bytes that are not UTF-8 are read as Latin-1.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from spanloom.errors import SourceError
from spanloom.families.chess.pgn.tokens import COMMENT_LIMIT, TAG_LINE
from spanloom.families.chess.pgn.values import Unit, unit_of

RUN_CHARACTERS = 64 * 1024
"""The approximate size of a run: about 0.05 s of work, so that all workers finish at about the same time."""

_END = re.compile(r"(?:1-0|0-1|1/2|½|\*|[a-h][1-8][^\s\[\]{}();]{0,6}|[O0]-[O0][+#!?]*)\s*\Z")
_REFUSED = {b"PK\x03\x04": "a zip archive", b"7z\xbc\xaf": "a 7z archive", b"\xfd7zX": "packed by xz"}
_BLOCK = 1 << 20


def _as_latin1(fault: UnicodeError) -> tuple[str, int]:
    assert isinstance(fault, UnicodeDecodeError)
    return fault.object[fault.start : fault.end].decode("latin-1"), fault.end


codecs.register_error("spanloom-latin-1", _as_latin1)


@dataclass(frozen=True, slots=True)
class GameText:
    """The text of whole games. `line`: the line of the file where it begins, from 1."""

    line: int
    text: str


def game_texts(path: Path) -> Iterator[GameText]:
    """Yields the runs of a file. Raises SourceError if it cannot be read or decompressed to its end."""
    with _opened(path) as file:
        yield from _runs(io.TextIOWrapper(file, encoding="utf-8-sig", errors="spanloom-latin-1"))


def unit_in(path: Path) -> Unit:
    """The unit of the evaluations in a file, from all of them. Raises SourceError like `game_texts`."""
    with _opened(path) as file:
        return unit_of(iter(lambda: file.read(_BLOCK), b""))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
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
            yield packed
    except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, OSError) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise SourceError(f"the file cannot be read: {fault.strerror}", where=str(path)) from None
        raise SourceError(f"the file cannot be unpacked: {fault}", where=str(path), remedy="fetch it again") from None


def _runs(stream: io.TextIOBase) -> Iterator[GameText]:
    text, line, size = "", 1, RUN_CHARACTERS
    ended = False
    while not ended:
        while not ended and len(text) < 2 * size:
            block = stream.read(2 * size - len(text))
            text, ended = text + block, not block
        if cut := _cut(text, size):
            yield GameText(line, text[:cut])
            line += text.count("\n", 0, cut)
            text, size = text[cut:], RUN_CHARACTERS
        elif not ended:
            size = len(text)  # a game that is as long: twice as much is read, so that this stays linear
    while text:
        cut = _cut(text, RUN_CHARACTERS) or len(text)
        yield GameText(line, text[:cut])
        line += text.count("\n", 0, cut)
        text = text[cut:]


def _cut(text: str, least: int) -> int:
    """The first place at or after `least` where games may be cut; 0 if the text has none."""
    for match in TAG_LINE.finditer(text, max(0, text.rfind("\n", 0, least))):
        start = match.start()
        if _END.search(text, max(0, start - 64), start) and _outside_comments(text, start):
            return start
    return 0


def _outside_comments(text: str, place: int) -> bool:
    """Whether a tag line is in no comment, by the rules of `tokens`, or so far as the text tells."""
    opened = text.rfind("{", 0, place)
    if opened < 0 or text.rfind("}", opened, place) >= 0:
        return True
    again, closed = (text.find(brace, place, opened + COMMENT_LIMIT + 2) for brace in "{}")
    if closed >= 0 and (again < 0 or closed < again):
        return False
    return again >= 0 or len(text) >= opened + COMMENT_LIMIT + 2
