"""The same dataset for trainers that are not Megatron: map datasets for `torch.utils.data`, and collates.

In: the root of a finished dataset. Out: samples with the keys of `SpanGPTDataset`, from torch and numpy alone; there is
no `span_id` where the dataset has no spans.

    StreamDataset     documents end to end, cut every S tokens, as nanoGPT-style loops train
    DocumentDataset   one sample a document, padded in the batch, as fine-tuning does

`spanloom.training.loss` takes the batches of both: `span_normalized_loss` with the counts of the step.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from spanloom.dataset.blend import blend
from spanloom.dataset.layout import open_arrays
from spanloom.errors import DatasetError
from spanloom.megatron.reader import ShardReader
from spanloom.supervision import IGNORED
from spanloom.training.shard import open_shard, read_content

Sample = dict[str, torch.Tensor]


class _Split:
    """The shards of a split, memory-mapped: positions and documents are counted over all of them, in their order."""

    def __init__(self, root: Path, split: str) -> None:
        prefixes = blend(read_content(root), root, split).prefixes
        shards = [_open(Path(prefix)) for prefix in prefixes]
        lengths = [shard.lengths(0, shard.sequences) for shard in shards]
        self.ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        self._begins = np.cumsum([0, *(int(each.sum(dtype=np.int64)) for each in lengths)])
        self._arrays = [
            {
                name: np.memmap(prefix.with_name(prefix.name + ".bin"), dtype=dtype, mode="r")
                for name, (prefix, dtype) in shard.arrays.items()
            }
            for shard in shards
        ]

    def read(self, name: str, first: int, last: int) -> npt.NDArray[Any]:
        """Positions `first` up to, not including, `last`, which may lie in several shards."""
        parts = [
            arrays[name][max(first - begin, 0) : last - begin]
            for arrays, begin, end in zip(self._arrays, self._begins, self._begins[1:], strict=False)
            if begin < last and first < end
        ]
        return np.concatenate(parts)

    def sample(self, first: int, last: int, labels_to: int) -> Sample:
        """Positions `first` to `last` with the labels after them; there are none at and beyond `labels_to`."""
        supervised = min(last, labels_to - 1)
        stream = self.read("tokens", first, min(last + 1, labels_to))
        labels = np.zeros(last - first, dtype=np.int64)
        labels[: stream.size - 1] = stream[1 : last - first + 1]
        mask = np.zeros(last - first, dtype=np.float32)
        mask[: supervised - first] = self.read("lossmask", first, supervised)
        sample = {
            "tokens": torch.from_numpy(stream[: last - first].astype(np.int64)),
            "labels": torch.from_numpy(labels),
            "loss_mask": torch.from_numpy(mask),
        }
        if "span" in self._arrays[0]:
            span = np.zeros(last - first, dtype=np.int64)
            span[: supervised - first] = self.read("span", first, supervised)
            sample["span_id"] = torch.from_numpy(span)
        return sample


class StreamDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k: tokens k·S … (k+1)·S − 1 of the split's documents laid end to end, and the label of each.

    Keys and shapes are those of `SpanGPTDataset`. What remains behind the last whole sample is left out. Samples stand
    in the order of the files: let the loader shuffle.
    """

    def __init__(self, root: Path | str, split: str = "train", *, sequence_length: int) -> None:
        if sequence_length < 2:
            raise DatasetError(f"sequence_length is {sequence_length}: a sample needs 2 tokens", where=str(root))
        self._split, self._length = _Split(Path(root), split), sequence_length

    def __len__(self) -> int:
        return (int(self._split.ends[-1]) - 1) // self._length

    def __getitem__(self, index: int) -> Sample:
        first = _in_range(index, len(self)) * self._length
        return self._split.sample(first, first + self._length, int(self._split.ends[-1]))


class DocumentDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k: document k whole, `[its length]`, or its first `max_length` tokens. Its last token has no label."""

    def __init__(self, root: Path | str, split: str = "train", *, max_length: int | None = None) -> None:
        self._split, self._max = _Split(Path(root), split), max_length

    def __len__(self) -> int:
        return int(self._split.ends.size)

    def __getitem__(self, index: int) -> Sample:
        index = _in_range(index, len(self))
        end = int(self._split.ends[index])
        first = int(self._split.ends[index - 1]) if index else 0
        last = end if self._max is None else min(end, first + self._max)
        return self._split.sample(first, last, end)


def collate(samples: list[Sample]) -> dict[str, torch.Tensor]:
    """Samples of any lengths → `[B, longest]`, padded behind without loss; int64 `attention_mask` says where.

    Padding is behind all tokens, so a causal model may do without the attention mask.
    """
    batch = {
        key: torch.nn.utils.rnn.pad_sequence([sample[key] for sample in samples], batch_first=True)
        for key in samples[0]
    }
    lengths = torch.tensor([sample["tokens"].numel() for sample in samples])
    batch["attention_mask"] = (torch.arange(batch["tokens"].shape[1]) < lengths[:, None]).to(torch.int64)
    return batch


def for_transformers(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A collated batch as Hugging Face models take it: `input_ids`, `attention_mask`, and `labels` **not** shifted.

    Those models shift labels themselves: `labels[t]` is token t, or −100 where it carries no loss. Their own loss is a
    plain masked mean; for the loss per span take `loss_mask` and `span_id` from the batch (docs/training.md).
    """
    labels = torch.full_like(batch["tokens"], IGNORED)
    trained = torch.where(batch["loss_mask"] > 0, batch["labels"], IGNORED)
    labels[:, 1:] = trained[:, :-1]
    return {"input_ids": batch["tokens"], "attention_mask": batch["attention_mask"], "labels": labels}


def _open(prefix: Path) -> ShardReader:
    shard = open_shard(prefix)
    return open_arrays(prefix.parent.parent, shard.split, shard.number, shard.content.arrays)


def _in_range(index: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"sample {index} of {length}")  # what ends a for loop over a map dataset
    return index % length
