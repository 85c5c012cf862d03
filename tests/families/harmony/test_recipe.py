"""Which parts a resumed build keeps: those whose key is that of the part it would render now."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanloom.building.shards.making import PartJob, build_key
from spanloom.conversations.source.folder import SourceShard, open_source
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.recipe import HarmonyRecipe, recipe_of
from support import sources


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> SourceShard:
    folder = sources.write_source(tmp_path_factory.mktemp("source"), [sources.rows(5), sources.rows(9, "other")])
    return open_source(folder, shards=2).shards[1]


def recipe(shard: SourceShard, **changes: Any) -> HarmonyRecipe:
    options: dict[str, Any] = {
        "asset": Path("o200k_base.tiktoken"),
        "renderer": "fast",
        "rules": None,
        "audit_fraction": 0.1,
        "caps": Caps(),
        "given": {},
    }
    return recipe_of(open_source(shard.path.parent, shards=2), **{**options, **changes})


def job(shard: SourceShard, rows: int = 9, **changes: Any) -> PartJob:
    this = recipe(shard, **changes)
    (part,) = this.parts(shard, rows)
    return PartJob(
        recipe=this,
        build_key=build_key(this),
        shard=shard,
        part=part,
        rendered=Path("rendered"),
        ids=Path("ids"),
        reject_limit=0,
        token_budget=None,
        resume=True,
    )


@pytest.mark.parametrize(
    "change",
    [{"renderer": "harmony"}, {"rules": CutRules()}, {"audit_fraction": 0.2}, {"audit_fraction": 0.0}, {"rows": 8}],
    ids=str,
)
def test_whatever_decides_the_bytes_of_a_part_or_how_they_were_checked_changes_its_key(
    change: dict[str, Any], shard: SourceShard
) -> None:
    assert job(shard, **change).key != job(shard).key


def test_another_shard_and_another_rest_of_the_budget_are_other_keys(shard: SourceShard) -> None:
    this = job(shard)
    changed = replace(this, part=next(recipe(shard).parts(replace(shard, sha256="b" * 64), 9)))
    others = [replace(this, shard=replace(shard, index=0)), replace(this, token_budget=100), changed]
    assert len({this.key, *(other.key for other in others)}) == 4


def test_other_rules_for_cutting_are_another_key(shard: SourceShard) -> None:
    keys = {job(shard, rules=CutRules(history=history)).key for history in ("serve", "openai-harmony", "keep")}
    assert len(keys) == 3


def test_where_things_lie_and_what_may_be_rejected_do_not(shard: SourceShard) -> None:
    this = job(shard)
    elsewhere = job(shard, asset=Path("elsewhere"), given={"source": "elsewhere"})
    moved = replace(this, rendered=Path("elsewhere"), ids=Path("elsewhere"), reject_limit=5, resume=False)
    assert this.key == elsewhere.key == moved.key
