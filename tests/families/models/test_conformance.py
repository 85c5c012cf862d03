"""The table of docs/families/models.md says what the probe says."""

from pathlib import Path

import pytest

from support.model_material import Pair
from support.model_page import HEAD, PAGE, rows, table_in
from support.nightly import drawn


@pytest.mark.slow
def test_the_page_has_what_is_proven_of_each_pair(model_material: list[Pair], tmp_path: Path) -> None:
    table = table_in(PAGE.read_text())
    assert table.startswith(HEAD)
    for line in rows(tmp_path, every=drawn(nightly=1, otherwise=10)):
        assert line in table
    assert len(table.splitlines()) == len(HEAD.splitlines()) + len(model_material)


def test_the_page_counts_no_pair_twice() -> None:
    lines = table_in(PAGE.read_text()).removeprefix(HEAD).splitlines()
    names = [tuple(line.split(" | ")[:3]) for line in lines]
    assert names
    assert len(set(names)) == len(names)
