"""An id that is duplicate stops a build, unless copies are to be kept."""

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spanloom.errors import DuplicateIdError
from support import sources
from support.bad_builds import assert_nothing_looks_finished, build_it, lines_to, sequences, source_of

REMEDY_FOR_COPIES = "remedy: fix the source, or accept and count copies with --on-duplicate keep"


def test_an_id_that_stands_twice_in_a_shard_stops_the_build_until_copies_are_kept(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", [*sources.rows(3), sources.row("id-1")])
    where = "shard 00, row 1 and shard 00, row 3"
    with pytest.raises(DuplicateIdError, match=f"^duplicate synth_id 'id-1'\n  where: {where}\n  {REMEDY_FOR_COPIES}$"):
        build_it(source, tmp_path / "out")
    assert_nothing_looks_finished(tmp_path / "out")
    assert not (tmp_path / "out/train").exists()

    result = build_it(source, tmp_path / "out", on_duplicate="keep")  # the remedy, into the same root
    assert result.report.clean, result.report.findings
    assert sequences(result) == [4]


def test_an_id_that_stands_in_two_shards_stops_the_build(with_copies: Path, tmp_path: Path) -> None:
    where = "shard 00, row 1 and shard 01, row 2"
    with pytest.raises(DuplicateIdError, match=f"^duplicate synth_id 'id-1'\n  where: {where}\n  {REMEDY_FOR_COPIES}$"):
        build_it(with_copies, tmp_path / "out", shards=2)
    assert_nothing_looks_finished(tmp_path / "out")


def test_copies_that_are_kept_are_counted_and_stand_in_one_split(with_copies: Path, tmp_path: Path) -> None:
    said = io.StringIO()
    result = build_it(with_copies, tmp_path / "out", shards=2, on_duplicate="keep", progress=lines_to(said))
    assert result.report.clean, result.report.findings
    assert sources.content(tmp_path / "out")["split"]["repeated_rows"] == 1
    assert "warning: 1 rows repeat an id that an earlier row has; all were kept" in said.getvalue()
    holding = [
        path.parent.name
        for path in sorted((tmp_path / "out").glob("*/*_rows.parquet"))
        if "id-1" in pq.read_table(path).column("synth_id").to_pylist()
    ]
    assert len(holding) == 2
    assert len(set(holding)) == 1
