"""Packed samples for plain PyTorch: whole documents side by side, with attention within each document. No Megatron.

In: a plan. Out: samples as tensors, batches, the attention that keeps documents apart (a mask, or sequence bounds for
kernels of variable length), and the sample numbers that a rank reads, starting anywhere in any epoch.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import Dataset, Sampler

from spanloom.training.samples.epoch_order import EpochOrder
from spanloom.training.samples.packed import PackedSamples, open_samples
from spanloom.training.samples.teacher import Missing

Sample = dict[str, torch.Tensor]


class PackedDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k of a plan, in the order of the plan's files. Keys and shapes are those of `samples.packed`.

    A plan puts documents of similar lengths next to each other: shuffle, or read through `EpochSampler`.
    """

    def __init__(
        self,
        plan: Path | str,
        split: str = "train",
        *,
        root: Path | str | None = None,
        verify: bool = False,
        teacher: Path | str | None = None,
        missing_teacher: Missing = "error",
        allow_harmful: bool = False,
    ) -> None:
        """`root`: the dataset's folder, if it has moved since the plan was made. `verify`: hash all files except the
        `.bin`. The others: see `PackedSamples`."""
        self.samples: PackedSamples = open_samples(
            plan,
            split,
            root,
            verify=verify,
            teacher=teacher,
            missing_teacher=missing_teacher,
            allow_harmful=allow_harmful,
        )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return {name: torch.from_numpy(values) for name, values in self.samples.sample(index % len(self)).items()}


class EpochSampler(Sampler[int]):  # type: ignore[misc]  # torch is not followed by mypy here
    """The samples that one rank reads, epoch after epoch, each epoch in its own order.

    All ranks together read sample number 0, 1, 2, … of the run; rank r of R reads the numbers n with n mod R = r. A run
    that has consumed n samples continues with `begin=n`, with any number of ranks.
    """

    def __init__(
        self, samples: int, *, seed: int = 0, rank: int = 0, ranks: int = 1, begin: int = 0, end: int | None = None
    ) -> None:
        """`samples`: per epoch, `len(dataset)`. `end`: the first sample number not read; None: the end of the epoch
        that has `begin`. Ranks read equally many samples if `end - begin` is a multiple of `ranks`."""
        self._order = EpochOrder(samples, seed=seed)
        end = (begin // samples + 1) * samples if end is None else end
        self._numbers = range(begin + (rank - begin) % ranks, end, ranks)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return (self._order[number] for number in self._numbers)


def collate_packed(samples: list[Sample]) -> Sample:
    """Samples → a batch `[B, S]`; `cu_seqlens` int32 [B, longest], padded with S."""
    batch = {key: torch.stack([sample[key] for sample in samples]) for key in samples[0] if key != "cu_seqlens"}
    length = batch["tokens"].shape[1]
    bounds = [sample["cu_seqlens"] for sample in samples]
    batch["cu_seqlens"] = torch.nn.utils.rnn.pad_sequence(bounds, batch_first=True, padding_value=length)
    return batch


def document_ids(cu_seqlens: torch.Tensor, length: int) -> torch.Tensor:
    """The document of each position, counted within its sample: int64 [B, S]. `cu_seqlens` int32 [B, n], as collated.

    Masks of `flex_attention` need this.
    """
    positions = torch.arange(length, device=cu_seqlens.device).expand(cu_seqlens.shape[0], -1)
    return torch.searchsorted(cu_seqlens[:, 1:].contiguous().long(), positions.contiguous(), right=True)


def block_diagonal(cu_seqlens: torch.Tensor, length: int) -> torch.Tensor:
    """Attention mask: bool [B, 1, S, S], True where position i (third axis) attends to position j ≤ i of its document.

    `scaled_dot_product_attention(…, attn_mask=…)` accepts it unchanged; it has S² entries per sample.
    """
    of = document_ids(cu_seqlens, length)
    return (of[:, :, None] == of[:, None, :]).tril()[:, None]


def varlen(cu_seqlens: torch.Tensor, length: int) -> tuple[torch.Tensor, int]:
    """Bounds of all documents of a batch, concatenated, for attention kernels of variable length.

    `cu_seqlens` int32 [B, n], as collated. Returns int32 [documents + 1], from 0 to B · S, and the longest length.
    Reshape the inputs of attention from [B, S, …] to [B · S, …].
    """
    rows = torch.arange(cu_seqlens.shape[0], device=cu_seqlens.device, dtype=torch.int32) * length
    bounds = torch.unique((cu_seqlens + rows[:, None]).flatten())  # sorted; a row ends where the next begins
    return bounds, int(bounds.diff().max())
