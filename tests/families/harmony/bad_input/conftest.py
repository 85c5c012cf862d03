"""Sources and datasets that more than one file here uses."""

import shutil
from pathlib import Path

import pytest

from support import sources
from support.bad_builds import build_it, source_of


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right source: 4 shards of 2 rows."""
    return source_of(tmp_path_factory.mktemp("good") / "source", *(sources.rows(2, f"s{shard}") for shard in range(4)))


@pytest.fixture
def broken(good: Path, tmp_path: Path) -> Path:
    """A copy of the right source, to be broken."""
    return Path(shutil.copytree(good, tmp_path / "source"))


@pytest.fixture(scope="module")
def with_copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`id-1` is in row 1 of shard 0 and in row 2 of shard 1, which is its only copy."""
    shards = (sources.rows(3), [*sources.rows(2, "other"), sources.row("id-1")])
    return source_of(tmp_path_factory.mktemp("copies") / "source", *shards)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(tmp_path_factory.mktemp("small") / "source", sources.rows(4))


@pytest.fixture(scope="module")
def built(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built") / "dataset"
    assert build_it(small, root).report.clean
    return root


@pytest.fixture
def standing(built: Path, tmp_path: Path) -> Path:
    """A finished dataset of its own for each test."""
    return Path(shutil.copytree(built, tmp_path / "dataset"))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return source_of(tmp_path / "other", sources.rows(2, "other"))
