"""Checkpoints of a training run: written completely or not at all, and read only by the run that wrote them.

In: the state of model and optimizer after a step. Out: `OUTPUT/checkpoints/step_00000100/`, one `rank_NN.pt` for each
tensor-parallel rank, and `checkpoint.json`, which is written last: a folder without it is not a checkpoint.
"""

import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from spanloom.errors import ArtifactError, ConflictError, SpanloomError
from spanloom.provenance import readable_json
from spanloom.storage import read_json, write_atomically, written_atomically
from spanloom.text import visible
from spanloom.training.runs.passes import differences

MARK = "checkpoint.json"
_REMEDY = "restore this file, or remove the folder `checkpoints` to start over: a run resumes from the newest whole one"


def save(
    output: Path, step: int, state: dict[str, Any], identity: dict[str, Any], *, rank: int, writes: bool, keep: int
) -> None:
    """Writes the state after `step` steps. Call on all ranks.

    `rank`: tensor-parallel rank; `writes`: True on the first of its replicas; `keep`: number of checkpoints to keep.
    """
    folder = output / "checkpoints" / f"step_{step:08d}"
    if writes:
        with written_atomically(folder / f"rank_{rank:02d}.pt") as stream:
            torch.save(state, stream)
    dist.barrier()
    if dist.get_rank() == 0:
        write_atomically(folder / MARK, readable_json({"step": step, "identity": identity}))
        for _, older in _finished(output)[:-keep]:
            (older / MARK).unlink()  # first: after a kill the rest is not a checkpoint
            shutil.rmtree(older)
    dist.barrier()


def latest(output: Path, identity: dict[str, Any]) -> tuple[int, Path] | None:
    """Step and folder of the newest readable checkpoint, the same on all ranks. Call on all ranks.

    A damaged checkpoint is skipped in favour of the one before it, with a warning on stderr that names its file.
    Raises ConflictError if another run wrote it, ArtifactError naming the file if no checkpoint can be read.
    """
    newest: list[Any] = [None]
    if not dist.is_initialized() or dist.get_rank() == 0:
        try:
            newest = [_latest_whole(output, identity)]
        except SpanloomError as error:  # all ranks must get it, or the others would wait
            newest = [error]
    if dist.is_initialized():
        dist.broadcast_object_list(newest)
    if isinstance(newest[0], SpanloomError):
        raise newest[0]
    place: tuple[int, Path] | None = newest[0]
    return place


def _latest_whole(output: Path, identity: dict[str, Any]) -> tuple[int, Path] | None:
    newest: ArtifactError | None = None
    for step, folder in reversed(_finished(output)):
        try:
            written = _written_by(folder)
            for path in sorted(folder.glob("rank_*.pt")) or [folder / "rank_00.pt"]:
                _state(path)
        except ArtifactError as damage:
            newest = newest or damage
            print(visible(f"warning: this checkpoint is passed over: {damage}"), file=sys.stderr)
            continue
        if different := differences(written, identity):
            raise ConflictError(
                "a checkpoint is here from a run with other options, which would not resume as it began: " + different,
                where=str(folder),
                remedy="give the options and the dataset of that run, or another --output",
            )
        return step, folder
    if newest is not None:
        raise newest
    return None


def _written_by(folder: Path) -> dict[str, Any]:
    """The identity of the run that wrote a checkpoint."""
    mark = read_json(folder / MARK, ArtifactError, f"{MARK} of a checkpoint", _REMEDY)
    written = mark.get("identity") if isinstance(mark, dict) else None
    if not isinstance(written, dict):
        raise ArtifactError(f"{MARK} of a checkpoint has no identity", where=str(folder / MARK), remedy=_REMEDY)
    return written


def load(folder: Path, *, rank: int) -> dict[str, Any]:
    """The state that tensor-parallel rank `rank` wrote. Raises ArtifactError naming the file that cannot be read."""
    return _state(folder / f"rank_{rank:02d}.pt")


def _state(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # opening a FIFO would block
            raise ValueError("it is not a file")
        with zipfile.ZipFile(path) as parts:  # torch does not check their checksums
            if damaged := parts.testzip():
                raise ValueError(f"{damaged} is not what was written")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError(f"it holds {type(state).__name__}, not a state")
    # torch raises many types of errors for a torn or foreign file; the file is the cause of all of them.
    except Exception as fault:
        why = (str(fault).strip() or type(fault).__name__).splitlines()[0][:200]
        raise ArtifactError(f"a checkpoint cannot be read: {why}", where=str(path), remedy=_REMEDY) from fault
    return state


def _finished(output: Path) -> list[tuple[int, Path]]:
    folders = (mark.parent for mark in (output / "checkpoints").glob(f"step_*/{MARK}"))
    return sorted((int(match[1]), folder) for folder in folders if (match := re.fullmatch(r"step_(\d+)", folder.name)))
