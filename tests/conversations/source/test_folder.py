"""Laws of reading a source: the plan of parts covers the rows once and in order, and batches give them back."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.conversations.source import folder as source
from spanloom.conversations.source.folder import (
    Part,
    SourceShard,
    open_source,
    plan_parts,
    read_rows,
    text_bytes,
    verify_hash,
)
from spanloom.conversations.source.format import SYNTH
from spanloom.errors import SourceError
from spanloom.families.harmony.defaults import SHARDS
from support import sources


def plan(sizes: list[int], rows_per_part: int, max_rows: int | None = None) -> list[Part]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "ROWS_PER_PART", rows_per_part)
        return plan_parts(sizes, max_rows=max_rows)


def as_tuples(parts: list[Part]) -> list[tuple[tuple[int, ...], int, int]]:
    """`(row groups, first row, rows)` of each part."""
    return [(part.row_groups, part.first_row, part.rows) for part in parts]


# --- The plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "max_rows", "expected"),
    [
        pytest.param([], None, [], id="no row group"),
        pytest.param([0], None, [], id="an empty row group"),
        pytest.param([3], None, [((0,), 0, 3)], id="less than a part"),
        pytest.param([4], None, [((0,), 0, 4)], id="a part"),
        pytest.param([9], None, [((0,), 0, 9)], id="a row group is never cut"),
        pytest.param([2, 2, 2, 2], None, [((0, 1), 0, 4), ((2, 3), 4, 4)], id="groups are joined"),
        pytest.param([2, 1, 3, 1], None, [((0, 1, 2), 0, 6), ((3,), 6, 1)], id="until there are enough"),
        pytest.param([4, 4, 4], None, [((0,), 0, 4), ((1,), 4, 4), ((2,), 8, 4)], id="one group a part"),
        pytest.param([0, 4, 0, 4], None, [((0, 1), 0, 4), ((2, 3), 4, 4)], id="empty groups between"),
        pytest.param([4, 0], None, [((0,), 0, 4)], id="an empty group at the end"),
        pytest.param([4, 4, 4], 0, [], id="a cap of nothing"),
        pytest.param([4, 4, 4], 4, [((0,), 0, 4)], id="a cap at an edge"),
        pytest.param([4, 4, 4], 5, [((0,), 0, 4), ((1,), 4, 1)], id="a cap inside a group"),
        pytest.param([3, 3, 3], 5, [((0, 1), 0, 5)], id="a cap inside a joined group"),
        pytest.param([3, 3, 3], 9, [((0, 1), 0, 6), ((2,), 6, 3)], id="a cap of all rows"),
        pytest.param([3, 3, 3], 99, [((0, 1), 0, 6), ((2,), 6, 3)], id="a cap of more rows"),
    ],
)
def test_parts_of_at_least_4_rows(
    sizes: list[int], max_rows: int | None, expected: list[tuple[tuple[int, ...], int, int]]
) -> None:
    assert as_tuples(plan(sizes, 4, max_rows)) == expected


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 16), st.none() | st.integers(0, 200))
def test_parts_cover_the_rows_exactly_once_and_in_order(
    sizes: list[int], rows_per_part: int, max_rows: int | None
) -> None:
    parts = plan(sizes, rows_per_part, max_rows)
    wanted = sum(sizes) if max_rows is None else min(max_rows, sum(sizes))
    assert [part.index for part in parts] == list(range(len(parts)))
    assert [row for part in parts for row in range(part.first_row, part.first_row + part.rows)] == list(range(wanted))
    groups = [group for part in parts for group in part.row_groups]
    assert groups == list(range(len(groups)))
    for part in parts:
        assert part.first_row == sum(sizes[: part.row_groups[0]])
        assert 0 < part.rows <= sum(sizes[group] for group in part.row_groups)
    for part in parts[:-1]:
        assert part.rows == sum(sizes[group] for group in part.row_groups)
        assert part.rows >= rows_per_part
        assert part.rows - sizes[part.row_groups[-1]] < rows_per_part  # no longer than needed


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 16), st.integers(0, 200))
def test_a_cap_only_cuts_the_plan_short(sizes: list[int], rows_per_part: int, max_rows: int) -> None:
    whole, capped = plan(sizes, rows_per_part), plan(sizes, rows_per_part, max_rows)
    assert capped[:-1] == whole[: max(len(capped) - 1, 0)]
    if capped:
        last, same = capped[-1], whole[len(capped) - 1]
        assert last.first_row == same.first_row
        assert last.rows <= same.rows
        assert last.row_groups == same.row_groups[: len(last.row_groups)]


# --- Reading ---------------------------------------------------------------------------------------------------------


def only_shard(directory: Path) -> SourceShard:
    return open_source(directory, shards=1).shards[0]


def test_batches_give_the_rows_of_each_part_back_in_order(tmp_path: Path) -> None:
    # Row groups of 300 rows over batches of 256: neither edge falls on the other.
    shard = only_shard(sources.write_source(tmp_path, [sources.rows(1000)], row_group_size=300))
    parts = plan([300, 300, 300, 100], 500, 950)
    assert as_tuples(parts) == [((0, 1), 0, 600), ((2, 3), 600, 350)]
    read: list[str | None] = []
    for part in parts:
        for batch in read_rows(shard, part):
            assert batch.first_row == len(read)
            assert len(batch) <= 256
            assert not batch.undecodable
            assert set(batch.columns) == {"metadata_json", "synth_id", "language", "exercise"}
            read += batch.columns["synth_id"]
    assert read == [f"id-{row}" for row in range(950)]


def test_the_footer_is_read_once_for_all_parts_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names every row group: to read it for each part would take longer the longer the shard is."""
    shard = only_shard(sources.write_source(tmp_path, [sources.rows(40)], row_group_size=4))
    opened: list[Path] = []
    open_whole = source.open_source_shard

    def counting(shard: SourceShard, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
        if footer is None:
            opened.append(shard.path)
        return open_whole(shard, footer)

    monkeypatch.setattr(source, "open_source_shard", counting)
    parts = plan([4] * 10, 4)
    read = [synth_id for part in parts for batch in read_rows(shard, part) for synth_id in batch.columns["synth_id"]]
    assert read == [f"id-{row}" for row in range(40)]
    assert opened == [shard.path]


def test_a_string_that_is_not_utf8_marks_its_row_and_no_other(tmp_path: Path) -> None:
    sources.write_source(tmp_path, [sources.rows(3)])
    table = pq.read_table(tmp_path / sources.shard_name(0))
    nulls, offsets, data = pa.array([b"en", b"\xff\xfe", None], pa.binary()).buffers()
    unchecked = pa.StringArray.from_buffers(3, offsets, data, nulls)
    pq.write_table(
        table.set_column(table.column_names.index("language"), "language", unchecked), tmp_path / sources.shard_name(0)
    )
    sources.write_manifest(tmp_path, 1)
    (batch,) = read_rows(only_shard(tmp_path), Part(index=0, row_groups=(0,), first_row=0, rows=3))
    assert batch.undecodable == {1}
    assert batch.columns["language"] == ["en", None, None]
    assert batch.columns["synth_id"] == ["id-0", "id-1", "id-2"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_both_kinds_of_strings_are_read(kind: pa.DataType, tmp_path: Path) -> None:
    shard = only_shard(sources.write_source(tmp_path, [sources.rows(2)], column_type=kind))
    (batch,) = read_rows(shard, Part(index=0, row_groups=(0,), first_row=0, rows=2))
    assert batch.columns["synth_id"] == ["id-0", "id-1"]


def test_a_column_that_is_there_twice_is_a_fault_of_the_file(tmp_path: Path) -> None:
    sources.write_source(tmp_path, [sources.rows(2)])
    table = pq.read_table(tmp_path / sources.shard_name(0))
    pq.write_table(
        table.append_column("messages_json", table.column("messages_json")), tmp_path / sources.shard_name(0)
    )
    sources.write_manifest(tmp_path, 1)
    with pytest.raises(SourceError, match=r"messages_json(.|\n)*where: shard 00, "):
        open_source(tmp_path, shards=1)


# --- What the manifest says ------------------------------------------------------------------------------------------


def test_the_shards_of_synth_are_as_many_as_the_option_says() -> None:
    """`pipelines/` reads the default without Spanloom, so it is written twice."""
    assert SYNTH.shards == SHARDS


def test_a_right_source_says_what_its_manifest_says(tmp_path: Path) -> None:
    opened = open_source(sources.write_source(tmp_path, [sources.rows(3), []]), shards=2)
    assert [(shard.index, shard.path.name, shard.rows) for shard in opened.shards] == [
        (0, "synth_harmony_shard_00.parquet", 3),
        (1, "synth_harmony_shard_01.parquet", 0),
    ]
    for shard in opened.shards:
        assert shard.bytes == shard.path.stat().st_size
        verify_hash(shard)


def test_the_disk_estimate_goes_by_the_conversations_whatever_stands_beside_them(tmp_path: Path) -> None:
    rows = sources.rows(50)
    plain = only_shard(sources.write_source(tmp_path / "plain", [rows]))
    wide = sources.write_source(tmp_path / "wide", [rows])
    table = pq.read_table(wide / sources.shard_name(0))
    nested = pa.array([{"a": row, "b": float(row), "c": "x"} for row in range(50)])  # three columns of the file
    pq.write_table(table.add_column(0, "nested", nested), wide / sources.shard_name(0))
    sources.write_manifest(wide, 1)
    assert text_bytes(only_shard(wide)) == text_bytes(plain) >= sum(len(row["messages_json"]) for row in rows)
