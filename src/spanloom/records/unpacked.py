"""Plain files, or files compressed with gzip or zstd, read as their uncompressed bytes.

In: a local file, whose ending gives its compression. Out: a stream of its bytes, or an unpacked file for readers that
need random access. Several gzip members or zstd frames are read as one file.
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
from spanloom.storage.temporaries import check_temporary_folder

COMPRESSED = (".gz", ".zst")
"""Endings of compressed files; they follow the ending of the format."""

OnRead = Callable[[int], None]
"""Receives the number of bytes read so far, counted in the file on disk (compressed bytes if it is compressed)."""


def plain_suffix(path: Path) -> str:
    """The ending of the file's format: `.jsonl` for `chat.jsonl.gz`."""
    return Path(path.stem).suffix if path.suffix.lower() in COMPRESSED else path.suffix


@contextmanager
def unpacked(
    path: Path, *, where: Callable[[], str] | None = None, on_read: OnRead | None = None
) -> Iterator[BinaryIO]:
    """A stream of the file's uncompressed bytes. Raises SourceError, located by `where`, if it cannot be unpacked."""
    # Looked up now: a generator that is not exhausted may be closed at interpreter exit, after modules were cleared.
    damaged = (EOFError, zlib.error, pa.ArrowException, OSError)
    try:
        with _Counted(path, on_read) as file, _opened(path, file) as stream:
            yield stream
    except damaged as fault:
        # Arrow raises OSError for a damaged stream, too, but without an errno.
        if isinstance(fault, OSError) and (path.suffix.lower() not in COMPRESSED or fault.errno is not None):
            raise
        place = where() if where is not None else str(path)
        raise SourceError(f"the file cannot be unpacked: {fault}", where=place, remedy="fetch it again") from None


@contextmanager
def unpacked_file(path: Path) -> Iterator[Path]:
    """The file itself or, if it is compressed, an unpacked temporary file in $TMPDIR."""
    if path.suffix.lower() not in COMPRESSED:
        yield path
        return
    check_temporary_folder()
    with tempfile.NamedTemporaryFile(prefix="spanloom-", suffix=plain_suffix(path)) as plain:
        with unpacked(path) as stream:
            shutil.copyfileobj(stream, plain, 1 << 20)
        plain.flush()
        yield Path(plain.name)


def _opened(path: Path, file: "_Counted") -> BinaryIO:
    if path.suffix.lower() not in COMPRESSED:
        return io.BufferedReader(file, buffer_size=1 << 16)
    if not path.stat().st_size:  # both libraries would accept it as a complete file without lines
        raise EOFError("it is empty")
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=io.BufferedReader(file, buffer_size=1 << 16)))
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), buffer_size=1 << 16)


class _Counted(io.FileIO):
    """A file that reports the number of bytes read so far."""

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
