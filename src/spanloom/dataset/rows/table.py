"""`shard_NN_rows.parquet`: one row per sequence, beside the arrays, to find documents and to group statistics.

In: the family's columns of each sequence, its length, its labels of each span. Out: the file; and its rows, in order.

    sequence | the family's own columns | tokens | one column NAME_tokens for each span
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import ArtifactError
from spanloom.records.parquet import abandon
from spanloom.storage import discard, fsync_file, publish, sha256_file, temporary_beside
from spanloom.supervision import Lengths

DOCUMENTS_OF_CONVERSATIONS = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("conversation", pa.string(), nullable=False),
        pa.field("cut", pa.int64(), nullable=False),
        pa.field("runs", pa.int64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
    ]
)
"""Columns of families that cut conversations into documents. `row`: in the source's shard, from 0; `cut`: the number of
the document in its conversation; `runs`: assistant runs that it trains."""

BATCH_ROWS = 8192


def rows_schema(about: pa.Schema, span_names: Sequence[str]) -> pa.Schema:
    """The columns of the file, with the family's own columns in the middle."""
    return pa.schema(
        [
            pa.field("sequence", pa.int64(), nullable=False),
            *about,
            pa.field("tokens", pa.int64(), nullable=False),
            *(pa.field(f"{name}_tokens", pa.int64(), nullable=False) for name in span_names),
        ]
    )


WEIGHT = pa.field("weight", pa.float64())


def weighed(about: pa.Schema, config: Mapping[str, Any]) -> pa.Schema:
    """The family's columns, and the column `weight` if `config` gives documents weights."""
    return about.append(WEIGHT) if config.get("weight") and WEIGHT.name not in about.names else about


class RowsWriter:
    """Writes the file; it has its final name only after `publish`. Without rows, there is no file."""

    _GROUP = 65536

    def __init__(self, path: Path, about: pa.Schema, span_names: Sequence[str]) -> None:
        self.path = path
        self._schema = rows_schema(about, span_names)
        self._temporary: Path | None = None
        self._writer: pq.ParquetWriter | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = self._written = 0

    def append(self, about: pa.RecordBatch, lengths: Lengths, span_tokens: npt.NDArray[np.int64]) -> None:
        """N rows: the family's columns; `lengths` int32 [N]; `span_tokens` int64 [N, S], labels of each span."""
        sequence = np.arange(self._written + self._buffered, self._written + self._buffered + about.num_rows)
        columns = [pa.array(sequence), *about.columns, pa.array(lengths.astype(np.int64))]
        columns += [pa.array(span_tokens[:, span]) for span in range(span_tokens.shape[1])]
        self._buffer.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._buffered += about.num_rows
        if self._buffered >= self._GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._buffered:
            return
        if self._writer is None:
            self._temporary = temporary_beside(self.path)
            self._writer = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(self._buffer), row_group_size=2 * self._GROUP)
        self._written, self._buffered, self._buffer = self._written + self._buffered, 0, []

    def publish(self) -> tuple[int, str] | None:
        """Gives the file its name, create-only. Returns its size in bytes and its sha256; None without rows."""
        self._flush()
        if self._writer is None or self._temporary is None:
            return None
        self._writer.close()
        fsync_file(self._temporary)
        size, sha256 = self._temporary.stat().st_size, sha256_file(self._temporary)
        publish(self._temporary, self.path, sha256)
        return size, sha256

    def discard(self) -> None:
        """Removes an unpublished file."""
        if self._writer is not None:
            abandon(self._writer)
        if self._temporary is not None:
            discard(self._temporary)


def row_batches(path: Path, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches, with the columns `wanted`; a column whose field is nullable may be missing.

    Raises ArtifactError if the file cannot be read, or a column has another type or an unexpected null.
    """

    def refuse(why: str) -> ArtifactError:
        return ArtifactError(
            f"the rows of this shard cannot be read: {why}",
            where=str(path),
            remedy="`spanloom validate` says what else is wrong; fetch or build the dataset again",
        )

    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            schema = file.schema_arrow
            for field in wanted:
                types = [schema.field(index).type for index in schema.get_all_field_indices(field.name)]
                if types != [field.type] and not (field.nullable and not types):
                    raise refuse(f"{field.name} is {' and '.join(map(str, types)) or 'missing'}, not {field.type}")
            columns = [field.name for field in wanted if field.name in schema.names]
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False):
                for field in wanted:
                    if not field.nullable and batch.column(field.name).null_count:
                        raise refuse(f"{field.name} is null")
                yield batch
    except (OSError, pa.ArrowException) as fault:
        raise refuse(str(fault)) from None


class RowsReader:
    """Reads the file in order, in batches of any requested size. Raises ArtifactError if it cannot be read."""

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        """`columns`: the columns to read; None: all."""
        self._path = path
        with self._named():
            self._file = pq.ParquetFile(path, pre_buffer=False)
        wanted = None if columns is None else list(columns)
        self._batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            batch_size=BATCH_ROWS, columns=wanted, use_threads=False
        )
        self.schema: pa.Schema = self._file.schema_arrow
        self._held: pa.Table | None = None

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as fault:
            raise ArtifactError(f"{self._path.name} cannot be read: {fault}", where=str(self._path)) from None

    def _next(self) -> pa.RecordBatch | None:
        with self._named():
            return next(self._batches, None)

    def take(self, count: int) -> pa.Table:
        """The next `count` rows, fewer at the end of the file. Checks that text is UTF-8, which pyarrow does not."""
        held = [] if self._held is None else [self._held]
        rows = sum(table.num_rows for table in held)
        while rows < count and (batch := self._next()) is not None:
            with self._named():
                batch.validate(full=True)
            held.append(pa.Table.from_batches([batch]))
            rows += batch.num_rows
        table = pa.concat_tables(held) if held else self.schema.empty_table()
        self._held = table.slice(count)
        return table.slice(0, count)
