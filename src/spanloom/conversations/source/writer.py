"""One shard of a source folder, written row by row.

In: rows as texts by column. Out: a Parquet file, which gets its final name when it is complete, and its entry in the
manifest. Memory holds at most two row groups: one is filled while a thread compresses and writes the other.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.records.parquet import abandon
from spanloom.storage import discard, fsync_file, publish, sha256_file, temporary_beside

ROWS_PER_GROUP = 4096
BYTES_PER_GROUP = 64 << 20
"""A row group is closed once its conversations exceed this size, so that very long rows do not fill the memory."""

OutputRow = dict[str, str | bytes | None]
"""One row of a shard, by the columns of its schema; bytes are UTF-8."""


class ShardWriter:
    """Buffers rows up to a row group, under a temporary name until `finish`.

    Registers the removal of its files with `undo`. `few_values`: columns that dictionary encoding shrinks.
    """

    def __init__(self, path: Path, schema: pa.Schema, undo: ExitStack, *, few_values: Sequence[str] = ()) -> None:
        self._path, self._schema, self._undo = path, schema, undo
        self.rows = self._buffered_bytes = 0
        self._buffer: list[OutputRow] = []
        self._temporary = temporary_beside(path)
        undo.callback(discard, self._temporary)
        self._file = pq.ParquetWriter(
            self._temporary, schema, compression="zstd", use_dictionary=list(few_values), write_statistics=False
        )
        undo.callback(abandon, self._file)
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        undo.callback(self._thread.shutdown)

    def append(self, row: OutputRow) -> None:
        self._buffer.append(row)
        self.rows += 1
        self._buffered_bytes += len(row["messages_json"] or "")
        if len(self._buffer) == ROWS_PER_GROUP or self._buffered_bytes > BYTES_PER_GROUP:
            self._flush()

    def finish(self) -> dict[str, Any]:
        """Gives the file its final name. Returns its entry in the manifest."""
        if self._buffer:
            self._flush()
        self._wait()
        self._thread.shutdown()
        self._file.close()
        fsync_file(self._temporary)
        size, sha256 = self._temporary.stat().st_size, sha256_file(self._temporary)
        if not self._path.exists():  # otherwise the file is not ours: a conflict
            self._undo.callback(self._path.unlink, missing_ok=True)
        publish(self._temporary, self._path, sha256)
        return {"path": self._path.name, "rows": self.rows, "bytes": size, "sha256": sha256}

    def _flush(self) -> None:
        columns = {field.name: _texts([row[field.name] for row in self._buffer], field.type) for field in self._schema}
        table = pa.table(columns, schema=self._schema)
        self._wait()
        self._writing = self._thread.submit(self._file.write_table, table, row_group_size=table.num_rows)
        self._buffer, self._buffered_bytes = [], 0

    def _wait(self) -> None:
        """Raises what writing the row group before has raised."""
        if self._writing is not None:
            self._writing.result()


def _texts(values: list[str | bytes | None], type_: pa.DataType) -> pa.Array:
    """The texts of a column.

    Bytes are UTF-8 already. They are joined into a buffer of the exact size: `pa.array` grows its buffer by doubling,
    and copying takes up to ten times as long.
    """
    encoded = [value for value in values if type(value) is bytes] if type_ == pa.large_string() else []
    if not values or len(encoded) < len(values):
        return pa.array(values, type_)
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
