"""The table of rows is written in groups, and reads as one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset.rows.table import RowsWriter

ABOUT = pa.schema([pa.field("row", pa.int64(), nullable=False)])


def test_rows_are_numbered_from_0_without_a_gap_whatever_the_batches(tmp_path: Path) -> None:
    """A group is written every 65,536 rows: one batch fills the first, the next two the second, the last waits."""
    counts = [70_000, 1, 65_535, 3]
    writer = RowsWriter(tmp_path / "rows.parquet", ABOUT, ("context", "final"))
    for count in counts:
        about = pa.RecordBatch.from_arrays([pa.array(np.full(count, 7))], schema=ABOUT)
        spans = np.tile(np.array([2, 3]), (count, 1))
        writer.append(about, np.full(count, 5, dtype=np.int32), spans)
    assert writer.publish() is not None
    table = pq.read_table(tmp_path / "rows.parquet")
    assert pq.read_metadata(tmp_path / "rows.parquet").num_row_groups > 1
    assert table.column_names == ["sequence", "row", "tokens", "context_tokens", "final_tokens"]
    assert np.array_equal(table["sequence"].to_numpy(), np.arange(sum(counts)))
    for name, value in (("row", 7), ("tokens", 5), ("context_tokens", 2), ("final_tokens", 3)):
        assert table[name].unique().to_pylist() == [value]
