"""Map datasets for `torch.utils.data`, and collate functions, for trainers other than Megatron.

In: the root of a finished dataset. Out: samples with the keys of `SpanGPTDataset`, from torch and numpy alone; there is
no `span_id` if the dataset has no spans.

    StreamDataset     concatenated documents, cut every S tokens, as in nanoGPT-style loops
    DocumentDataset   one sample per document, padded in the batch, as in fine-tuning

`spanloom.training.loss` takes the batches of both: `span_normalized_loss` with the counts of the step.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from spanloom.dataset.blend import blend
from spanloom.dataset.root.layout import open_arrays
from spanloom.dataset.root.opened import content_at
from spanloom.errors import DatasetError
from spanloom.supervision import IGNORED
from spanloom.training.samples.document_weights import document_weights
from spanloom.training.samples.teacher import Missing, TeacherOfDocuments
from spanloom.training.shard import open_shard, read_content

Sample = dict[str, torch.Tensor]
Places = npt.NDArray[np.int64]
"""Of samples in a split, int64 [samples, 3]: the first position, the one behind the last, and the one from which on
tokens are not labels."""


class _Split:
    """The shards of a split, memory-mapped: positions and documents are counted over all of them, in their order."""

    def __init__(
        self, root: Path, split: str, *, teacher: TeacherOfDocuments | None = None, allow_harmful: bool = False
    ) -> None:
        self._name, self._teacher = split, teacher
        prefixes = blend(read_content(root, allow_harmful=allow_harmful), root, split).prefixes
        opened = [open_shard(Path(prefix), allow_harmful=allow_harmful) for prefix in prefixes]
        shards = [open_arrays(root, shard.split, shard.number, shard.content.arrays) for shard in opened]
        self.numbers = [shard.number for shard in opened]
        self._firsts = np.cumsum([0, *(shard.sequences for shard in shards)])
        lengths = [shard.lengths(0, shard.sequences) for shard in shards]
        self.ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        self._begins: list[int] = np.cumsum([0, *(int(each.sum(dtype=np.int64)) for each in lengths)]).tolist()
        # As plain arrays over the mapped files: a slice of a np.memmap is an object that takes as long as its data.
        self._arrays = [
            {
                name: np.asarray(np.memmap(prefix.with_name(prefix.name + ".bin"), dtype=dtype, mode="r"))
                for name, (prefix, dtype) in shard.arrays.items()
            }
            for shard in shards
        ]

    def _place(self, document: int) -> tuple[int, int]:
        """The shard of a document, and its number there."""
        at = int(np.searchsorted(self._firsts, document, side="right")) - 1
        return self.numbers[at], document - int(self._firsts[at])

    def has(self, name: str) -> bool:
        return name in self._arrays[0]

    def read(self, name: str, first: int, last: int) -> npt.NDArray[Any]:
        """Positions `first` up to, not including, `last`, which may be in several shards: a view of the file, or a
        copy."""
        parts = [self._arrays[at][name][begin:end] for at, begin, end in self._pieces(np.array([[first, last]]))]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _pieces(self, places: Places) -> list[tuple[int, int, int]]:
        """Where places lie, in their order: a shard, and from where to where in it. One that goes over the end of a
        shard has several."""
        pieces = []
        shards = np.searchsorted(self._begins, places[:, 0], side="right") - 1
        for at, first, last in zip(shards.tolist(), places[:, 0].tolist(), places[:, 1].tolist(), strict=True):
            begin, end = self._begins[at], self._begins[at + 1]
            while last > end:
                pieces.append((at, first - begin, end - begin))
                at, first, begin, end = at + 1, end, end, self._begins[at + 2]
            pieces.append((at, first - begin, last - begin))
        return pieces

    def samples(self, places: Places) -> list[Sample]:
        """A sample for each place: its positions with their labels. Those of a few places are views of the same
        tensors."""
        made: list[Sample] = []
        begin = before = behind = 0
        for number, end in enumerate(np.cumsum(places[:, 1] - places[:, 0]).tolist()):
            if number > begin and end - behind > _AT_ONCE:
                made += self._together(places[begin:number])
                begin, behind = number, before
            before = end
        return made + self._together(places[begin:]) if len(places) else []

    def _together(self, places: Places) -> list[Sample]:
        pieces = self._pieces(places)

        def joined(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
            return np.concatenate([self._arrays[at][name][begin:end] for at, begin, end in pieces], dtype=dtype)

        tokens = joined("tokens", np.int64)
        flat = {"tokens": tokens, "labels": np.empty_like(tokens), "loss_mask": joined("lossmask", np.float32)}
        if self.has("span"):
            flat["span_id"] = joined("span", np.int64)
        flat["labels"][:-1] = tokens[1:]
        lengths, labelled = places[:, 1] - places[:, 0], places[:, 1] < places[:, 2]
        ends = np.cumsum(lengths) - 1
        for end, behind in zip(ends[labelled], places[labelled, 1], strict=True):
            flat["labels"][end] = self.read("tokens", behind, behind + 1)[0]
        for name in flat.keys() - {"tokens"}:
            flat[name][ends[~labelled]] = 0
        sizes = lengths.tolist()
        parts = [torch.split_with_sizes(torch.from_numpy(array), sizes) for array in flat.values()]
        samples = [dict(zip(flat, part, strict=True)) for part in zip(*parts, strict=True)]
        if self._teacher is not None:
            for sample, (first, last, labels_to) in zip(samples, places.tolist(), strict=True):
                sample |= self._taught(self._teacher, first, last, min(last, labels_to - 1))
        return samples

    def _taught(self, teacher: TeacherOfDocuments, first: int, last: int, supervised: int) -> Sample:
        """The teacher's signals of positions `first` up to `last`; those from `supervised` on have none."""
        arrays = teacher.empty(last - first)
        document, at = int(np.searchsorted(self.ends, first, side="right")), first
        while at < supervised:
            begin, end = int(self.ends[document - 1]) if document else 0, int(self.ends[document])
            lossmask = self.read("lossmask", begin, end)
            spans = self.read("span", begin, end) if self.has("span") else None
            part = slice(at - begin, min(supervised, end) - begin)
            teacher.put(arrays, at - first, (self._name, *self._place(document)), lossmask, spans, part)
            document, at = document + 1, end
        return {name: torch.from_numpy(values) for name, values in arrays.items()}


