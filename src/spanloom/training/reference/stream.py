"""The samples of a step, computed from its number, and the loaders that read them.

In: a dataset from Megatron's builder, the layout of ranks. Out: wire batches in the order of steps and micro-batches.

Step k takes samples k·G … (k+1)·G − 1 of the dataset (G = global batch size); micro-batch m of data-parallel rank r
takes B of them, starting at (m·R + r)·B. So a step's samples depend neither on the number of ranks nor on the point
from which a run resumed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from spanloom.training.batch import Batch
from spanloom.workers import passing


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a global batch of G samples is cut: R ranks × M micro-batches × B samples."""

    replica: int
    replicas: int
    micro_batch: int
    micro_batches: int

    @property
    def global_batch(self) -> int:
        return self.replicas * self.micro_batches * self.micro_batch

    def samples(self, step: int) -> Iterator[list[int]]:
        """This rank's samples of a step, one list per micro-batch."""
        for number in range(self.micro_batches):
            first = step * self.global_batch + (number * self.replicas + self.replica) * self.micro_batch
            yield list(range(first, first + self.micro_batch))


def train_batches(dataset: Any, layout: Layout, *, first_step: int, steps: int, workers: int) -> Iterator[Batch]:
    """Wire batches of steps `first_step` up to `steps`, micro-batch by micro-batch."""
    samples = [micro for step in range(first_step, steps) for micro in layout.samples(step)]
    loader = DataLoader(dataset, batch_sampler=samples, num_workers=workers, collate_fn=collate)
    return passing(loader)


def valid_batches(dataset: Any, layout: Layout, *, samples: int) -> list[list[int]]:
    """This rank's part of the samples 0 … `samples` − 1 (at most all), distributed to ranks in micro-batches.

    Every rank gets the same number of micro-batches; the last may be empty, and is filled with sample 0 without loss.
    """
    samples = min(samples, len(dataset))
    micro = [
        list(range(first, min(first + layout.micro_batch, samples))) for first in range(0, samples, layout.micro_batch)
    ]
    micro += [[]] * (-len(micro) % layout.replicas)
    return micro[layout.replica :: layout.replicas]


def valid_batch(dataset: Any, indices: list[int], micro_batch: int) -> Batch:
    """A wire batch of B samples, padded with sample 0 without loss."""
    batch = collate([dataset[index] for index in [*indices, *[0] * (micro_batch - len(indices))]])
    batch["loss_mask"][len(indices) :] = 0.0
    return batch


def collate(items: list[dict[str, Any]]) -> Batch:
    """Samples `[S]` to a batch `[B, S]`."""
    return {
        key: torch.stack([item[key] for item in items]) for key in ("tokens", "labels", "position_ids", "loss_mask")
    }
