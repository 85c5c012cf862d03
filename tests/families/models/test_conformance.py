"""The table of docs/families/models.md says what the probe says."""

from pathlib import Path

import pytest

from support.model_material import Pair, stand_ins
from support.model_page import HEAD, PAGE, divided, grouped, rows, table_in
from support.nightly import drawn


@pytest.mark.slow
def test_the_page_has_what_is_proven_of_each_pair(model_material: list[Pair], tmp_path: Path) -> None:
    table = table_in(PAGE.read_text())
    assert table.startswith(HEAD)
    lines = list(divided(table.removeprefix(HEAD)))
    every = [*model_material, *stand_ins()]
    # A tokenizer takes seconds to load: by day three templates of one.
    for line in rows(tmp_path, every[: drawn(nightly=len(every), otherwise=3)]):
        assert line in lines
    assert len(lines) == len(every)


def test_the_page_counts_no_pair_twice() -> None:
    table = table_in(PAGE.read_text()).removeprefix(HEAD)
    names = [tuple(line.split(" | ")[:3]) for line in divided(table)]
    assert names
    assert len(set(names)) == len(names)


def test_templates_with_equal_results_share_a_line() -> None:
    lines = [f"| t | true | {name} | {proven} | none |\n" for name, proven in (("a", 1), ("b", 2), ("c", 1))]
    table = grouped(lines)
    assert table == "| t | true | a, c | 1 | none |\n| t | true | b | 2 | none |\n"
    assert sorted(divided(table)) == sorted(lines)
