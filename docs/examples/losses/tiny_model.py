"""What the examples share: a small model that shows its hidden states, losses on its logits, a loop.

In: the folder that `spanloom toolcalls tokenize` made. Out: the losses of each step.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from spanloom.dataset.manifest import read
from spanloom.families.toolcalls.loader import Batch, PairedLoader
from spanloom.training.weights import WeightedCount, weighted_loss

Losses = dict[str, torch.Tensor]
Step = Callable[["TinyModel", "TinyModel", dict[str, Batch], float], Losses]
"""Model, its frozen copy, a batch with `harmful` and `retain`, progress from 0 to 1 → losses; `total` is trained."""


class TinyModel(nn.Module):
    """A causal transformer of two layers."""

    def __init__(self, vocab_size: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(width, vocab_size)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens `[B, S]` → logits `[B, S, V]` and the hidden states of each layer `[L, B, S, D]`."""
        ahead = torch.triu(torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool), diagonal=1)
        states = [self.embed(tokens)]
        for layer in self.layers:
            states.append(layer(states[-1], src_mask=ahead))
        return self.out(states[-1]), torch.stack(states[1:])


def answer_tokens(batch: Batch) -> torch.Tensor:
    """1 for each token of an answer, float32 `[B, S]`. The batch's own mask is of the labels, one place earlier."""
    mask = torch.zeros_like(batch["loss_mask"])
    mask[:, 1:] = batch["loss_mask"][:, :-1]
    return mask


def bounded_unlikelihood(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean of `-log(1 - p)` over the harmful labels: 0 when the model gives them probability 0.

    Logits `[B, S, V]` → scalar. Never plain cross-entropy, which would teach the attack.
    """
    mask = batch["loss_mask"]
    chosen = logits.float().log_softmax(-1).gather(-1, batch["labels"][..., None])[..., 0]
    unlikely = -torch.log1p(-chosen.exp().clamp(max=1 - 1e-6))
    return (unlikely * mask).sum() / mask.sum().clamp(min=1)


def retain_loss(logits: torch.Tensor, batch: Batch, reference: torch.Tensor | None = None) -> torch.Tensor:
    """Weighted cross-entropy of the labels, or weighted KL divergence of the model from `reference`: scalar."""
    if reference is None:
        losses = nn.functional.cross_entropy(logits.transpose(1, 2).float(), batch["labels"], reduction="none")
    else:
        ours, theirs = logits.float().log_softmax(-1), reference.float().log_softmax(-1)
        losses = nn.functional.kl_div(ours, theirs, log_target=True, reduction="none").sum(-1)
    weight = batch["weight"]
    return weighted_loss(losses, batch["loss_mask"], weight, WeightedCount.of(batch["loss_mask"], weight))


def train(root: Path, step: Step, *, steps: int = 20, benign_per_harmful: int = 5) -> list[dict[str, float]]:
    """Trains a model and returns the losses of each step."""
    torch.manual_seed(0)
    loader = PairedLoader(root, allow_harmful=True, benign_per_harmful=benign_per_harmful, weighted="loss")
    model = TinyModel(read(root / "retain").content.tokenizer.vocab_size)
    frozen = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    history: list[dict[str, float]] = []
    while len(history) < steps:
        for batch in loader:
            losses = step(model, frozen, batch, len(history) / steps)
            optimizer.zero_grad()
            losses["total"].backward()
            optimizer.step()
            history.append({name: loss.item() for name, loss in losses.items()})
            if len(history) == steps:
                break
        loader.set_epoch(len(history))
    return history


def main(step: Step) -> None:
    """`python EXAMPLE.py ROOT [--steps N]`: prints the losses of each step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path, help="the folder with harmful/ and retain/")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    for number, losses in enumerate(train(options.root, step, steps=options.steps)):
        print(number, " ".join(f"{name} {loss:.4f}" for name, loss in losses.items()))
