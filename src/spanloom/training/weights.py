"""The loss of documents with weights: `L = Σ w·m·loss / Σ w·m` over all labels of a step, m the loss mask.

In: any loss per token `[B, S]`, the mask, the weight of each row's document `[B]`, or of each label's `[B, S]` where
rows hold several, and the sum of `w·m` of the whole step.
Out: this micro-batch's share of L. Shares add up over micro-batches and ranks, and so do their gradients; a mean of the
micro-batches' own means would be another loss.

Weights can also be drawn by: a sampler that gives each document as often as it weighs. Then the loss takes none;
`check_weighted_once` refuses both at once, which would square them.
"""

from dataclasses import dataclass
from typing import Any

import torch

from spanloom.errors import DatasetError
from spanloom.training.loss import summed_over_ranks


@dataclass(frozen=True, kw_only=True)
class WeightedCount:
    """`Σ w·m`. `total`: float64 scalar."""

    total: torch.Tensor

    @classmethod
    def of(cls, loss_mask: torch.Tensor, weight: torch.Tensor) -> "WeightedCount":
        """Of one micro-batch: mask `[B, S]`, weight `[B]` or `[B, S]`."""
        return cls(total=(loss_mask.double() * _of_labels(weight)).sum())

    def __add__(self, other: "WeightedCount") -> "WeightedCount":
        return WeightedCount(total=self.total + other.total)

    def all_reduced(self, group: Any = None) -> "WeightedCount":
        """Summed over the ranks of a group; itself where nothing is distributed."""
        return WeightedCount(total=summed_over_ranks(self.total, group))


def weighted_loss(
    per_token_loss: torch.Tensor, loss_mask: torch.Tensor, weight: torch.Tensor, count: WeightedCount
) -> torch.Tensor:
    """This micro-batch's share of L: float32 scalar. Add the shares; do not average them.

    Args: loss and mask `[B, S]`, weight `[B]` or `[B, S]`, the count of the whole step. Losses where the mask is 0, NaN
    too, do not count. A step without weight has loss 0.
    """
    trained = torch.where(loss_mask > 0, per_token_loss.float() * loss_mask, 0.0)
    share = (trained.double() * _of_labels(weight)).sum()
    return torch.where(count.total > 0, share / torch.where(count.total > 0, count.total, 1.0), 0.0).float()


def _of_labels(weight: torch.Tensor) -> torch.Tensor:
    """float64 `[B, 1]` or `[B, S]`."""
    return weight.double()[:, None] if weight.dim() == 1 else weight.double()


def check_weighted_once(*, loss: bool, sampler: bool) -> None:
    """Raises DatasetError where documents are weighed by the loss and drawn by weight as well."""
    if loss and sampler:
        raise DatasetError(
            "documents are weighed twice: by the loss, and by how often they are drawn",
            remedy="take the weighted loss or the weighted sampler",
        )
