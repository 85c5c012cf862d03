"""Honest datasets for published models have no findings, with all conversations rendered again."""

from pathlib import Path

import pytest

import spanloom
from spanloom.families.models.errors import ModelError
from support.drawn_chats import drawn_record
from support.model_datasets import record, stored, write_conversations
from support.model_material import Pair, write_pair
from support.nightly import drawn, nightly

DRAWN = drawn(nightly=25, otherwise=8)
IN_CI = ("lcpp_openai-gpt-oss-120b",)
"""By day. Of GLM `test_root.py` builds one."""


@pytest.mark.parametrize("seed", [0, *map(nightly, range(1, 4))])
def test_honest_datasets_have_no_findings(seed: int, model_material: list[Pair], tmp_path: Path) -> None:
    every = seed > 0
    built = 0
    unmade = []
    for pair in model_material:
        if not every and pair.template not in IN_CI:
            continue
        rows = [stored(drawn_record(seed * DRAWN + number)) for number in range(DRAWN)]
        rows += [stored(record(seed * DRAWN + number)) for number in range(DRAWN)]
        folder = tmp_path / pair.template
        folder.mkdir()
        source = write_conversations(folder / "source", [rows])
        try:
            result = spanloom.build(
                source,
                folder / "root",
                model=write_pair(pair, folder / "model"),
                stop=pair.stops,
                inline_think=bool(seed % 2),
                control_texts=("refuse", "as-served", "text")[seed % 3],
                date="2025-01-01",
                max_rejects="100%",
                on_duplicate="keep",
                deep=10**6,
                reader="independent",
            )
        except ModelError as fault:  # the template renders none of them
            unmade.append((pair.template, fault.what))
            continue
        assert result.report.clean, (pair.template, result.report.findings[:3])
        built += 1
    assert built >= len(IN_CI), unmade
