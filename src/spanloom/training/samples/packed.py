"""The samples of a plan, read from the dataset's files. Only numpy; the datasets of trainers are built on these.

In: an open plan and a split. Out: sample by sample, arrays of its sequence length S:

    tokens        int64   [S]      documents, or windows of them, each padded with 0 to a multiple, then 0 to the end
    labels        int64   [S]      at position p of a document its token p + 1; 0 at its last position and in padding
    loss_mask     float32 [S]      1 = the label is trained; 0 in padding and in repeated parts of a window
    span_id       int64   [S]      of the label, as `loss_mask`; only if the dataset has spans
    position_ids  int64   [S]      from 0 in each document or window, and in the padding at the end
    cu_seqlens    int32   [n + 1]  the first position of each of these, then S
    teacher_…                      with a teacher: see `spanloom.training.samples.teacher`

Everything is memory-mapped; the time to open does not grow with the dataset.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.plan.format import FILES, Plan, ShardPlan, open_plan, plan_file
from spanloom.dataset.root.layout import array_prefix, array_prefixes
from spanloom.errors import DatasetError
from spanloom.training.samples.teacher import Missing, TeacherOfDocuments
from spanloom.training.shard import read_content

_HEADER_BYTES, _TOKEN_BYTES = 34, 4


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """One shard, memory-mapped. `first`: number of its first sample in the split. `lengths` int32 [D] and `pointers`
    int64 [D] (in bytes): of the documents, from the index of the tokens."""

    number: int
    first: int
    documents: int
    units: npt.NDArray[np.int32]
    samples: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    pointers: npt.NDArray[np.int64]
    arrays: dict[str, npt.NDArray[Any]]

    def pieces(self, unit: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The unit's document, and the unit's ranges of positions in it. Only the last range is trained."""
        if unit < self.documents:
            return unit, ((0, int(self.lengths[unit])),)
        document, head, question_begin, question_end, begin, end = self.windows[unit - self.documents].tolist()
        return document, ((0, head), (question_begin, question_end), (begin, end))


