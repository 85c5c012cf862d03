"""Samples and batches for torch.

In: finished blocks with their token-aligned loss mask. Out: arrays by key, samples, batches:

    input_ids       int64 [B]
    loss_mask       int64 [B]      1 = trained, token-aligned
    targets         int64 [B - 1]  input_ids[1:], and -100 where loss_mask[1:] is 0; inputs are input_ids[:-1]
    attention_mask  int64 [B]      all 1
    position_ids    int64 [B]      optional: starts at 0 again in each conversation
    cu_seqlens      int32 [C + 1]  optional: where the block's C conversations begin, then B
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spanloom.families.chat.blocks.masks import targets

Sample = dict[str, torch.Tensor]


def fields(
    input_ids: npt.NDArray[Any],
    loss_mask: npt.NDArray[np.uint8],
    *,
    eos: int,
    position_ids: bool = False,
    cu_seqlens: bool = False,
) -> dict[str, Any]:
    """The arrays of N blocks by key, one row per block; the keys are in the module's docstring.

    Args: input_ids int32 or int64 [N, B]; loss_mask uint8 [N, B], token-aligned.
    """
    made: dict[str, Any] = {
        "input_ids": input_ids.astype(np.int64),
        "loss_mask": loss_mask.astype(np.int64),
        "targets": targets(input_ids, loss_mask),
        "attention_mask": np.ones(input_ids.shape, np.int64),
    }
    # Where each conversation, or its part in the block, begins: [7 X 8 9 X 7] → [1 0 1 0 0 1]
    begins = np.ones(input_ids.shape, np.bool_)
    np.equal(input_ids[:, :-1], eos, out=begins[:, 1:])
    if position_ids:
        index = np.arange(input_ids.shape[1])
        made["position_ids"] = index - np.maximum.accumulate(np.where(begins, index, 0), axis=1)
    if cu_seqlens:
        made["cu_seqlens"] = [np.append(np.flatnonzero(row), row.size).astype(np.int32) for row in begins]
    return made


def collate(samples: list[Sample]) -> Sample:
    """Samples of N blocks → `[N, B]`. `cu_seqlens` are those of the concatenated blocks, `[N · B]`: int32 [C + 1]."""
    batch = {key: torch.stack([sample[key] for sample in samples]) for key in samples[0] if key != "cu_seqlens"}
    if "cu_seqlens" in samples[0]:
        width = samples[0]["input_ids"].numel()
        begins = [sample["cu_seqlens"][:-1] + number * width for number, sample in enumerate(samples)]
        batch["cu_seqlens"] = torch.cat([*begins, torch.tensor([len(samples) * width], dtype=torch.int32)])
    return batch
