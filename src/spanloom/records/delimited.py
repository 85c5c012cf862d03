"""CSV and TSV: one record a row under a header, compressed with gzip or zstd, or not.

In: a local file. Out: a record a row, its values as text, with its place `FILE, row N`; row 1 is the first below the
header. An empty field is null. A quoted field may hold line feeds; a quote within it is doubled. A byte order mark at
the beginning is skipped.
"""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.errors import RecordError, SourceError
from spanloom.records.files import OnUnreadable, RecordPlace, stop
from spanloom.records.unpacked import OnRead, unpacked

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_REMEDY = "fix the row, or write the records as JSON Lines"


def delimited(
    path: Path, delimiter: str, unreadable: OnUnreadable = stop, on_read: OnRead | None = None
) -> Iterator[tuple[RecordPlace, dict[str, Any]]]:
    """Place and values of each row. A row whose number of fields differs from the header's goes to `unreadable`.

    Raises SourceError for a file without a header, with duplicate column names, not UTF-8, or with an unclosed quote.
    """
    number = 0

    def fault(what: str) -> SourceError:
        return SourceError(what, where=f"{path}, after row {number}", remedy="fix the file, or write it as JSON Lines")

    with unpacked(path, on_read=on_read) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        csv.field_size_limit(min(sys.maxsize, (1 << 31) - 1))  # a field may hold a whole conversation
        rows = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            header = next(rows, None)
            if not header:
                raise fault("the file has no header")
            if len(set(header)) < len(header):
                raise fault("two columns have the same name")
            for row in rows:
                if not row:
                    continue
                number += 1
                where = RecordPlace.of(path, "row", number)
                if len(row) != len(header):
                    what = f"the row has {len(row)} fields, the header {len(header)}"
                    unreadable(RecordError(what, where=where, remedy=_REMEDY))
                    continue
                yield where, {name: value or None for name, value in zip(header, row, strict=True)}
        except UnicodeDecodeError as wrong:
            raise fault(f"it is not UTF-8: {wrong.reason}") from None
        except csv.Error as wrong:
            raise fault(f"the file is not a valid table of delimited fields: {wrong}") from None
