"""`teacher stats` on a dataset with languages: means are those of labels that are read and counted one by one."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spanloom.errors import ArtifactError, SpanloomError
from spanloom.megatron.independent import IndependentDataset
from spanloom.teacher.format import OWN
from spanloom.teacher.looking.statistics import group_scores
from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.signals import Signals
from spanloom.teacher.sources.teacher import Answered, unnoticed
from support import warm

COLUMNS = ("language", "exercise")
CONTEXT = 2_000
EVEN, ODD = (0.6, 0.3), (0.5, 0.25)
"""Probabilities of the top 2 where the label is even and odd."""

OWN_OF_ODD = 0.2


class Table:
    """A teacher whose first choice is the label where its id is even, and never where it is odd."""

    identity: dict[str, Any] = {"source": "table"}  # noqa: RUF012
    context, padded, tolerance, at_once = CONTEXT, 0, 1e-6, 1 << 19

    def scores(self, documents: Sequence[ScoredDocument], k: int, answered: Answered = unnoticed) -> list[Signals]:  # noqa: ARG002
        assert k == len(EVEN)
        return [self._of(each.labels) for each in documents]

    def _of(self, labels: Any) -> Signals:
        even = labels % 2 == 0
        ids = np.stack([np.where(even, labels, labels - 1), np.where(even, labels + 1, labels - 2) % 100_000], axis=1)
        logprobs = np.log(np.where(even[:, None], EVEN, ODD)).astype(np.float32)
        own = np.log(np.where(even, EVEN[0], OWN_OF_ODD)).astype(np.float32)
        rest = np.log(np.where(even, 1 - sum(EVEN), 1 - sum(ODD))).astype(np.float32)
        return Signals(ids=ids.astype(np.int32), logprobs=logprobs, own=own, rest=rest)


@pytest.fixture(scope="module")
def signals(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stats") / "signals"
    content, _ = score(demo, out, Table(), Scoring(k=2))
    assert content.without, "some documents are longer than the context"
    return out


def entropy(first: float, second: float) -> float:
    return -sum(each * math.log(each) for each in (first, second, 1 - first - second))


def counted(root: Path, by: Sequence[str]) -> dict[tuple[str | None, ...], tuple[int, int]]:
    """Labels of each group, and how many of them are even, document by document."""
    found: dict[tuple[str | None, ...], list[int]] = defaultdict(lambda: [0, 0])
    names = ("context", "analysis", "final")
    for rows in sorted(root.glob("*/shard_*_rows.parquet")):
        prefix = str(rows).removesuffix("_rows.parquet")
        tokens, mask, span = (IndependentDataset(Path(f"{prefix}_{name}")) for name in ("tokens", "lossmask", "span"))
        for number, row in enumerate(pq.read_table(rows).to_pylist()):
            ids, places = tokens.get(number), np.flatnonzero(mask.get(number))
            if places.size and places[-1] + 1 > CONTEXT:
                continue
            about = {**row, "split": rows.parent.name, "shard": rows.name[6:8]}
            for place in places.tolist():
                key = tuple(names[span.get(number)[place]] if name == "span" else about[name] for name in by)
                found[key][0] += 1
                found[key][1] += int(ids[place + 1]) % 2 == 0
    return {key: (labels, even) for key, (labels, even) in found.items()}


@pytest.mark.parametrize("by", [("language",), ("span", "exercise"), ("split", "shard"), ()], ids=",".join)
def test_means_of_each_group(demo: Path, signals: Path, by: tuple[str, ...]) -> None:
    found = group_scores(signals, demo, by, COLUMNS)
    expected = counted(demo, by)
    assert found.keys() == expected.keys()
    for key, (labels, even) in expected.items():
        share = even / labels
        each = found[key]
        assert each.labels == labels
        assert each.agreement == pytest.approx(share, abs=1e-12)
        assert each.mean == pytest.approx(share * math.log(0.6) + (1 - share) * math.log(OWN_OF_ODD), abs=1e-3)
        assert each.entropy == pytest.approx(share * entropy(*EVEN) + (1 - share) * entropy(*ODD), abs=1e-3)


def test_the_command(demo: Path, signals: Path) -> None:
    words = ("teacher", "stats", str(signals), "--dataset", str(demo), "--by", "language,span")
    listed = json.loads(warm.run("spanloom", *words, "--json", env=os.environ).stdout)
    found = group_scores(signals, demo, ("language", "span"), COLUMNS)
    assert [(each["language"], each["span"], each["labels"], each["mean"]) for each in listed] == [
        (*key, each.labels, each.mean) for key, each in found.items()
    ]
    lines = warm.run("spanloom", *words, env=os.environ).stdout.splitlines()
    assert lines[0].split() == ["language", "span", "labels", "log-prob", "entropy", "first", "choice"]
    assert len(lines) == 1 + len(listed)


def test_the_page_has_the_numbers_of_the_command(demo: Path, signals: Path, tmp_path: Path) -> None:
    words = ("spanloom", "teacher", "stats", str(signals), "--dataset", str(demo))
    done = warm.run(*words, "--html", str(tmp_path / "page.html"), env=os.environ)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    for name in ("span", "split", "language", "exercise"):
        assert f"By {name}" in page
    for each in group_scores(signals, demo, ("language",), COLUMNS).values():
        assert f"{each.mean:.3f}" in page


def test_unknown_groups_and_damaged_signals_are_refused(demo: Path, signals: Path) -> None:
    with pytest.raises(SpanloomError, match="cannot group by 'colour'"):
        group_scores(signals, demo, ("colour",), COLUMNS)
    file = signals / f"train/shard_00_{OWN}.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-2])
    try:
        with pytest.raises(ArtifactError, match="missing or has not"):
            group_scores(signals, demo, (), COLUMNS)
    finally:
        file.write_bytes(whole)
