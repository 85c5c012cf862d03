"""A checkpoint or a log that is damaged is named; a run goes on from the newest whole checkpoint."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from spanloom.errors import ArtifactError
from spanloom.training.runs import checkpoint
from spanloom.training.runs.trainlog import read_log

IDENTITY = {"steps": 8}


def write(output: Path, step: int) -> Path:
    folder = output / f"checkpoints/step_{step:08d}"
    folder.mkdir(parents=True)
    torch.save({"model": {"weight": torch.full((500,), float(step))}}, folder / "rank_00.pt")
    (folder / checkpoint.MARK).write_text(json.dumps({"step": step, "identity": IDENTITY}))
    return folder


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    """The newest of two checkpoints."""
    write(tmp_path, 3)
    return write(tmp_path, 6)


def passed_over(newest: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and the one before it goes on; without one before it, it is refused."""
    found = checkpoint.latest(newest.parents[1], IDENTITY)
    assert found is not None
    assert found[0] == 3
    assert checkpoint.load(found[1], rank=0)["model"]["weight"][0] == 3
    warned = capsys.readouterr().err
    assert warned.startswith("warning: this checkpoint is passed over: ")
    assert str(newest / file) in warned
    shutil.rmtree(found[1])
    with pytest.raises(ArtifactError) as refusal:
        checkpoint.latest(newest.parents[1], IDENTITY)
    assert refusal.value.where == str(newest / file)
    assert refusal.value.remedy


def test_the_newest_whole_checkpoint_is_taken_and_nothing_is_said(
    newest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checkpoint.latest(newest.parents[1], IDENTITY) == (6, newest)
    assert checkpoint.latest(newest / "none", IDENTITY) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", [0, 1, 0.1, 0.5, 0.9, -1])
def test_a_torn_state(newest: Path, part: float, capsys: pytest.CaptureFixture[str]) -> None:
    path = newest / "rank_00.pt"
    data = path.read_bytes()
    path.write_bytes(data[: part if isinstance(part, int) else int(part * len(data))])
    passed_over(newest, "rank_00.pt", capsys)


def test_a_state_with_a_flipped_bit(newest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = newest / "rank_00.pt"
    data = bytearray(path.read_bytes())
    data[data.index(torch.full((9,), 6.0).numpy().tobytes()) + 2] ^= 1
    path.write_bytes(data)
    passed_over(newest, "rank_00.pt", capsys)


def test_a_state_that_is_missing(newest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (newest / "rank_00.pt").unlink()
    passed_over(newest, "rank_00.pt", capsys)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_state_that_is_no_file(
    newest: Path, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (newest / "rank_00.pt").unlink()
    make(newest / "rank_00.pt")
    passed_over(newest, "rank_00.pt", capsys)


@pytest.mark.parametrize("value", [None, [1], Path("code")])
def test_a_state_that_is_none(newest: Path, value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A pickle may name code to run; only tensors and plain values are loaded."""
    if isinstance(value, Path):
        (newest / "rank_00.pt").write_bytes(pickle.dumps(value, protocol=2))
    else:
        torch.save(value, newest / "rank_00.pt")
    passed_over(newest, "rank_00.pt", capsys)


@pytest.mark.parametrize(
    "text", ["", '{"step": 6, "identi', "[]", "null", '{"step": 6}', '{"identity": 1}', "[" * 9999]
)
def test_a_damaged_mark(newest: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (newest / checkpoint.MARK).write_text(text)
    passed_over(newest, checkpoint.MARK, capsys)


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"kind": "train"}', '{"step": "x"}', "\0\0", ""])
def test_a_damaged_log_names_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + line + '\n{"step": 3}\n')
    with pytest.raises(ArtifactError) as refusal:
        read_log(path)
    assert refusal.value.where == f"{path}, line 2"
    assert refusal.value.remedy


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"st')
    assert read_log(tmp_path / "log.jsonl") == [{"step": 1}]
    assert read_log(tmp_path / "none") == []
