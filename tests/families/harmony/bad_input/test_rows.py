"""A bad row stops a build and is named, or is set aside within the limit of --max-rejects."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloom.errors import RejectedRowError, SpanloomError
from spanloom.families.harmony.steps.render_shard import Rendering
from spanloom.workers import Pool, process_pool
from support import sources
from support.bad_builds import (
    BAD_ROWS,
    FINE_ROWS,
    assert_nothing_looks_finished,
    build_it,
    sequences,
    stored_rows,
    write_cells,
)
from support.rendered_shards import render_shard


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with process_pool(1) as opened:
        yield opened


@pytest.mark.parametrize("name", BAD_ROWS)
def test_the_first_bad_row_stops_the_step_and_is_named(name: str, pool: Pool, tmp_path: Path) -> None:
    bad = BAD_ROWS[name]
    source = write_cells(tmp_path / "source", [*sources.rows(3), bad.row(), sources.row("last")])
    folders = {"rendered": tmp_path / "rendered", "ids": tmp_path / "ids"}
    where = rf"shard 00, .*\.parquet, row 3, synth_id {re.escape(repr(bad.synth_id))}"
    remedy = r"fix the row, or let the build set bad rows aside with --max-rejects N \(or 0\.1%\)"
    with pytest.raises(RejectedRowError, match=rf"^{bad.reason}: {bad.detail}\n  where: {where}\n  remedy: {remedy}$"):
        render_shard(source, 0, **folders, pool=pool, rendering=Rendering(shards=1))
    assert [list(folder.iterdir()) for folder in folders.values()] == [[], []]


@pytest.mark.parametrize("name", ["messages not UTF-8", "a megabyte of spaces"])
def test_a_bad_row_stops_the_build_until_it_may_be_set_aside(name: str, tmp_path: Path) -> None:
    bad = BAD_ROWS[name]
    source = write_cells(tmp_path / "source", sources.rows(2, "fine"), [*sources.rows(2), bad.row()])
    where = rf"shard 01, .*\.parquet, row 2, synth_id {re.escape(repr(bad.synth_id))}"
    with pytest.raises(
        RejectedRowError, match=rf"^{bad.reason}: {bad.detail}\n  where: {where}\n  remedy: fix the row"
    ):
        build_it(source, tmp_path / "out", shards=2)
    assert_nothing_looks_finished(tmp_path / "out")
    assert not (tmp_path / "out/train").exists()

    result = build_it(source, tmp_path / "out", shards=2, max_rejects="1")  # the remedy, into the same root
    assert result.report.clean, result.report.findings
    assert sequences(result) == [2, 2]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shard 0 alternates right rows (even) and every bad row (odd); shard 1 holds every odd but right row."""
    zero: list[sources.Row] = []
    for number, bad in enumerate(BAD_ROWS.values()):
        zero += (sources.row(f"good-{number}"), bad.row(f"bad-{number}"))
    one = [{**sources.row(f"fine-{number}"), **columns} for number, columns in enumerate(FINE_ROWS.values())]
    return write_cells(tmp_path_factory.mktemp("mixed") / "source", zero, one)


def test_bad_rows_that_are_allowed_are_set_aside_one_by_one_and_all_right_rows_stay(
    mixed: Path, tmp_path: Path
) -> None:
    result = build_it(mixed, tmp_path / "out", shards=2, max_rejects="100", deep=32)
    assert result.report.clean, result.report.findings
    lines = (tmp_path / "out/rejects/shard_00.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert [(line["shard"], line["row"], line["synth_id"], line["reason"]) for line in rejects] == [
        (0, 2 * number + 1, f"bad-{number}" if bad.synth_id == "bad" else bad.synth_id, bad.reason)
        for number, bad in enumerate(BAD_ROWS.values())
    ]
    for line, bad in zip(rejects, BAD_ROWS.values(), strict=True):
        assert re.fullmatch(bad.detail, line["detail"])
    assert not (tmp_path / "out/rejects/shard_01.jsonl").exists()

    totals = sources.content(tmp_path / "out")["totals"]
    assert totals["rejected"] == Counter(bad.reason for bad in BAD_ROWS.values())
    assert totals["rejected"] == {
        "synth_id_missing": 5,
        "synth_id_mismatch": 2,
        "synth_id_not_string": 2,
        "metadata_json_invalid": 2,
        "messages_json_missing": 1,
        "messages_json_invalid": 4,
        "duplicate_key": 4,
        "not_utf8": 4,
        "no_messages_list": 3,
        "no_messages": 1,
        "no_assistant": 1,
        "message_not_object": 1,
        "role_unknown": 3,
        "channel_unknown": 3,
        "renderer_refused": 6,
    }
    assert totals["rows_read"] == 2 * len(BAD_ROWS) + len(FINE_ROWS)
    assert stored_rows(tmp_path / "out", 0) == {2 * number: f"good-{number}" for number in range(len(BAD_ROWS))}
    assert stored_rows(tmp_path / "out", 1) == {number: f"fine-{number}" for number in range(len(FINE_ROWS))}


def test_one_bad_row_more_than_allowed_stops_the_build(mixed: Path, tmp_path: Path) -> None:
    allowed = len(BAD_ROWS) - 1
    where = rf"shard 00, .*\.parquet, row {2 * allowed + 1}, synth_id 'bad-{allowed}'"
    said = rf"^not_utf8: .* \(more than {allowed} rows rejected\)\n  where: {where}\n  remedy: "
    with pytest.raises(RejectedRowError, match=said):
        build_it(mixed, tmp_path / "out", shards=2, max_rejects=str(allowed))
    assert_nothing_looks_finished(tmp_path / "out")
    assert not (tmp_path / "out/rejects").exists()


def test_a_percentage_of_rejects_is_of_the_rows_of_the_shard(pool: Pool, tmp_path: Path) -> None:
    bad = BAD_ROWS["role tool"]

    def rendered(bad_rows: int) -> dict[str, Any]:
        rows = [*(bad.row(f"bad-{number}") for number in range(bad_rows)), *sources.rows(20 - bad_rows)]
        here = tmp_path / str(bad_rows)
        source = write_cells(here / "source", rows)
        folders = {"rendered": here / "rendered", "ids": here / "ids"}
        return render_shard(source, 0, **folders, pool=pool, rendering=Rendering(shards=1, max_rejects="10%"))

    assert rendered(2)["rejected"] == {"role_unknown": 2}
    with pytest.raises(RejectedRowError, match=r"\(more than 2 rows rejected\)\n  where: shard 00, .*, row 2, "):
        rendered(3)


@pytest.mark.parametrize("limit", ["x", "", "%", "-1", "-1%", "101%", "0.5", "1%%", "NaN", "Infinity"])
def test_a_limit_of_rejects_that_is_no_number_or_share_is_refused_before_any_work(
    limit: str, good: Path, tmp_path: Path
) -> None:
    said = rf"^--max-rejects takes a whole number of rows per shard or a percentage such as 0\.1%, not '{limit}'$"
    with pytest.raises(SpanloomError, match=said):
        build_it(good, tmp_path / "out", shards=4, max_rejects=limit)
    assert not (tmp_path / "out").exists()