class PackedSamples:
    """The samples of one split, in the order of the plan's files."""

    def __init__(
        self,
        plan: Plan,
        split: str,
        *,
        teacher: Path | str | None = None,
        missing_teacher: Missing = "error",
        allow_harmful: bool = False,
    ) -> None:
        """`teacher`: a folder of signals; `missing_teacher`: see `spanloom.training.samples.teacher`. `allow_harmful`:
        see `spanloom.training.shard.read_content`.

        Raises DatasetError if the plan has no samples of the split, training cannot read the dataset, or the signals
        are those of another one.
        """
        read_content(plan.root, allow_harmful=allow_harmful)
        self.plan, self.split_name = plan, split
        self._options: dict[str, Any] = {
            "teacher": teacher,
            "missing_teacher": missing_teacher,
            "allow_harmful": allow_harmful,
        }
        self._teacher = None if teacher is None else TeacherOfDocuments(teacher, plan.root, missing=missing_teacher)
        self.sequence_length = plan.options.sequence_length
        self._shards: list[_Shard] = []
        first = 0
        for shard in plan.split(split).shards:
            if shard.samples:
                self._shards.append(_map_shard(plan, split, shard, first))
                first += shard.samples
        self._samples = first
        self._firsts = [shard.first for shard in self._shards]
        self._multiple_of = plan.options.multiple_of
        self._count = np.arange(self.sequence_length, dtype=np.int64)

    def __reduce__(self) -> Any:
        # A worker process maps the files itself. The dataset may have moved since the plan was made.
        return partial(open_samples, root=self.plan.root, **self._options), (self.plan.folder, self.split_name)

    def __len__(self) -> int:
        return self._samples

    @property
    def spans(self) -> bool:
        """Whether the dataset has spans."""
        return "span" in self.plan.dataset.arrays

    def sample(self, index: int, *, wire: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Sample `index`. `wire`: `loss_mask` holds the span of each trained label, and there is no `span_id`."""
        shard = self._shards[bisect_right(self._firsts, index) - 1]
        stream, lossmask, span = shard.arrays["tokens"], shard.arrays["lossmask"], shard.arrays.get("span")
        length = self.sequence_length
        sample: dict[str, npt.NDArray[Any]] = {
            "tokens": np.zeros(length, dtype=np.int64),
            "labels": np.zeros(length, dtype=np.int64),
            "loss_mask": np.zeros(length, dtype=np.float32),
            "position_ids": np.empty(length, dtype=np.int64),
        }
        tokens, labels, mask, positions = sample.values()
        if span is not None and not wire:
            sample["span_id"] = np.zeros(length, dtype=np.int64)
        signals = {} if self._teacher is None else self._teacher.empty(length)
        bounds, at = [0], 0
        own = index - shard.first
        for unit in shard.units[slice(*shard.samples[own : own + 2])].tolist():
            document, pieces = shard.pieces(unit)
            base, size = int(shard.pointers[document]) // _TOKEN_BYTES, int(shard.lengths[document])
            filled = at
            for first, last in pieces:
                count, labelled = last - first, min(last, size - 1) - first  # a document's last position has no label
                tokens[filled : filled + count] = stream[base + first : base + last]
                labels[filled : filled + labelled] = stream[base + first + 1 : base + first + 1 + labelled]
                filled += count
            trained, source = (
                slice(filled - count, filled - count + labelled),
                slice(base + first, base + first + labelled),
            )
            if wire:
                assert span is not None, "the wire is requested where there are spans"
                np.multiply(lossmask[source], span[source], out=mask[trained], casting="unsafe")
            else:
                mask[trained] = lossmask[source]
                if span is not None:
                    sample["span_id"][trained] = span[source]
            if self._teacher is not None:
                place, whole = (self.split_name, shard.number, document), slice(base, base + size)
                spans = None if span is None else span[whole]
                part = slice(first, first + labelled)
                self._teacher.put(signals, filled - count, place, lossmask[whole], spans, part)
            filled += (at - filled) % self._multiple_of
            positions[at:filled] = self._count[: filled - at]
            bounds.append(at := filled)
        if at < length:
            positions[at:] = self._count[: length - at]
            bounds.append(length)
        sample["cu_seqlens"] = np.array(bounds, dtype=np.int32)
        return sample | signals


def open_samples(
    folder: Path | str,
    split: str,
    root: Path | str | None = None,
    *,
    verify: bool = False,
    **options: Any,
) -> PackedSamples:
    """The samples of a split of the plan at `folder`; see `spanloom.dataset.plan.format.open_plan`. `options`: those of
    `PackedSamples`."""
    return PackedSamples(open_plan(folder, root, verify=verify), split, **options)


def _map_shard(plan: Plan, split: str, shard: ShardPlan, first: int) -> _Shard:
    mapped: dict[str, npt.NDArray[Any]] = {}
    for name, (dtype, width) in FILES.items():
        path = plan_file(plan.folder, split, shard.shard, name)
        values = _map(path, dtype) if name != "windows" or shard.windows else np.empty(0, dtype=dtype)
        mapped[name] = values.reshape(-1, width) if width > 1 else values
    prefix = array_prefix(plan.root, split, shard.shard, "tokens")
    index = _map(prefix.with_name(prefix.name + ".idx"), np.dtype(np.uint8))
    sequences = int.from_bytes(index[18:26].tobytes(), "little")
    if sequences != shard.documents:
        raise DatasetError(
            f"the index has {sequences:,} documents, the plan {shard.documents:,}",
            where=f"{prefix}.idx",
            remedy="make the plan again: spanloom plan ROOT --sequence-length …",
        )
    return _Shard(
        number=shard.shard,
        first=first,
        documents=shard.documents,
        **mapped,
        lengths=np.frombuffer(index, "<i4", sequences, _HEADER_BYTES),
        pointers=np.frombuffer(index, "<i8", sequences, _HEADER_BYTES + 4 * sequences),
        arrays={
            name: _map(path.with_name(f"{path.name}.bin"), kind)
            for name, (path, kind) in array_prefixes(plan.root, split, shard.shard, plan.dataset.arrays).items()
        },
    )


def _map(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Maps a file as a plain array: slices of numpy's `memmap` take four times as long."""
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
