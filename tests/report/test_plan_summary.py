"""What `spanloom plan` says of its padding, and when it warns of it."""

from pathlib import Path

import numpy as np
import pytest

from conftest import Cli
from spanloom.dataset.plan.format import PlanContent, PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.report.plan_summary import plan_lines, plan_warnings
from spanloom.training.shard import read_content
from support.token_datasets import random_shards, write_dataset

LENGTHS = np.random.default_rng(0).integers(5, 60, 600).tolist()


def plan_of(work: Path, shards: int, strategy: str = "best-fit", sequence_length: int = 128) -> PlanContent:
    """The plan of the same 600 documents in so many shards."""
    root = write_dataset(
        work / "root", {"train": random_shards(0, [LENGTHS[number::shards] for number in range(shards)])}
    )
    options = PlanOptions(
        sequence_length=sequence_length,
        strategy=strategy,  # type: ignore[arg-type]
        seed=0,
        long="window",
        question_tokens=sequence_length // 2,
        multiple_of=1,
    )
    return make_plan(root, read_content(root), work / "plan", options).content


def test_one_shard_is_packed_without_a_warning(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, shards=1)
    assert list(plan_warnings(plan)) == []
    assert "padding 0." in next(iter(plan_lines(plan)))


def test_many_shards_are_warned_of_with_the_remedy(tmp_path: Path) -> None:
    (warning,) = plan_warnings(plan_of(tmp_path, shards=60))
    assert warning.startswith("train: ")
    assert (
        "each of 60 shards is packed separately, with 10 documents on average; build the dataset in fewer shards"
        in warning
    )


def test_documents_in_their_order_are_warned_of_with_another_remedy(tmp_path: Path) -> None:
    (warning,) = plan_warnings(plan_of(tmp_path, shards=1, strategy="sequential"))
    assert "--strategy best-fit" in warning


def test_padding_that_no_other_packing_has_less_of_is_not_warned_of(tmp_path: Path) -> None:
    """All documents in one sample, most of it empty."""
    plan = plan_of(tmp_path, shards=1, sequence_length=1 << 16)
    assert plan.splits["train"].padding > plan.splits["train"].positions
    assert list(plan_warnings(plan)) == []


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_command_warns_on_stderr(cli: Cli, tmp_path: Path, form: tuple[str, ...]) -> None:
    write_dataset(tmp_path / "root", {"train": random_shards(0, [LENGTHS[number::60] for number in range(60)])})
    done = cli("plan", "root", "--sequence-length", 128, "--quiet", *form, cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: train: " in done.stderr
    assert "build the dataset in fewer shards" in done.stderr
