"""Which rows of a shard validation compares with the source: few row groups are read unless more rows are wanted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.conversations.source.folder import SourceShard
from spanloom.families.harmony.contract.profile import HARMONY_CHAT
from spanloom.families.harmony.verify.rows import GROUPS_READ, sampled_rows

SIZES = [5, 1, 9, 5, 7, 3] * 5
"""Rows of each row group: 150 in 30 groups."""
ROWS = sum(SIZES)


@pytest.fixture
def shard(tmp_path: Path) -> SourceShard:
    path = tmp_path / "shard_00.parquet"
    texts = pa.array(["{}"] * max(SIZES))
    table = pa.table({"messages_json": texts, "id": texts, "metadata_json": texts})
    with pq.ParquetWriter(path, table.schema) as writer:
        for rows in SIZES:
            writer.write_table(table.slice(0, rows))
    return SourceShard(format=HARMONY_CHAT.source, index=0, path=path, rows=ROWS, bytes=path.stat().st_size, sha256="")


def groups_of(rows: list[int]) -> set[int]:
    ends = [sum(SIZES[: group + 1]) for group in range(len(SIZES))]
    return {next(group for group, end in enumerate(ends) if row < end) for row in rows}


def test_a_small_sample_reads_few_groups(shard: SourceShard) -> None:
    rows = sampled_rows(shard, ROWS, 8)
    assert len(rows) == 8
    assert len(groups_of(rows)) <= GROUPS_READ


@pytest.mark.parametrize("count", [ROWS, ROWS + 1])
def test_as_many_as_the_rows_are_all_of_them(shard: SourceShard, count: int) -> None:
    assert sampled_rows(shard, ROWS, count) == list(range(ROWS))


def test_a_large_sample_reads_as_many_groups_as_it_needs(shard: SourceShard) -> None:
    rows = sampled_rows(shard, ROWS, ROWS // 2)
    assert rows == sorted(set(rows))
    assert len(groups_of(rows)) >= len(SIZES) // 2
    assert len(rows) > 40


@pytest.mark.parametrize("count", [8, ROWS // 2, ROWS])
def test_only_rows_that_were_read(shard: SourceShard, count: int) -> None:
    """A build that `--max-rows` ended early read the first rows alone."""
    assert set(sampled_rows(shard, 60, count)) <= set(range(60))
