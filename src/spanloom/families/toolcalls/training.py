"""An example that trains on both roots: one loss on retain samples, one that moves the model off harmful answers.

In: the folder of both roots. Out: the losses of each step. The model is a small transformer; the example shows which
loss to use for which samples:

    retain   weighted cross-entropy on the masked labels, or KL divergence from a frozen copy of the model
    harmful  a function that you supply: never plain cross-entropy, which would teach the attack
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from spanloom.dataset.manifest import read
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.tables import RETAIN
from spanloom.families.toolcalls.loader import Batch, PairedLoader
from spanloom.training.weights import WeightedCount, weighted_loss

HarmfulLoss = Callable[[torch.Tensor, Batch], torch.Tensor]
"""Logits `[B, S, V]` and the batch → scalar."""


def bounded_unlikelihood(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean of `-log(1 - p)` over the harmful labels: 0 when the model gives them probability 0."""
    mask = batch["loss_mask"]
    chosen = logits.float().log_softmax(-1).gather(-1, batch["labels"][..., None])[..., 0]
    unlikely = -torch.log1p(-chosen.exp().clamp(max=1 - 1e-6))
    return (unlikely * mask).sum() / mask.sum().clamp(min=1)


class SmallModel(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    """A causal transformer with one layer."""

    def __init__(self, vocab_size: int, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, vocab_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        ahead = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        return self.out(self.layer(self.embed(tokens), src_mask=ahead))


def retain_loss(logits: torch.Tensor, batch: Batch, reference: torch.Tensor | None) -> torch.Tensor:
    """Weighted cross-entropy of the labels, or weighted KL divergence of the model from `reference`: scalar."""
    if reference is None:
        losses = nn.functional.cross_entropy(logits.transpose(1, 2).float(), batch["labels"], reduction="none")
    else:
        ours, theirs = logits.float().log_softmax(-1), reference.float().log_softmax(-1)
        losses = nn.functional.kl_div(ours, theirs, log_target=True, reduction="none").sum(-1)
    weight = batch["weight"]
    return weighted_loss(losses, batch["loss_mask"], weight, WeightedCount.of(batch["loss_mask"], weight))


def train_example(
    root: Path,
    *,
    steps: int = 20,
    retain: Literal["cross-entropy", "kl"] = "cross-entropy",
    harmful_loss: HarmfulLoss = bounded_unlikelihood,
    harmful_weight: float = 1.0,
    benign_per_harmful: int = defaults.BENIGN_PER_HARMFUL,
    learning_rate: float = 3e-3,
    max_length: int | None = None,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Trains a small model and returns the losses of each step: `harmful`, `retain`, `total`.

    `max_length` as in `PairedLoader`.
    """
    torch.manual_seed(seed)
    loader = PairedLoader(
        root,
        allow_harmful=True,
        benign_per_harmful=benign_per_harmful,
        weighted="loss",
        max_length=max_length,
        seed=seed,
    )
    model = SmallModel(read(root / RETAIN).content.tokenizer.vocab_size)
    frozen = copy.deepcopy(model).eval() if retain == "kl" else None
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    history: list[dict[str, float]] = []
    epoch = 0
    while len(history) < steps:
        loader.set_epoch(epoch)
        for batch in loader:
            harmful, kept = batch["harmful"], batch["retain"]
            with torch.no_grad():
                reference = None if frozen is None else frozen(kept["tokens"])
            away = harmful_loss(model(harmful["tokens"]), harmful)
            stay = retain_loss(model(kept["tokens"]), kept, reference)
            total = harmful_weight * away + stay
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            history.append({"harmful": away.item(), "retain": stay.item(), "total": total.item()})
            if len(history) == steps:
                break
        epoch += 1
    return history
