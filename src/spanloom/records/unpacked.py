"""Files as they are or compressed with gzip or zstd, read as the bytes that they stand for.

In: a local file, whose ending says how it is packed. Out: a stream of its bytes, or a file of them for readers that
jump about in it. Several members or frames are one file.
"""

import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from spanloom.errors import SourceError

COMPRESSED = (".gz", ".zst")
"""Endings of compressed files, after the ending that says what is in them."""

OnRead = Callable[[int], None]
"""Gets how many bytes of the file, as it is on the disk, have been read."""


def plain_suffix(path: Path) -> str:
    """The ending that says what is in the file: `.jsonl` of `chat.jsonl.gz`."""
    return Path(path.stem).suffix if path.suffix.lower() in COMPRESSED else path.suffix


@contextmanager
def unpacked(
    path: Path, *, where: Callable[[], str] | None = None, on_read: OnRead | None = None
) -> Iterator[BinaryIO]:
    """The bytes of the file. Raises SourceError, with the place that `where` gives, where it cannot be unpacked."""
    # Named now: a reader that is left in the middle is closed when Python ends, after its modules were emptied.
    damaged = (EOFError, zlib.error, pa.ArrowException, OSError)
    try:
        with _Counted(path, on_read) as file, _opened(path, file) as stream:
            yield stream
    except damaged as fault:
        # Arrow's word for a stream that is damaged is an OSError too, but one without a number.
        if isinstance(fault, OSError) and (path.suffix.lower() not in COMPRESSED or fault.errno is not None):
            raise
        place = where() if where is not None else str(path)
        raise SourceError(f"the file cannot be unpacked: {fault}", where=place, remedy="fetch it again") from None


@contextmanager
def unpacked_file(path: Path) -> Iterator[Path]:
    """The file itself, or where it is compressed, a temporary file ($TMPDIR) of what it stands for."""
    if path.suffix.lower() not in COMPRESSED:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="spanloom-", suffix=plain_suffix(path)) as plain:
        with unpacked(path) as stream:
            shutil.copyfileobj(stream, plain, 1 << 20)
        plain.flush()
        yield Path(plain.name)


def _opened(path: Path, file: "_Counted") -> BinaryIO:
    if path.suffix.lower() not in COMPRESSED:
        return io.BufferedReader(file, buffer_size=1 << 16)
    if not path.stat().st_size:  # either library would take it for a whole file without lines
        raise EOFError("it is empty")
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=io.BufferedReader(file, buffer_size=1 << 16)))
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), buffer_size=1 << 16)


class _Counted(io.FileIO):
    """A file that tells how far it has been read."""

    def __init__(self, path: Path, on_read: OnRead | None) -> None:
        super().__init__(path)
        self._on_read, self._bytes = on_read, 0

    def readinto(self, buffer: Any) -> int:
        read = super().readinto(buffer) or 0
        self._tell(read)
        return read

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self._tell(len(data))
        return data

    def _tell(self, read: int) -> None:
        self._bytes += read
        if self._on_read is not None:
            self._on_read(self._bytes)
