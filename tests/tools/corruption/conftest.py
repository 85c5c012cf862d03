"""A clean dataset to be edited, once for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.requirements import SUPERVISION, absent
from tools.chaos import supervisor
from tools.corruption.trial import Bench, clean_dataset


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, asset: Path) -> Iterator[Bench]:
    """Copies of a clean dataset and its source, and `validate` on them."""
    if why := supervisor.supported():
        absent(SUPERVISION, why)
    with clean_dataset(tmp_path_factory.mktemp("corruption")) as bench:
        yield bench
