"""What validation finds: consistent forgeries one by one, edits of files and manifest leaves by a sample.

SPANLOOM_CORRUPTION=all takes every edit and input, as `python -m tools.corruption` does; SPANLOOM_CORRUPTION_SEED draws
another sample. What cannot be found says why (`why` of an `Edit`).
"""

import json
import os
import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

from support.nightly import drawn as nights
from support.nightly import nightly
from tools.corruption.dataset import read
from tools.corruption.files import file_edits
from tools.corruption.forgeries import forgeries
from tools.corruption.hostile import answers, single_values, whole_files
from tools.corruption.leaves import leaf_edits
from tools.corruption.trial import ROOT, SOURCE, Bench, Edit

pytestmark = pytest.mark.slow

ALL = os.environ.get("SPANLOOM_CORRUPTION") == "all"
SEED = os.environ.get("SPANLOOM_CORRUPTION_SEED", "20261")

T = TypeVar("T")


def drawn(things: Sequence[T], count: int) -> list[T]:
    """`count` of them by the seed, or all, in order."""
    if ALL:
        return list(things)
    chosen = sorted(random.Random(SEED).sample(range(len(things)), count))
    return [things[index] for index in chosen]


def test_what_was_not_edited_is_clean(bench: Bench) -> None:
    bench.reset()
    run = bench.validate()
    assert run.code == 0, run.output


def test_a_dataset_written_back_as_it_was_is_the_same_and_clean(bench: Bench) -> None:
    """So every finding below is about the edit, and not about how it was written."""
    folder = bench.reset()
    before = json.loads((folder / ROOT / "manifest.json").read_bytes())["content"]
    arrays = {path.name: path.read_bytes() for path in (folder / ROOT / "train").glob("*.bin")}
    read(folder / ROOT).write()
    after = json.loads((folder / ROOT / "manifest.json").read_bytes())["content"]
    for content in (before, after):
        for shard in content["shards"]:
            for split in shard["splits"].values():
                # Another writer of Parquet, other bytes.
                split["files"] = [file for file in split["files"] if not file["path"].endswith(".parquet")]
    assert after == before
    assert {path.name: path.read_bytes() for path in (folder / ROOT / "train").glob("*.bin")} == arrays
    run = bench.validate()
    assert run.code == 0, run.output


@pytest.mark.parametrize(
    "edit",
    [edit if number % 3 == 0 else nightly(edit) for number, edit in enumerate(forgeries())],
    ids=lambda edit: edit.name,
)
def test_a_consistent_forgery_is_found(bench: Bench, edit: Edit) -> None:
    """But for those that nothing contradicts, which are not found and say why."""
    outcome = bench.try_edit(edit)
    assert outcome.crash is None
    assert outcome.found == (edit.why is None), outcome.by


def held(bench: Bench, edits: Sequence[Edit]) -> list[str]:
    """Edits that are not found, though they could be."""
    wrong = []
    for edit in edits:
        outcome = bench.try_edit(edit)
        if edit.why is None and not outcome.found:
            wrong.append(f"{outcome.crash or 'not found'}: {edit}")
    return wrong


def test_edits_of_manifest_leaves_are_found(bench: Bench) -> None:
    manifest = json.loads((bench.reset() / ROOT / "manifest.json").read_bytes())
    edits = list(leaf_edits(manifest))
    assert len(edits) > 261
    assert held(bench, drawn(edits, nights(14, 7))) == []


def test_damaged_files_are_found(bench: Bench) -> None:
    edits = list(file_edits())
    assert held(bench, drawn(edits, nights(14, 7))) == []


@pytest.mark.parametrize("kind", [nightly("whole files"), "single values"])
def test_hostile_inputs_end_in_a_clear_answer(bench: Bench, kind: str) -> None:
    folder = bench.reset()
    manifests = [json.loads((folder / name / "manifest.json").read_bytes()) for name in (ROOT, SOURCE)]
    inputs = whole_files() if kind == "whole files" else single_values(*manifests)
    unclear = [
        f"{command}: {given}: {fault}"
        for given in drawn(inputs, nights(7, 4))
        for command, fault in answers(bench, given)
        if fault is not None
    ]
    assert unclear == []
