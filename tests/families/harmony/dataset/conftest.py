"""A source of two shards, a dataset built of it, and a copy that a test may damage."""

import shutil
from pathlib import Path

import pytest

from spanloom.families.harmony.build import BuildOptions, build
from support import sources


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four documents of shard 1 say what another says: three of shard 0, one of the same shard."""
    shards = [sources.rows(30, prefix=f"s{shard}") for shard in range(2)]
    for copy, (shard, original) in {3: (0, 3), 4: (0, 29), 12: (0, 29), 20: (1, 21)}.items():
        shards[1][copy]["messages_json"] = shards[shard][original]["messages_json"]
    return sources.write_source(tmp_path_factory.mktemp("source"), shards, row_group_size=8)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, source: Path, asset: Path) -> Path:
    root = tmp_path_factory.mktemp("built") / "root"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_GIT_SHA", "0" * 40)
        result = build(BuildOptions(source=source, out=root, shards=2, valid_fraction=0.3, workers=1, tokenizer=asset))
    assert result.report.clean
    return root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(built, tmp_path / "root"))
