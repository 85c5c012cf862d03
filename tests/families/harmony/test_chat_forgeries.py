"""Datasets of conversations and of SYNTH KD that are false and fit together, see `corruption.harmony`."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.forging import LEVELS, forged, validated
from support.nightly import nightly
from tools.corruption.harmony import manifest, masks, rows, synth, tokens
from tools.corruption.harmony.kinds import FORGERIES
from tools.corruption.harmony.made import BASES, SYNTH, maker

MODULES = (masks, tokens, rows, manifest, synth)
BY_DAY = ("flags", "last")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, asset: Path) -> Any:
    return maker(tmp_path_factory.mktemp("made"), asset)


@pytest.mark.parametrize("base", [SYNTH, *(base if base in BY_DAY else nightly(base) for base in BASES)])
def test_an_honest_dataset_written_again_is_clean(base: str, made: Any, tmp_path: Path) -> None:
    root, source = made(base)
    shutil.copytree(root, tmp_path / "root")
    forged(tmp_path / "root", lambda _: None)
    for level in LEVELS:
        report = validated(tmp_path / "root", source, level)
        assert not report.findings
        assert report.checked["documents"] > 40


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(name: str, made: Any, tmp_path: Path) -> None:
    forgery = FORGERIES[name]
    root, source = made(forgery.base)
    shutil.copytree(root, tmp_path / "root")
    forged(tmp_path / "root", forgery.forge)
    assert not validated(tmp_path / "root", source, forgery.found).clean


def test_copies_alone_are_a_warning(made: Any, tmp_path: Path) -> None:
    """A source may hold one text under many ids: without it, copies are no error."""
    root, source = made(SYNTH)
    shutil.copytree(root, tmp_path / "root")
    forged(tmp_path / "root", FORGERIES["synth_documents_are_copies"].forge)
    report = validated(tmp_path / "root", source, "alone")
    assert report.clean
    assert [finding.check for finding in report.findings] == ["copies"]


@pytest.mark.parametrize("is_synth", [False, True])
def test_the_shares_of_what_is_found(is_synth: bool) -> None:
    """What docs/reliability.md says."""
    levels = Counter(each.found for each in FORGERIES.values() if (each.base == SYNTH) is is_synth)
    assert levels["alone"] >= (0.55 if is_synth else 0.74) * levels.total()
    assert levels["alone"] + levels["source"] >= 0.85 * levels.total()
