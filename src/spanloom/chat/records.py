"""The records of transcript files, in order and numbered: what the stream that is packed is made of.

In: files. Out: texts; None for a record that is no text where such are skipped. It keeps its number, so that record i
goes to shard i mod T whatever is skipped before it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq

from spanloom.chat.sources import find_files, parquet_schema, stop
from spanloom.chat.transcripts import SUFFIXES, read_transcripts
from spanloom.errors import ChatError

OnError = Literal["raise", "skip"]


def transcript_files(place: Path) -> list[Path]:
    """The transcript files at `place`, a file or a folder, in the order in which they are read."""
    return find_files(place, SUFFIXES)


def text_bytes(file: Path) -> int:
    """About how many bytes of text a file holds, without reading it: progress and disks are reckoned by it."""
    if file.suffix != ".parquet":
        return file.stat().st_size
    parquet_schema(file)  # says what is wrong with a file that is none
    with pq.ParquetFile(file, pre_buffer=False) as opened:
        groups = (opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups))
        return sum(group.total_byte_size for group in groups)


def read_records(file: Path, *, on_error: OnError = "raise", first: int = 0) -> Iterator[str | None]:
    """The records of a file, the first of which has the number `first` in the stream.

    Raises ChatError naming the file and line of a record that is null or cannot be read, unless `on_error` is "skip".
    """
    missed: list[ChatError] = []
    number = first
    for where, text in read_transcripts(file, unreadable=stop if on_error == "raise" else missed.append):
        for _ in range(len(missed)):
            yield None
        number += len(missed)
        missed.clear()
        if text is None and on_error == "raise":
            raise ChatError(
                f"record {number} is null, not text",
                where=where,
                remedy='mend it, or skip and count such records (--on-error skip, on_error="skip")',
            )
        yield text
        number += 1
    for _ in range(len(missed)):
        yield None
