"""Which parts a resumed build keeps: those whose key is that of the part it would render now."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.source.folder import Part, SourceShard
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.families.harmony.render.part import PartJob

SHARD = SourceShard(format=SYNTH_KD.source, index=1, path=Path("shard.parquet"), rows=9, bytes=900, sha256="a" * 64)
PART = Part(index=2, row_groups=(4, 5), first_row=3, rows=4)
JOB = PartJob(
    shard=SHARD,
    part=PART,
    rendered=Path("rendered"),
    ids=Path("ids"),
    asset=Path("o200k_base.tiktoken"),
    renderer="fast",
    rules=None,
    audit_stride=10,
    audit_share=0.05,
    audit_floor=200_000,
    reject_limit=0,
    token_budget=None,
    resume=True,
)


@pytest.mark.parametrize(
    "change",
    [
        {"shard": replace(SHARD, sha256="b" * 64)},
        {"shard": replace(SHARD, index=0)},
        {"part": replace(PART, row_groups=(4,))},
        {"part": replace(PART, first_row=2)},
        {"part": replace(PART, rows=5)},
        {"renderer": "harmony"},
        {"rules": CutRules()},
        {"audit_stride": 0},
        {"audit_share": 1.0},
        {"audit_floor": 0},
        {"token_budget": 100},
    ],
    ids=",".join,
)
def test_whatever_decides_the_bytes_of_a_part_or_how_they_were_checked_changes_its_key(change: dict[str, Any]) -> None:
    assert replace(JOB, **change).key != JOB.key


def test_other_rules_for_cutting_are_another_key() -> None:
    keys = {replace(JOB, rules=CutRules(history=history)).key for history in ("serve", "openai-harmony", "keep")}
    assert len(keys) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"shard": replace(SHARD, path=Path("elsewhere/shard.parquet"))},
        {"rendered": Path("elsewhere")},
        {"ids": Path("elsewhere")},
        {"asset": Path("elsewhere")},
        {"reject_limit": 5},
        {"resume": False},
    ],
    ids=",".join,
)
def test_where_things_lie_and_what_may_be_rejected_do_not(change: dict[str, Any]) -> None:
    assert replace(JOB, **change).key == JOB.key
