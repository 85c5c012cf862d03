"""The loss with document weights: `L = Σ w·m·loss / Σ w·m` over all labels of a step, m the loss mask.

In: any loss per token `[B, S]`, the mask, the weights (`[B]`, one per row, or `[B, S]`, one per label, if rows hold
several documents), and the sum of `w·m` of the whole step.
Out: this micro-batch's share of L. Shares add up over micro-batches and ranks, and so do their gradients; a mean of the
micro-batches' own means would be a different loss.

Alternatively a sampler draws each document in proportion to its weight. Then the loss uses no weights;
`check_weighted_once` rejects both together, which would square them.
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
        """Summed over the ranks of a group; itself if nothing is distributed."""
        return WeightedCount(total=summed_over_ranks(self.total, group))


def weighted_loss(
    per_token_loss: torch.Tensor, loss_mask: torch.Tensor, weight: torch.Tensor, count: WeightedCount
) -> torch.Tensor:
    """This micro-batch's share of L: float32 scalar. Add the shares; do not average them.

    Args: loss and mask `[B, S]`, weight `[B]` or `[B, S]`, the count of the whole step. Losses at mask 0, NaN too, do
    not count. If the count is 0, so is the loss.
    """
    trained = torch.where(loss_mask > 0, per_token_loss.float() * loss_mask, 0.0)
    share = (trained.double() * _of_labels(weight)).sum()
    return torch.where(count.total > 0, share / torch.where(count.total > 0, count.total, 1.0), 0.0).float()


def _of_labels(weight: torch.Tensor) -> torch.Tensor:
    """float64 `[B, 1]` or `[B, S]`."""
    return weight.double()[:, None] if weight.dim() == 1 else weight.double()


def check_weighted_once(*, loss: bool, sampler: bool) -> None:
    """Raises DatasetError if documents are weighted both in the loss and by the sampler."""
    if loss and sampler:
        raise DatasetError(
            "documents are weighed twice: by the loss, and by how often they are drawn",
            remedy="take the weighted loss or the weighted sampler",
        )
