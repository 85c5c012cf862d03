"""A source that somebody writes to while it is read stops what reads it, and nothing of it is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.building import recipe as building
from spanloom.building.shards.making import PartJob, build_key, make_part
from spanloom.conversations.source.folder import SourceShard, open_source, verify_hash
from spanloom.dataset.root.lock import claim_or_discard
from spanloom.errors import SourceError
from spanloom.families.harmony import recipe as recipes
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.convert.synth import convert_synth
from support import sources
from support.bad_builds import assert_nothing_looks_finished, build_it
from support.changed_files import change_in_place

CHANGED = (
    r"^the file was changed, replaced or touched while it was read\n  where: shard {:02d}, .*\n  remedy: run again"
)


def uncompressed(directory: Path, shards: int, rows: int = 6) -> Path:
    """A source in whose files a text can be changed by its bytes."""
    source = sources.write_source(directory, [sources.rows(rows, f"s{shard}") for shard in range(shards)])
    for path in source.glob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=False, row_group_size=2)
    sources.write_manifest(source, shards)
    return source


def test_a_shard_changed_after_it_was_hashed_stops_the_build_and_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, same rows, right Parquet: what was hashed is not what is read."""
    source = uncompressed(tmp_path / "source", 2)
    whole = build_it(source, tmp_path / "whole", shards=2)
    path = source / sources.shard_name(1)

    def hash_then_change(shard: SourceShard) -> SourceShard:
        hashed = verify_hash(shard)
        if shard.index == 1:
            change_in_place(path, b"Answer s1-4.", b"Answer s1-?.")
        return hashed

    with monkeypatch.context() as patch:
        patch.setattr(building, "verify_hash", hash_then_change)
        with pytest.raises(SourceError, match=CHANGED.format(1)):
            build_it(source, tmp_path / "out", shards=2)
    assert_nothing_looks_finished(tmp_path / "out")
    with pytest.raises(SourceError, match="the shard has sha256"):
        build_it(source, tmp_path / "out", shards=2)

    change_in_place(path, b"Answer s1-?.", b"Answer s1-4.")
    again = build_it(source, tmp_path / "out", shards=2)
    assert again.manifest.content == whole.manifest.content
    assert sources.data_files(tmp_path / "out") == sources.data_files(tmp_path / "whole")


def change_and_put_back(path: Path, read: Callable[[], Any]) -> Any:
    """What `read` gives while the file holds another text, which is gone again when it returns."""
    change_in_place(path, b"Answer s0-0.", b"Answer s0-?.")
    try:
        return read()
    finally:
        change_in_place(path, b"Answer s0-?.", b"Answer s0-0.")


def part_job(source: Path, out: Path, asset: Path) -> PartJob:
    opened = open_source(source, shards=1)
    recipe = recipes.recipe_of(
        opened, asset=asset, renderer="fast", rules=None, audit_fraction=0.0, caps=Caps(), given={}
    )
    shard = recipe.verified(opened.shards[0])
    return PartJob(
        recipe=recipe,
        build_key=build_key(recipe),
        shard=shard,
        part=next(recipe.parts(shard, shard.rows)),
        rendered=out / "rendered",
        ids=out / "ids",
        reject_limit=0,
        token_budget=None,
        resume=True,
    )


def test_a_part_read_while_the_shard_was_another_does_not_stand_though_the_shard_is_right_again(
    tmp_path: Path, asset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = uncompressed(tmp_path / "source", 1)
    path = source / sources.shard_name(0)
    job = part_job(source, tmp_path / "out", asset)
    read_rows = recipes.read_rows
    monkeypatch.setattr(recipes, "read_rows", lambda *of: iter(change_and_put_back(path, lambda: list(read_rows(*of)))))
    with pytest.raises(SourceError, match=CHANGED.format(0)):
        make_part(job)
    assert [file for file in (tmp_path / "out").rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("cut", [False, True], ids=["a bad row", "a file cut short"])
def test_a_change_is_said_to_be_one_and_not_taken_for_a_fault_of_the_rows(
    cut: bool, tmp_path: Path, asset: Path
) -> None:
    source = uncompressed(tmp_path / "source", 1)
    path = source / sources.shard_name(0)
    job = part_job(source, tmp_path / "out", asset)
    if not cut:
        change_in_place(path, b'{"messages"', b'?"messages"')
    else:
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SourceError, match=CHANGED.format(0)):
        make_part(job)


def test_a_raw_file_changed_while_it_is_converted_leaves_nothing(tmp_path: Path) -> None:
    columns = ("query", "synthetic_reasoning", "synthetic_answer", "synth_id")
    raw, out = tmp_path / "raw.parquet", tmp_path / "out"
    table = pa.table({name: [f"{name} {row}" for row in range(600)] for name in columns})
    pq.write_table(table, raw, compression="none", use_dictionary=False)

    def change(done: int, _: int) -> None:
        if done == 256:
            change_in_place(raw, b"synthetic_answer 599", b"synthetic_answer ???")

    with pytest.raises(SourceError, match=r"^the file was changed, (.|\n)*where: .*raw\.parquet"):
        convert_synth(raw=raw, out=out, on_progress=change)
    assert not out.exists()


def test_a_manifest_of_the_source_that_changes_during_a_build_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard reads it anew: all must have read the one that the build began with."""
    source = uncompressed(tmp_path / "source", 2)
    path = source / "manifest.json"

    def claim_then_change(*arguments: Any, **options: Any) -> None:
        claim_or_discard(*arguments, **options)
        path.write_bytes(path.read_bytes() + b"\n")

    with monkeypatch.context() as patch:
        patch.setattr("spanloom.building.make.claim_or_discard", claim_then_change)
        with pytest.raises(SourceError, match=r"^the source's manifest has changed since the build began"):
            build_it(source, tmp_path / "out", shards=2)
    assert_nothing_looks_finished(tmp_path / "out")
    assert build_it(source, tmp_path / "out", shards=2, resume=False).report.clean
