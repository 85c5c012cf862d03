"""Parquet files and folders of `save_to_disk` → documents.

In: a unit, the wanted rows. Out: `Documents`, batch by batch. Unreadable data raises SourceError with file and row.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from spanloom.auditing.readers.columns import chosen_rows, documents_of_rows, masks_in, needed_columns
from spanloom.auditing.readers.unit import TOKENS_AT_ONCE, Reading, Unit
from spanloom.errors import SourceError
from spanloom.law.documents import Documents, Ints
from spanloom.records.arrow import arrow_batches
from spanloom.records.parquet import one_line, open_parquet

_REMEDY = "write it again"


def parquet_units(path: Path, shown: str, reading: Reading, rows_of_unit: int) -> list[Unit]:
    """The units of a Parquet file: row groups, small ones joined."""
    with open_parquet(path) as file:
        masks_in(file.schema_arrow.names, reading, str(path))
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    units: list[Unit] = []
    begin = first = rows = 0
    for group, count in enumerate(counts):
        rows += count
        if rows >= rows_of_unit or group + 1 == len(counts):
            units.append(
                Unit(
                    kind="parquet",
                    path=path,
                    shown=shown,
                    first=first,
                    rows=rows,
                    groups=(begin, group + 1),
                    reading=reading,
                )
            )
            begin, first, rows = group + 1, first + rows, 0
    return units


def arrow_unit(path: Path, shown: str, reading: Reading) -> Unit:
    """An Arrow file is one unit: its batches are read one after the other."""
    rows = 0
    for number, batch in arrow_batches(path):
        if not number:
            masks_in(batch.schema.names, reading, str(path))
        rows += batch.num_rows
    return Unit(kind="arrow", path=path, shown=shown, first=0, rows=rows, reading=reading)


def parquet_documents(unit: Unit, rows: Ints | None) -> Iterator[Documents]:
    """The documents of a unit. `rows`: sorted numbers of rows of the file; None: all."""
    with open_parquet(unit.path) as file:
        names = file.schema_arrow.names
        masks = masks_in(names, unit.reading, str(unit.path))
        row, groups = unit.first, range(*unit.groups)
        tokens = sum(_values(file.metadata.row_group(group)) for group in groups)
        size = max(1, min(1 << 14, TOKENS_AT_ONCE * unit.rows // max(1, tokens)))
        try:
            for batch in file.iter_batches(size, row_groups=groups, columns=needed_columns(names, masks)):
                part, numbers = chosen_rows(batch, row, rows)
                row += batch.num_rows
                if numbers.size:
                    yield documents_of_rows(part, masks, unit.reading, rows=numbers, file=unit.shown)
        except (pa.ArrowException, OSError) as fault:
            raise SourceError(
                f"the file cannot be read: {one_line(fault)}", where=f"{unit.path}, after row {row}", remedy=_REMEDY
            ) from None


def _values(group: object) -> int:
    """Values of the longest column of a row group: about its number of tokens."""
    columns = range(group.num_columns)  # type: ignore[attr-defined]
    return max((int(group.column(number).num_values) for number in columns), default=0)  # type: ignore[attr-defined]


def arrow_documents(unit: Unit, rows: Ints | None) -> Iterator[Documents]:
    """The documents of an Arrow file. `rows`: sorted numbers of rows of the file; None: all."""
    for first, whole in arrow_batches(unit.path):
        masks = masks_in(whole.schema.names, unit.reading, str(unit.path))
        wanted = needed_columns(whole.schema.names, masks)
        if not whole.num_rows:
            continue
        tokens = len(whole.column(wanted[0]).flatten())
        size = max(1, min(whole.num_rows, TOKENS_AT_ONCE * whole.num_rows // max(1, tokens)))
        for begin in np.arange(0, whole.num_rows, size).tolist():
            part, numbers = chosen_rows(whole.slice(begin, size).select(wanted), first + begin, rows)
            if numbers.size:
                yield documents_of_rows(part, masks, unit.reading, rows=numbers, file=unit.shown)
