"""The log of a training run without what it needs."""

import sys
from pathlib import Path

import pytest

from spanloom.errors import SpanloomError
from spanloom.training.runs.trainlog import TrainLog


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SpanloomError, match=r"spanloom\[train\]: the package tensorboard is not installed"):
        TrainLog(tmp_path, first_step=0)
