"""A teacher's values in the columns of Axolotl's distillation: at the position that predicts the label, over the k."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import spanloom
from spanloom.errors import DatasetError, OptionError
from support.cases import REPOSITORY
from support.requirements import AXOLOTL, absent
from support.teachers import documents, expected, write_scored_dataset

K = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    from spanloom.api.scoring import scored
    from spanloom.report.progress import Progress
    from spanloom.teacher.sources.options import ScoringOptions

    folder = tmp_path_factory.mktemp("made")
    root, model = write_scored_dataset(folder, conversations=12)
    scored(str(root), str(folder / "signals"), ScoringOptions(model=model, top_k=K), Progress.given(False))
    return root, model, folder / "signals"


def test_entries_stand_at_the_position_before_their_label(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, model, signals = made
    written = spanloom.export(root, tmp_path / "out", to="axolotl", teacher=str(signals))
    table = pq.read_table(sorted((tmp_path / "out/train").glob("*.parquet"))[0]).to_pydict()
    for number, (tokens, lossmask) in enumerate(documents(root)):
        logprobs, _ = expected(model, tokens, lossmask)
        mask = np.array(table["target_mask"][number])
        assert mask.shape == (tokens.size, K)
        scored = np.flatnonzero(lossmask[:-1])
        np.testing.assert_array_equal(np.flatnonzero(mask[:, 0]), scored)
        np.testing.assert_array_equal(mask, mask[:, :1].repeat(K, axis=1))
        ids = np.argsort(-logprobs, axis=1)[:, :K]
        np.testing.assert_array_equal(np.array(table["target_token_ids"][number])[scored], ids)
        top = np.take_along_axis(logprobs, ids, 1)
        top -= np.log(np.exp(top).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(np.array(table["target_logprobs"][number])[scored], top, atol=1e-3)
        labels = np.array(table["labels"][number])
        np.testing.assert_array_equal(np.flatnonzero(labels[1:] != -100), scored)
    assert written["files"]
    with pytest.raises(OptionError, match="--to axolotl"):
        spanloom.export(root, tmp_path / "other", to="trl", teacher=str(signals))


def test_signals_of_another_dataset_are_refused(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    other, _ = write_scored_dataset(tmp_path, conversations=3)
    with pytest.raises(DatasetError, match="another dataset"):
        spanloom.export(other, tmp_path / "out", to="axolotl", teacher=str(made[2]))


@pytest.mark.nightly
def test_its_own_loss_of_the_teacher_against_itself_is_nothing(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Only where the entries are at the right labels."""
    root, model, signals = made
    python = os.environ.get("SPANLOOM_AXOLOTL") or absent(AXOLOTL)
    spanloom.export(root, tmp_path / "out", to="axolotl", teacher=str(signals))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, "HF_DATASETS_OFFLINE": "1", "AXOLOTL_DO_NOT_TRACK": "1", "HF_HOME": str(tmp_path)}
    command = [python, REPOSITORY / "tests/support/axolotl_kd.py", tmp_path / "out", model, tmp_path / "read.json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    read = json.loads((tmp_path / "read.json").read_bytes())
    assert abs(read["0"]) < 1e-4
    assert min(read["-1"], read["1"]) > 0.05
