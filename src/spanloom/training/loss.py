"""The loss of a dataset with spans: `L = Σ w_s · mean(loss | s)` over its trained spans s: reasoning, answer.

In: any loss per token `[…]` (cross entropy, KL from a teacher, on-policy distillation), the mask and span of each
label, and how many tokens each span has in the whole step. Out: this micro-batch's share of L, and what to log.

A mean of means over micro-batches is a different loss: with 3 reasoning tokens in one micro-batch and 300 in the next,
each of the 3 would weigh a hundred times more. So the counts are those of the global step: all micro-batches, data- and
context-parallel ranks. Shares add up: their sum is L, and the sum of their gradients is the gradient of L.
A span without tokens adds 0. Trained tokens outside all trained spans carry no loss.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from spanloom.errors import DatasetError

NO_TOKENS = torch.finfo(torch.float32).tiny
"""Replaces a count of 0 in a denominator. Added to any count it changes nothing, and 0 divided by it is 0."""


@dataclass(frozen=True)
class SpanWeights:
    """The weight of each trained span, by name: `SpanWeights({"analysis": 1.0, "final": 0.5})`.

    Names are in the order of the dataset's `span_names` without the first, context: span id s is the s-th name.
    """

    by_name: Mapping[str, float]

    @classmethod
    def equal(cls, span_names: Sequence[str]) -> "SpanWeights":
        """1 for each trained span. `span_names`: the manifest's, context first."""
        return cls(dict.fromkeys(span_names[1:], 1.0))

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    def on(self, device: torch.device) -> torch.Tensor:
        """float64 [spans]."""
        return torch.tensor(list(self.by_name.values()), dtype=torch.float64, device=device)


@dataclass(frozen=True, kw_only=True)
class SpanCounts:
    """Trained tokens of each span. `tokens`: int64 [spans], in the order of their ids, from 1."""

    tokens: torch.Tensor

    @classmethod
    def of(cls, loss_mask: torch.Tensor, span_id: torch.Tensor, spans: int) -> "SpanCounts":
        """Counts one micro-batch, `[B, S]` each. `spans`: number of trained spans."""
        return cls(tokens=torch.stack([span.sum() for span in _members(loss_mask, span_id, spans)]))

    def __add__(self, other: "SpanCounts") -> "SpanCounts":
        return SpanCounts(tokens=self.tokens + other.tokens)

    def all_reduced(self, group: Any = None) -> "SpanCounts":
        """Summed over the ranks of a group."""
        return SpanCounts(tokens=summed_over_ranks(self.tokens, group))

    def per_token(self, weights: SpanWeights) -> torch.Tensor:
        """Weight of one token of each span, `w_s / N_s`, 0 where the step has none: float64 [spans]."""
        present = self.tokens > 0
        return torch.where(present, weights.on(self.tokens.device) / self.tokens.clamp(min=1), 0.0)

    def effective_weights(self, weights: SpanWeights) -> torch.Tensor:
        """Weight of one token of each span, in tokens of a plain masked mean, `w_s · N / N_s`: float64 [spans]."""
        return self.per_token(weights) * self.tokens.sum()


