"""The valid fraction's interval, what a report says of a broken dataset, and that equal builds report the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from spanloom.dataset import manifest
from spanloom.dataset.facts import dataset_facts, wilson_interval
from spanloom.dataset.manifest import Manifest
from spanloom.families.harmony import dataset as harmony
from spanloom.findings import Finding, Report
from spanloom.report.pages.html import percent
from spanloom.report.pages.report import report_page


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # Worked by hand from the formula's limits, and the textbook case of 10 in 20 (Newcombe 1998 prints 81 of 263).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilsons_interval_is_that_of_the_literature(hits: int, trials: int, low: float, high: float) -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert wilson_interval(hits, trials) == pytest.approx((low, high), abs=5e-5)


def test_of_nothing_the_interval_says_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0 %"), (1, "100 %"), (0.5, "50.0 %"), (0.99999, "99.9 %"), (0.0000123, "0.0012 %"), (None, "–")],
)
def test_only_all_is_100_percent_and_only_nothing_is_0(value: float | None, said: str) -> None:
    assert percent(value) == said


def page_of(facts: dict[str, Any], root: Path) -> str:
    return report_page(facts, harmony.describe(manifest.read(root).content), harmony.GROUP_COLUMNS)


def test_a_report_of_a_dataset_whose_rows_are_gone_says_so_and_lists_the_findings(demo: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(demo, tmp_path / "root"))
    (root / "train/shard_01_rows.parquet").unlink()
    report = Report(checked={"documents": 3}, findings=[])
    report.add([Finding(check="inventory", message="the file is missing", file="train/shard_01_rows.parquet")] * 30)
    facts = dataset_facts(root, manifest.read(root), harmony, report)
    assert facts["statistics"] is None
    page = page_of(facts, root)
    assert "30 findings" in page
    assert page.count("<strong>inventory</strong>") == 20
    assert "There are no statistics: the rows of this shard cannot be read" in page
    assert page.index("30 findings") < page.index("Provenance")


def test_outside_environment_the_report_is_a_function_of_the_content(demo: Path, tmp_path: Path) -> None:
    """Another root, another day, another machine: the same facts, and pages that differ only where they tell of it."""
    root = Path(shutil.copytree(demo, tmp_path / "elsewhere"))
    written = manifest.read(root)
    report = Report(checked={"documents": 231})
    one = dataset_facts(demo, written, harmony, report)
    other_day = {"created_at": "2031-01-01", "libraries": {}, "machine": {}}
    two = dataset_facts(
        root, written.model_copy(update={"environment": other_day}), harmony, report, timings={"validate": 9.0}
    )
    assert {**one, "environment": 0} == {**two, "environment": 0}
    assert page_of(one, demo) == page_of(json.loads(json.dumps(one)), demo)
    assert page_of({**two, "environment": one["environment"]}, root) == page_of(one, demo)


def test_an_empty_dataset_has_a_report(tmp_path: Path, demo: Path) -> None:
    written = manifest.read(demo).as_dict()
    nothing = {
        "sequences": 0,
        "tokens": 0,
        "span_tokens": dict.fromkeys(("context", "analysis", "final"), 0),
        "longest": 0,
    }
    nothing |= {"fitting": {}, "files": []}
    content = {**written["content"], "shards": [], "totals": {"rows_read": 0, "rejected": {}, "splits": {}}}
    content["totals"]["splits"] = {"train": nothing, "valid": nothing}
    facts = dataset_facts(tmp_path, Manifest.model_validate({**written, "content": content}), harmony, Report())
    assert facts["statistics"]["total"] is None
    assert "Clean" in page_of(facts, demo)
