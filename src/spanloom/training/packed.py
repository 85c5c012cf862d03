"""Packed samples for plain PyTorch: whole documents side by side, none of which sees another. No Megatron.

In: a plan. Out: samples as tensors, batches, the attention that keeps documents apart (a mask, or sequence bounds for
kernels of variable length), and the numbers of the samples that a rank reads, from any point of any epoch on.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import Dataset, Sampler

from spanloom.training.samples.epoch_order import EpochOrder
from spanloom.training.samples.packed import PackedSamples, open_samples

Sample = dict[str, torch.Tensor]


class PackedDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k of a plan: keys and shapes are those of `samples.packed`. In the order of the plan's files.

    A plan puts documents of like lengths next to each other: shuffle, or read through `EpochSampler`.
    """

    def __init__(
        self,
        plan: Path | str,
        split: str = "train",
        *,
        root: Path | str | None = None,
        verify: bool = False,
        allow_harmful: bool = False,
    ) -> None:
        """`root`: the dataset's, where it is not where it was when the plan was made. `verify`: hash everything
        but the `.bin`. `allow_harmful`: see `spanloom.training.shard.read_content`."""
        self.samples: PackedSamples = open_samples(plan, split, root, verify=verify, allow_harmful=allow_harmful)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return {name: torch.from_numpy(values) for name, values in self.samples.sample(index % len(self)).items()}


class EpochSampler(Sampler[int]):  # type: ignore[misc]  # torch is not followed by mypy here
    """The samples that one rank reads, epoch after epoch, each epoch in an order of its own.

    All ranks together read sample number 0, 1, 2, … of the run; rank r of R reads the numbers n with n mod R = r. A run
    that has consumed n samples continues with `begin=n`, with any number of ranks.
    """

    def __init__(
        self, samples: int, *, seed: int = 0, rank: int = 0, ranks: int = 1, begin: int = 0, end: int | None = None
    ) -> None:
        """`samples`: of an epoch, `len(dataset)`. `end`: number of the sample to stop before; None ends with the epoch
        that `begin` is in. Ranks read equally many where `end` - `begin` is a multiple of `ranks`."""
        self._order = EpochOrder(samples, seed=seed)
        end = (begin // samples + 1) * samples if end is None else end
        self._numbers = range(begin + (rank - begin) % ranks, end, ranks)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return (self._order[number] for number in self._numbers)


def collate_packed(samples: list[Sample]) -> Sample:
    """Samples → a batch `[B, S]`; `cu_seqlens` int32 [B, longest], filled up with S."""
    batch = {key: torch.stack([sample[key] for sample in samples]) for key in samples[0] if key != "cu_seqlens"}
    length = batch["tokens"].shape[1]
    bounds = [sample["cu_seqlens"] for sample in samples]
    batch["cu_seqlens"] = torch.nn.utils.rnn.pad_sequence(bounds, batch_first=True, padding_value=length)
    return batch


def document_ids(cu_seqlens: torch.Tensor, length: int) -> torch.Tensor:
    """Which document each position is of, counted in its sample: int64 [B, S]. `cu_seqlens` int32 [B, n], as collated.

    What `flex_attention`'s masks ask for.
    """
    positions = torch.arange(length, device=cu_seqlens.device).expand(cu_seqlens.shape[0], -1)
    return torch.searchsorted(cu_seqlens[:, 1:].contiguous().long(), positions.contiguous(), right=True)


def block_diagonal(cu_seqlens: torch.Tensor, length: int) -> torch.Tensor:
    """Which position may see which: bool [B, 1, S, S], True where position i (third axis) sees j ≤ i of its document.

    `scaled_dot_product_attention(…, attn_mask=…)` takes it as it is; it has S² entries a sample.
    """
    of = document_ids(cu_seqlens, length)
    return (of[:, :, None] == of[:, None, :]).tril()[:, None]


def varlen(cu_seqlens: torch.Tensor, length: int) -> tuple[torch.Tensor, int]:
    """Bounds of the documents of a whole batch laid end to end, for attention kernels of variable length.

    `cu_seqlens` int32 [B, n], as collated. Returns int32 [documents + 1], from 0 to B · S, and the longest document.
    Reshape what goes into attention from [B, S, …] to [B · S, …].
    """
    rows = torch.arange(cu_seqlens.shape[0], device=cu_seqlens.device, dtype=torch.int32) * length
    bounds = torch.unique((cu_seqlens + rows[:, None]).flatten())  # sorted; a row's end is the next one's beginning
    return bounds, int(bounds.diff().max())