_AT_ONCE = 1 << 16
"""Positions of samples that share tensors: fewer take longer, and more memory at once goes back to the system, which
clears it again for each batch."""


class StreamDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k: tokens k·S … (k+1)·S − 1 of the split's documents in a row, and the label of each.

    Keys and shapes are those of `SpanGPTDataset`. Tokens after the last whole sample are dropped. Samples are in the
    order of the files: let the loader shuffle.
    """

    def __init__(
        self,
        root: Path | str,
        split: str = "train",
        *,
        sequence_length: int,
        teacher: Path | str | None = None,
        missing_teacher: Missing = "error",
        allow_harmful: bool = False,
    ) -> None:
        """`teacher`, `missing_teacher`: as for `DocumentDataset`. `allow_harmful`: also opens a dataset whose documents
        a model must not learn."""
        if sequence_length < 2:
            raise DatasetError(f"sequence_length is {sequence_length}: a sample needs 2 tokens", where=str(root))
        opened = None if teacher is None else TeacherOfDocuments(teacher, Path(root), missing=missing_teacher)
        self._split = _Split(Path(root), split, teacher=opened, allow_harmful=allow_harmful)
        self._length = sequence_length

    def __len__(self) -> int:
        return (int(self._split.ends[-1]) - 1) // self._length

    def __getitem__(self, index: int) -> Sample:
        firsts = _in_range([index], len(self)) * self._length
        (sample,) = self._split.samples(np.array([[firsts[0], firsts[0] + self._length, self._split.ends[-1]]]))
        return sample


class DocumentDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k: document k whole, `[its length]`, or its first `max_length` tokens. Its last token has no label.

    With `weights=True` a sample also has `weight`, a float64 scalar: the column `weight` of its row, for
    `spanloom.training.weights`. The property `weights` holds all of them, float64 [documents], for a sampler.
    With `teacher`, a folder of signals, it has those of its labels: see `spanloom.training.samples.teacher`.
    """

    def __init__(
        self,
        root: Path | str,
        split: str = "train",
        *,
        max_length: int | None = None,
        weights: bool = False,
        teacher: Path | str | None = None,
        missing_teacher: Missing = "error",
        allow_harmful: bool = False,
    ) -> None:
        """`missing_teacher`: a document without signals is an error, or its `teacher_mask` is 0. `allow_harmful`: also
        opens a dataset whose documents a model must not learn.

        Raises DatasetError if `weights` are requested and the rows have none, or for signals of another dataset.
        """
        opened = None if teacher is None else TeacherOfDocuments(teacher, Path(root), missing=missing_teacher)
        self._split = _Split(Path(root), split, teacher=opened, allow_harmful=allow_harmful)
        self._max = max_length
        self._root, self._name, self.weighted = Path(root), split, weights
        if weights:
            self._weights = self.weights

    def __len__(self) -> int:
        return int(self._split.ends.size)

    def __getitem__(self, index: int) -> Sample:
        (sample,) = self.__getitems__([index])
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Several samples at once, as torch's loader asks for those of a batch."""
        documents = _in_range(indices, len(self))
        ends = self._split.ends[documents]
        firsts = np.where(documents > 0, self._split.ends[documents - 1], 0)
        lasts = ends if self._max is None else np.minimum(ends, firsts + self._max)
        samples = self._split.samples(np.stack([firsts, lasts, ends], axis=1))
        if self.weighted:
            for document, sample in zip(documents, samples, strict=True):
                sample["weight"] = torch.tensor(self._weights[document], dtype=torch.float64)
        return samples

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weight of each document, float64 [documents]. Raises DatasetError if the rows have none."""
        shards = [shard.shard for shard in content_at(self._root).shards if shard.splits[self._name].sequences]
        return np.concatenate([np.empty(0), *(document_weights(self._root, self._name, shard) for shard in shards)])


def collate(samples: list[Sample]) -> dict[str, torch.Tensor]:
    """Samples of any lengths → `[B, longest]`, padded at the end without loss; int64 `attention_mask` is 0 on padding.

    `weight` is `[B]`. Padding follows all tokens, so a causal model does not need the attention mask.
    """
    batch = {
        key: torch.stack([sample[key] for sample in samples])
        if key == "weight"
        else torch.nn.utils.rnn.pad_sequence([sample[key] for sample in samples], batch_first=True)
        for key in samples[0]
    }
    lengths = torch.tensor([sample["tokens"].numel() for sample in samples])
    batch["attention_mask"] = (torch.arange(batch["tokens"].shape[1]) < lengths[:, None]).to(torch.int64)
    return batch


def for_transformers(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A collated batch as Hugging Face models take it: `input_ids`, `attention_mask`, and `labels` **not** shifted.

    Those models shift labels themselves: `labels[t]` is token t, or −100 if it carries no loss. Their own loss is a
    plain masked mean; for the loss per span use `loss_mask` and `span_id` from the batch (docs/training/pytorch.md).
    """
    labels = torch.full_like(batch["tokens"], IGNORED)
    trained = torch.where(batch["loss_mask"] > 0, batch["labels"], IGNORED)
    labels[:, 1:] = trained[:, :-1]
    return {"input_ids": batch["tokens"], "attention_mask": batch["attention_mask"], "labels": labels}


def _in_range(indices: Sequence[int], length: int) -> npt.NDArray[np.int64]:
    """Indices from 0 on, int64 [indices]; those below 0 count from the end."""
    numbers = np.array(indices, np.int64)
    if (beyond := (numbers < -length) | (numbers >= length)).any():
        raise IndexError(f"sample {numbers[beyond][0]} of {length}")  # ends a for loop over a map dataset
    return numbers % length
