"""Checks a plan against its dataset: every document once, every trained label once, no sample too long.

In: a plan. Out: nothing, or ArtifactError at the first fault. It reads the files on disk, and shares only their layout
with the code that wrote them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.plan.format import FILES, PLAN_JSON, Plan, ShardPlan, expected_sizes, plan_file
from spanloom.dataset.root.layout import open_arrays
from spanloom.errors import ArtifactError
from spanloom.megatron.reader import ShardReader, single_sequences

_CHUNK = 1 << 20
_REMEDY = "remove the plan and make it again: spanloom plan ROOT --sequence-length …"


def check_plan(plan: Plan) -> None:
    """Raises ArtifactError naming the file and the first invalid unit, sample or window.

    Memory: 3 bytes per document, 5 if sequences are longer than 65,535.
    """
    for split, counts in plan.content.splits.items():
        counted = {"documents": 0, "samples": 0, "windows": 0, "positions": 0, "repeated": 0, "long_documents": 0}
        for shard in counts.shards:
            for name, count in _check_shard(plan, split, shard).items():
                counted[name] += count
        if plan.options.long != "window":
            counted["windows"] = 0
        stated = counts.model_dump()
        counted["padding"] = counted["samples"] * plan.options.sequence_length - counted["positions"]
        for name, count in counted.items():
            if stated[name] != count:
                raise ArtifactError(
                    f"{name} of {split} is {stated[name]:,}, the files have {count:,}",
                    where=str(plan.folder / PLAN_JSON),
                    remedy=_REMEDY,
                )


@dataclass(frozen=True, kw_only=True)
class _Files:
    """The files of a shard's plan, read in chunks."""

    folder: Path
    split: str
    shard: ShardPlan

    def path(self, name: str) -> Path:
        return plan_file(self.folder, self.split, self.shard.shard, name)

    def read(self, name: str, first: int, count: int) -> npt.NDArray[Any]:
        """Up to `count` rows from `first` on; none if the file is empty."""
        if name not in expected_sizes(self.shard):
            return np.empty((0, FILES[name][1]) if FILES[name][1] > 1 else 0, dtype=FILES[name][0])
        dtype, width = FILES[name]
        offset = first * width * dtype.itemsize
        values = np.fromfile(self.path(name), dtype, count * width, offset=offset)
        return values.reshape(-1, width) if width > 1 else values

    def refuse(self, name: str, why: str) -> ArtifactError:
        return ArtifactError(f"the plan is wrong: {why}", where=str(self.path(name)), remedy=_REMEDY)


