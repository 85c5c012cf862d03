"""The pretraining schema: rows, and files of them.

In: rows, or Arrow tables. Out: Parquet files.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.storage import fsync_file, publish, sha256_file, temporary_beside

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("fen", pa.string()),
        ("played_move", pa.string()),
        ("best_move", pa.string()),
        ("win", pa.float64()),
        ("draw", pa.float64()),
        ("loss", pa.float64()),
    ]
)
"""The pretraining schema."""


def row_of(schema: pa.Schema, *values: Any) -> Row:
    """A row from values in the order of the schema's columns."""
    return dict(zip(schema.names, values, strict=True))


def write_rows(rows: list[Row], path: Path, schema: pa.Schema = SCHEMA) -> None:
    """Writes rows as one Parquet file, completely or not at all. Raises ConflictError if a different file exists."""
    write_table(pa.Table.from_pylist(rows, schema=schema), path)


def write_table(table: pa.Table, path: Path) -> None:
    """Like `write_rows`, for a table."""
    temporary = temporary_beside(path)
    pq.write_table(table, temporary)
    fsync_file(temporary)
    publish(temporary, path, sha256_file(temporary))
