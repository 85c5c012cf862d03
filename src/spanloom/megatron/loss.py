"""The loss of a dataset with spans: `L = w_r · mean(loss | analysis) + w_f · mean(loss | final)`.

In: any loss per token `[…]` (cross entropy, KL from a teacher, on-policy distillation), the mask and span of each
label, and how many tokens each span has in the whole step. Out: this micro-batch's share of L, and what to log.

A mean of means over micro-batches is another loss: with 3 reasoning tokens in one micro-batch and 300 in the next,
each of the 3 would weigh a hundred times more. So the counts are those of the global step, over micro-batches,
data- and context-parallel ranks, and shares add up: their sum is L, and the sum of their gradients is its gradient.
A span without tokens adds 0. Tokens that are trained but in neither span carry no loss.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from spanloom.supervision import SPAN_ANALYSIS, SPAN_FINAL

SPANS = {"analysis": SPAN_ANALYSIS, "final": SPAN_FINAL}
"""The spans of the loss, in the order of every `[2]` tensor here."""


@dataclass(frozen=True, kw_only=True)
class SpanWeights:
    """`w_r` and `w_f` of the loss."""

    analysis: float = 1.0
    final: float = 1.0

    def on(self, device: torch.device) -> torch.Tensor:
        """float64 [2]."""
        return torch.tensor([self.analysis, self.final], dtype=torch.float64, device=device)


@dataclass(frozen=True, kw_only=True)
class SpanCounts:
    """Trained tokens of each span. `tokens`: int64 [2], analysis and final."""

    tokens: torch.Tensor

    @classmethod
    def of(cls, loss_mask: torch.Tensor, span_id: torch.Tensor) -> "SpanCounts":
        """Counts one micro-batch, `[B, S]` each."""
        return cls(tokens=torch.stack([span.sum() for span in _members(loss_mask, span_id)]))

    def __add__(self, other: "SpanCounts") -> "SpanCounts":
        return SpanCounts(tokens=self.tokens + other.tokens)

    def all_reduced(self, group: Any = None) -> "SpanCounts":
        """Summed over the ranks of a group; itself where nothing is distributed."""
        if not dist.is_initialized() or dist.get_world_size(group) == 1:
            return self
        tokens = self.tokens.clone()
        dist.all_reduce(tokens, group=group)
        return SpanCounts(tokens=tokens)

    def per_token(self, weights: SpanWeights) -> torch.Tensor:
        """Weight of one token of each span, `w_s / N_s`, 0 where the step has none: float64 [2]."""
        present = self.tokens > 0
        return torch.where(present, weights.on(self.tokens.device) / self.tokens.clamp(min=1), 0.0)

    def effective_weights(self, weights: SpanWeights) -> torch.Tensor:
        """How many tokens of a plain masked mean one token of each span weighs, `w_s · N / N_s`: float64 [2]."""
        return self.per_token(weights) * self.tokens.sum()


def span_sums(per_token_loss: torch.Tensor, loss_mask: torch.Tensor, span_id: torch.Tensor) -> torch.Tensor:
    """Loss summed over the trained tokens of each span: float32 [2]. Values elsewhere, NaN too, do not count."""
    losses = per_token_loss.float()
    return torch.stack([torch.where(span, losses, 0.0).sum() for span in _members(loss_mask, span_id)])


def span_normalized_loss(
    per_token_loss: torch.Tensor,
    loss_mask: torch.Tensor,
    span_id: torch.Tensor,
    counts: SpanCounts,
    weights: SpanWeights,
) -> torch.Tensor:
    """This micro-batch's share of L: float32 scalar. Add the shares; do not average them.

    Args: three tensors of one shape; counts of the whole step. With the micro-batch's own counts it is L itself.
    """
    return (span_sums(per_token_loss, loss_mask, span_id) * counts.per_token(weights).float()).sum()


def span_loss_func(
    loss_mask: torch.Tensor,
    span_id: torch.Tensor,
    counts: SpanCounts,
    weights: SpanWeights,
    output_tensor: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Megatron's `loss_func`, for `calculate_per_token_loss=True` (`--calculate-per-token-loss`).

    Megatron adds the first value over micro-batches and ranks, adds the second, and divides gradients by it. So a token
    of span s comes in with `w_s · N / N_s`, and the quotient is L. The reports are `[sum, count]`, which Megatron adds
    and divides likewise: `lm loss` is L, the others are the mean loss of each span (0 for one that the step lacks).

    Returns: float32 scalar; int32 scalar; name → float32 [2].
    """
    sums = span_sums(output_tensor.view_as(loss_mask), loss_mask, span_id)
    own = SpanCounts.of(loss_mask, span_id).tokens
    loss = (sums * counts.effective_weights(weights).float()).sum()
    detached = sums.detach()
    # Megatron divides what it logs without looking: a step without a span, or without any, must not log 0 / 0.
    shown = torch.where(counts.tokens > 0, own, 1).float()
    total = torch.where(counts.tokens.sum() > 0, own.sum(), 1).float()
    report = {"lm loss": torch.stack([loss.detach(), total])}
    for place, name in enumerate(SPANS):
        report[f"{name} loss"] = torch.stack([detached[place], shown[place]])
    return loss, own.sum().to(torch.int32), report


def _members(loss_mask: torch.Tensor, span_id: torch.Tensor) -> list[torch.Tensor]:
    trained = loss_mask > 0
    return [trained & (span_id == span) for span in SPANS.values()]