def _check_shard(plan: Plan, split: str, shard: ShardPlan) -> dict[str, int]:
    files = _Files(folder=plan.folder, split=split, shard=shard)
    reader = open_arrays(plan.root, split, shard.shard, plan.dataset.arrays)
    if reader.sequences != shard.documents:
        raise files.refuse("units", f"{shard.documents:,} documents, the dataset has {reader.sequences:,}")
    length, multiple_of = plan.options.sequence_length, plan.options.multiple_of
    windows = files.read("windows", 0, shard.windows)
    pinned = windows[:, 1] + windows[:, 3] - windows[:, 2]
    of_windows = (pinned + windows[:, 5] - windows[:, 4]).astype(np.int64)
    sizes = np.empty(shard.documents + shard.windows, dtype=np.uint16 if length < 1 << 16 else np.uint32)
    long: list[npt.NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    positions = int(of_windows.sum())
    for first in range(0, shard.documents, _CHUNK):
        lengths = reader.lengths(first, _CHUNK).astype(np.int64)
        is_long = lengths > length
        long.append(np.flatnonzero(is_long) + first)
        positions += int(lengths[~is_long].sum())
        sizes[first : first + lengths.size] = np.where(
            is_long, 0, (lengths + multiple_of - 1) // multiple_of * multiple_of
        )
    _check_windows(plan, files, reader, windows, np.concatenate(long))
    sizes[shard.documents :] = (of_windows + multiple_of - 1) // multiple_of * multiple_of
    check_units_and_samples(plan.folder, split, shard, sizes, length)
    return {
        "documents": shard.documents,
        "samples": shard.samples,
        "windows": shard.windows,
        "positions": positions,
        "repeated": int(pinned.sum()),
        "long_documents": sum(each.size for each in long),
    }


def check_units_and_samples(folder: Path, split: str, shard: ShardPlan, sizes: npt.NDArray[Any], length: int) -> None:
    """Raises ArtifactError unless every unit with a size is in one sample, and every sample fits.

    `sizes` [D + W]: positions of each document and each window, 0 for a document that is too long.
    """
    files = _Files(folder=folder, split=split, shard=shard)
    _check_units(files, sizes)
    _check_samples(files, sizes, length)


def _check_units(files: _Files, sizes: npt.NDArray[Any]) -> None:
    """Checks that every document that fits, and every window, is in exactly one sample, and that no other unit is."""
    seen = np.zeros(sizes.size, dtype=np.bool_)
    for _, units in _chunks(files, "units", files.shard.units):
        if units.size and not (units.min() >= 0 and units.max() < sizes.size):
            raise files.refuse("units", "a unit is neither a document nor a window of the shard")
        seen[units] = True
    if np.count_nonzero(seen) != files.shard.units:
        raise files.refuse("units", f"{files.shard.units - np.count_nonzero(seen):,} units are in two samples")
    for first in range(0, sizes.size, _CHUNK):
        wrong = np.flatnonzero(seen[first : first + _CHUNK] != (sizes[first : first + _CHUNK] > 0))
        if wrong.size:
            unit = first + int(wrong[0])
            why = "is in a sample, and is too long for one" if seen[unit] else "is in no sample"
            raise files.refuse("units", f"unit {unit:,} {why}")


def _check_samples(files: _Files, sizes: npt.NDArray[Any], length: int) -> None:
    end = 0
    for first, offsets in _chunks(files, "samples", files.shard.samples + 1 if files.shard.samples else 0, overlap=1):
        if (first == 0 and offsets[0] != 0) or (np.diff(offsets) < 1).any():
            raise files.refuse("samples", f"the samples from {first:,} on do not follow one another")
        end = int(offsets[-1])
        if offsets.size < 2:
            continue
        if end > files.shard.units:
            raise files.refuse("samples", "a sample ends after the last unit")
        units = files.read("units", int(offsets[0]), end - int(offsets[0]))
        filled = np.add.reduceat(sizes[units].astype(np.int64), (offsets[:-1] - offsets[0]).astype(np.int64))
        if (wrong := np.flatnonzero(filled > length)).size:
            sample = first + int(wrong[0])
            raise files.refuse("samples", f"sample {sample:,} has {filled[wrong[0]]:,} positions, more than {length:,}")
    if end != files.shard.units:
        raise files.refuse("samples", f"the samples end at unit {end:,} of {files.shard.units:,}")


def _check_windows(
    plan: Plan, files: _Files, reader: ShardReader, windows: npt.NDArray[Any], long: npt.NDArray[np.int64]
) -> None:
    options = plan.options
    wanted = np.empty(0, dtype=np.int64) if options.long == "drop" else long
    if not np.array_equal(np.unique(windows[:, 0]), wanted) or (np.diff(windows[:, 0]) < 0).any():
        raise files.refuse("windows", "they are not the windows of the documents longer than a sample, in order")
    bounds = [*np.searchsorted(windows[:, 0], wanted, side="left").tolist(), len(windows)]
    numbers: list[int] = wanted.tolist()
    masks = single_sequences(*reader.arrays["lossmask"], numbers)
    for number, (document, lossmask) in enumerate(zip(numbers, masks, strict=True)):
        rows = windows[bounds[number] : bounds[number + 1], 1:].tolist()
        trained = read = 0
        for head, question_begin, question_end, begin, end in rows:
            pinned = head + question_end - question_begin
            ordered = (
                (head >= 0 and (question_begin == question_end or head <= question_begin < question_end <= begin))
                and read <= begin < end <= lossmask.size
                and head <= begin
            )
            if not ordered or pinned > options.question_tokens or pinned + end - begin > options.sequence_length:
                raise files.refuse("windows", f"a window of document {document:,} is invalid")
            if begin and not (lossmask[begin] and _asks(lossmask, head, question_begin, question_end, begin)):
                raise files.refuse("windows", f"document {document:,} has a window without its question")
            read = end
            trained += int(np.count_nonzero(lossmask[begin:end]))
        lost = 0 if options.long == "window" else int(np.count_nonzero(lossmask[options.sequence_length :]))
        if trained + lost != int(np.count_nonzero(lossmask)):
            raise files.refuse("windows", f"labels of document {document:,} are in none of its windows")


def _asks(lossmask: npt.NDArray[Any], head: int, question_begin: int, question_end: int, begin: int) -> bool:
    """Whether a window contains the end of the question whose answer its body begins in."""
    before = np.flatnonzero(lossmask[:begin] == 0)
    answer = int(before[-1]) + 1 if before.size else 0  # the token at this position is the question's last
    last = answer if answer < begin else answer - 1
    if last < 0 or (last > 0 and lossmask[last - 1]):
        return True  # the question is one token, at which the body begins
    return last < head or question_begin <= last < question_end


def _chunks(files: _Files, name: str, rows: int, *, overlap: int = 0) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """`(first row, rows)` of each chunk; a chunk begins with the last `overlap` rows of the chunk before."""
    first = 0
    while first + overlap < rows or (first == 0 and rows):
        values = files.read(name, first, min(_CHUNK, rows - first))
        if values.shape[0] != min(_CHUNK, rows - first):
            raise files.refuse(name, "the file ends early")
        yield first, values
        first += _CHUNK - overlap
