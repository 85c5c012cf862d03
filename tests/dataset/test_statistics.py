"""Counts by group: bins that are exact where it matters, and groups that stay bounded."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from spanloom.dataset import manifest
from spanloom.dataset.statistics import GROUPS_KEPT, LENGTH_EDGES, OTHERS, Counts, collect
from spanloom.errors import ArtifactError, SpanloomError
from support import synthetic

COLUMNS = ("language", "exercise")


def test_length_bins_are_exact_to_128_and_at_powers_of_two_and_never_wider_than_a_64th() -> None:
    edges = LENGTH_EDGES.tolist()
    assert edges[:128] == list(range(1, 129))
    assert {2**power for power in range(32)} <= set(edges)
    assert all(b - a <= a / 64 for a, b in pairwise(edges[64:]))


def counts(lengths: list[int]) -> Counts:
    bins = np.bincount(np.searchsorted(LENGTH_EDGES, lengths), minlength=LENGTH_EDGES.size)
    return Counts(
        sequences=len(lengths), span_tokens={"context": sum(lengths)}, longest=max(lengths, default=0), lengths=bins,
        ratios=np.zeros(0, dtype=np.int64), without={},
    )  # fmt: skip


def test_quantiles_and_what_fits_of_a_few_lengths() -> None:
    few = counts([1, 2, 3, 100, 2048, 2049])
    assert [few.quantile(share) for share in (0.01, 0.5, 0.51, 5 / 6, 1)] == [1, 3, 100, 2048, 2049]
    assert [few.fitting(limit) for limit in (1, 2, 64, 2048, 4096)] == [1, 2, 3, 5, 6]
    assert counts([]).quantile(0.5) is None
    assert counts([]).mean_length is None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_dataset(tmp_path_factory.mktemp("synthetic") / "root", 4000, exercises=GROUPS_KEPT + 500)


def test_beyond_the_kept_groups_documents_are_counted_together_and_none_is_lost(root: Path) -> None:
    content = manifest.read(root).content
    counted = collect(root, content, [("exercise",), ("split", "exercise"), ()], columns=COLUMNS)
    (total,) = counted[()].values()
    for by in (("exercise",), ("split", "exercise")):
        groups = counted[by]
        assert len(groups) == GROUPS_KEPT + 1
        assert groups[(OTHERS,) * len(by)].sequences > 1
        assert sum(group.sequences for group in groups.values()) == total.sequences == 4000
        assert sum(group.tokens for group in groups.values()) == total.tokens
        assert sum(group.lengths for group in groups.values()).tolist() == total.lengths.tolist()


def test_a_missing_value_is_a_group_of_its_own_and_comes_last(root: Path) -> None:
    groups = collect(root, manifest.read(root).content, [("language",)], columns=COLUMNS)[("language",)]
    assert [key[0] for key in groups] == ["de", "en", "es", "fr", "it", "pl", None]
    nulls = sum(
        pq.read_table(path, columns=["language"])["language"].null_count for path in root.glob("*/*_rows.parquet")
    )
    assert groups[(None,)].sequences == nulls > 0


def test_unknown_groups_and_unreadable_rows_are_errors(root: Path, tmp_path: Path) -> None:
    content = manifest.read(root).content
    with pytest.raises(SpanloomError, match="cannot group by 'colour'"):
        collect(root, content, [("colour",)], columns=COLUMNS)
    with pytest.raises(ArtifactError, match="the rows of this shard cannot be read"):
        collect(tmp_path, content, [()])
