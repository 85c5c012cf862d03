"""One step of the loss per span, in plain torch: its gradient and its figures, over micro-batches and ranks.

In: a model, this rank's micro-batches, weights. Out: the figures of the step; gradients in the parameters; an update.
"""

from collections.abc import Sequence
from typing import Any

import torch

from spanloom.training.batch import Batch
from spanloom.training.loss import SpanCounts, SpanWeights, span_normalized_loss, span_sums, summed_over_ranks
from spanloom.training.runs.trainlog import Record


def figures_of(model: Any, batches: Sequence[Batch], weights: SpanWeights) -> Record:
    """Figures over the batches of all ranks: `loss`, which is L, `samples`, and of each span NAME `NAME_loss`, the mean
    over its tokens (None without any), `NAME_tokens`, and `NAME_weight`, the weight of one in tokens of a plain masked
    mean.

    Where gradients are on, every rank then has the gradient of L in the parameters. Call it on all ranks; one may have
    no batch.

    Args: model, batch → loss of each label, float [B, S]; batches with `loss_mask` and `span_id`, `[B, S]`.
    """
    device, spans = next(model.parameters()).device, len(weights)
    batches = [{name: value.to(device) for name, value in batch.items()} for batch in batches]
    counts = SpanCounts(tokens=torch.zeros(spans, dtype=torch.int64, device=device))
    for batch in batches:
        counts += SpanCounts.of(batch["loss_mask"], batch["span_id"], spans)
    counts = counts.all_reduced()  # of the whole step: L is no mean of the micro-batches' means
    sums = torch.zeros(spans, dtype=torch.float64, device=device)
    for batch in batches:
        losses, mask, span = model(batch), batch["loss_mask"], batch["span_id"]
        if torch.is_grad_enabled():
            span_normalized_loss(losses, mask, span, counts, weights).backward()
        sums += span_sums(losses.detach(), mask, span, spans)
    sums = summed_over_ranks(sums)
    if torch.is_grad_enabled():
        for parameter in model.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = summed_over_ranks(gradient)
    samples = summed_over_ranks(torch.tensor(sum(len(batch["loss_mask"]) for batch in batches), device=device))
    record: Record = {"loss": float((sums * counts.per_token(weights)).sum()), "samples": int(samples)}
    of_token = counts.effective_weights(weights).tolist()
    for name, total, count, weight in zip(weights.names, sums.tolist(), counts.tokens.tolist(), of_token, strict=True):
        record |= {f"{name}_loss": total / count if count else None, f"{name}_tokens": count, f"{name}_weight": weight}
    return record


def update(model: Any, optimizer: Any, learning_rate: float, clip: float = 1.0) -> float:
    """One update from the gradients, scaled down to the norm `clip`. Returns their norm before."""
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    return norm