def summed_over_ranks(values: torch.Tensor, group: Any = None) -> torch.Tensor:
    """A new tensor with the sums over the ranks of a group; `values` itself if nothing is distributed."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return values
    total = values.clone()
    dist.all_reduce(total, group=group)
    return total


def span_sums(per_token_loss: torch.Tensor, loss_mask: torch.Tensor, span_id: torch.Tensor, spans: int) -> torch.Tensor:
    """Loss summed over the trained tokens of each span: float32 [spans]. Other values, NaN too, do not count."""
    losses = per_token_loss.float()
    return torch.stack([torch.where(span, losses, 0.0).sum() for span in _members(loss_mask, span_id, spans)])


def span_normalized_loss(
    per_token_loss: torch.Tensor,
    loss_mask: torch.Tensor,
    span_id: torch.Tensor,
    counts: SpanCounts,
    weights: SpanWeights,
) -> torch.Tensor:
    """This micro-batch's share of L: float32 scalar. Add the shares; do not average them.

    Args: three tensors of one shape; counts of the whole step. With its own counts the result is the micro-batch's L.
    """
    return (span_sums(per_token_loss, loss_mask, span_id, len(weights)) * counts.per_token(weights).float()).sum()


def span_loss_func(
    loss_mask: torch.Tensor,
    span_id: torch.Tensor,
    counts: SpanCounts,
    weights: SpanWeights,
    output_tensor: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Megatron's `loss_func`, for `calculate_per_token_loss=True` (`--calculate-per-token-loss`).

    Megatron sums the first and the second value over micro-batches and ranks, and divides gradients by the second sum.
    So a token of span s has the weight `w_s · N / N_s`, and the quotient is L. The third value is `span_report`.

    Returns: float32 scalar; int32 scalar; name → float32 [2].
    """
    sums = span_sums(output_tensor.view_as(loss_mask), loss_mask, span_id, len(weights))
    own = SpanCounts.of(loss_mask, span_id, len(weights))
    loss = (sums * counts.effective_weights(weights).float()).sum()
    return loss, own.tokens.sum().to(torch.int32), span_report(sums.detach(), own, counts, weights)


def span_report(
    sums: torch.Tensor, own: SpanCounts, counts: SpanCounts, weights: SpanWeights
) -> dict[str, torch.Tensor]:
    """A micro-batch's part of Megatron's log. Each entry is `[a, b]`, and Megatron logs Σa / Σb over the step.

        lm loss        plain mean over the trained tokens, as in any run of Megatron
        weighted loss  L, the trained loss
        NAME loss      mean over the span's trained tokens; 0 if it has none
        NAME tokens    trained tokens of the span in the step
        NAME weight    weight of one token of the span, in tokens of a plain masked mean

    In evaluation Megatron adds a and b over its iterations too. Then the means (`lm loss`, `NAME loss`) are exact over
    all of them, `NAME tokens` is the mean per iteration, and `weighted loss` is the mean of L weighted by tokens.

    Args: sums, float32 [spans], of this micro-batch; own, its counts; counts, those of the step.
    Returns: name → float32 [2].
    """
    effective = counts.effective_weights(weights).float()
    trained = own.tokens.sum().float()
    in_step = counts.tokens.sum()
    share = trained / in_step.clamp(min=1)  # these add up to 1 over the step

    def quotient(numerator: torch.Tensor, denominator: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([numerator, torch.where(tokens > 0, denominator, NO_TOKENS)])

    report = {
        "lm loss": quotient(sums.sum(), trained, in_step),
        "weighted loss": quotient((sums * effective).sum(), trained, in_step),
    }
    for place, name in enumerate(weights.names):
        tokens = own.tokens[place].float()
        report[f"{name} loss"] = quotient(sums[place], tokens, counts.tokens[place])
        report[f"{name} tokens"] = quotient(tokens, share, in_step)
        report[f"{name} weight"] = quotient(effective[place] * share, share, in_step)
    return report


def span_weights(text: str, span_names: Sequence[str]) -> SpanWeights:
    """Parses `analysis=1,final=0.5` into the weight of each trained span of the dataset; 1 for a span not named.

    Raises DatasetError for a span that the dataset does not train, or a weight that is not a finite number.
    """
    weights = dict(SpanWeights.equal(span_names).by_name)
    for part in filter(None, text.split(",")):
        name, _, weight = part.partition("=")
        try:
            if name not in weights or not math.isfinite(float(weight)):
                raise ValueError
            weights[name] = float(weight)
        except ValueError:
            raise DatasetError(
                f"{part!r} is not SPAN=WEIGHT", remedy=f"the trained spans of this dataset are {', '.join(weights)}"
            ) from None
    return SpanWeights(weights)


def _members(loss_mask: torch.Tensor, span_id: torch.Tensor, spans: int) -> list[torch.Tensor]:
    trained = loss_mask > 0
    return [trained & (span_id == span) for span in range(1, spans + 1)]
