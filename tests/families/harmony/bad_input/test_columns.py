"""Columns that break the contract of synth_harmony_v1 stop a build before any work; others may differ."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import SourceError
from support import sources
from support.bad_builds import build_it, stored_rows


def rewritten(source: Path, shard: int, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes one shard anew with other columns, and a manifest that fits."""
    path = source / sources.shard_name(shard)
    pq.write_table(change(pq.read_table(path)), path)
    sources.write_manifest(source)


def of_type(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


COLUMN_FAULTS = [
    pytest.param(lambda t: t.drop_columns(["messages_json"]), "the column messages_json is missing", id="no messages"),
    pytest.param(
        of_type("messages_json", pa.array([1, 2])),
        "the column messages_json is int64, not text",
        id="messages int64",
    ),
    pytest.param(
        of_type("messages_json", pa.array([b"{}", b"{}"])),
        "the column messages_json is binary, not text",
        id="messages binary",
    ),
    pytest.param(
        of_type("synth_id", pa.array([1, 2])),
        "the column synth_id is int64, not text",
        id="synth_id int64",
    ),
    pytest.param(
        of_type("metadata_json", pa.array([{"synth_id": "s2-0"}, {"synth_id": "s2-1"}])),
        r"the column metadata_json is struct<synth_id: string>, not text",
        id="metadata struct",
    ),
    pytest.param(
        lambda t: t.drop_columns(["synth_id", "metadata_json"]),
        "neither synth_id nor metadata_json is a column",
        id="no id",
    ),
]


@pytest.mark.parametrize(("change", "what"), COLUMN_FAULTS)
def test_a_fault_of_a_column_stops_before_any_work_whatever_may_be_rejected(
    change: Callable[[pa.Table], pa.Table], what: str, broken: Path, tmp_path: Path
) -> None:
    rewritten(broken, 2, change)
    where = r"shard 02, .*source/synth_harmony_shard_02\.parquet"
    remedy = r"the columns of synth_harmony_v1 are described in docs/format\.md"
    with pytest.raises(SourceError, match=rf"^{what}\n  where: {where}\n  remedy: {remedy}$"):
        build_it(broken, tmp_path / "out", shards=4, max_rejects="100%")
    assert not (tmp_path / "out").exists()


def test_shards_may_differ_in_their_columns_as_far_as_the_contract_goes(broken: Path, tmp_path: Path) -> None:
    def with_extra_columns(table: pa.Table) -> pa.Table:
        nested = pa.array([{"a": 1, "b": [1.5], "c": "x"}, None])
        return table.add_column(0, "nested", nested).append_column("score", pa.array([b"\xff", None]))

    rewritten(broken, 0, lambda t: t.cast(pa.schema([(name, pa.large_string()) for name in t.column_names])))
    rewritten(broken, 1, lambda t: t.select(["messages_json", "metadata_json"]))
    rewritten(broken, 2, with_extra_columns)
    rewritten(broken, 3, lambda t: t.select(["synth_id", "messages_json"]))
    result = build_it(broken, tmp_path / "out", shards=4, deep=8)
    assert result.report.clean, result.report.findings
    assert [stored_rows(tmp_path / "out", shard) for shard in range(4)] == [
        {0: f"s{shard}-0", 1: f"s{shard}-1"} for shard in range(4)
    ]
