"""Training steps for torch, each of one harmful sample and N retain samples, read from the two roots.

In: the roots that `spanloom toolcalls tokenize` made. Out: batches `{"harmful": …, "retain": …}`, each made by
`spanloom.training.pytorch.collate`, with `weight` if the loss is weighted.

    rank 0   h0 | r0 r1     h2 | r4 r5     …       every rank has its own steps
    rank 1   h1 | r2 r3     h3 | r6 r7     …

An epoch is one pass over the harmful samples. Retain samples are shuffled, or drawn by weight. Each step continues
where the last one stopped; when the shuffled samples are used up, they are shuffled again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from spanloom.errors import DatasetError
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN
from spanloom.families.toolcalls.samples.sampling import Positions, drawn_by_weight
from spanloom.training.pytorch import DocumentDataset, collate

Batch = dict[str, torch.Tensor]


class PairedLoader:
    """Iterates over the steps of one rank. The same seed and epoch give the same steps for any number of ranks.

    weighted    None: all samples count the same; "loss": batches have `weight`; "sampler": samples are drawn by weight
    max_length  samples are truncated to this many tokens. The answer is at the end, so a truncated sample has little or
                no loss: `spanloom toolcalls tokenize --max-length` leaves out samples whose answer would be cut
    """

    def __init__(
        self,
        root: Path | str,
        *,
        allow_harmful: bool = False,
        split: str = "train",
        benign_per_harmful: int = defaults.BENIGN_PER_HARMFUL,
        weighted: Literal["loss", "sampler"] | None = None,
        max_length: int | None = None,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """`root`: the folder of both roots. Raises DatasetError if one is missing or `allow_harmful` is not set."""
        if not 0 <= rank < ranks or benign_per_harmful < 1:
            raise DatasetError(f"rank {rank} of {ranks} or benign_per_harmful is invalid", remedy="fix the options")
        by_loss = weighted == "loss"
        folder = Path(root)
        self.harmful = DocumentDataset(
            folder / HARMFUL, split, max_length=max_length, weights=by_loss, allow_harmful=allow_harmful
        )
        self.retain = DocumentDataset(folder / RETAIN, split, max_length=max_length, weights=by_loss)
        self._beside, self._weighted = benign_per_harmful, weighted
        self._seed, self._rank, self._ranks, self._epoch = seed, rank, ranks, 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which changes the order. Call it before each epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self.harmful) // self._ranks

    def positions(self) -> Iterator[tuple[int, list[int]]]:
        """Yields, for each step of this rank, the positions of the harmful sample and of its retain samples."""
        steps = len(self)
        harmful = self._order(self.harmful, steps * self._ranks, 0)
        retain = self._order(self.retain, steps * self._ranks * self._beside, 1)
        for step in range(steps):
            number = step * self._ranks + self._rank
            first = number * self._beside
            yield int(harmful[number]), retain[first : first + self._beside].tolist()

    def __iter__(self) -> Iterator[dict[str, Batch]]:
        for position, beside in self.positions():
            yield {"harmful": collate([self.harmful[position]]), "retain": collate([self.retain[at] for at in beside])}

    def _order(self, dataset: DocumentDataset, count: int, kind: int) -> Positions:
        """`count` positions: whole passes over the samples, or draws by weight."""
        seed = 2 * self._seed + kind
        if self._weighted == "sampler":
            return drawn_by_weight(dataset.weights, count, seed=seed, epoch=self._epoch)
        generator = np.random.Generator(np.random.PCG64([seed, self._epoch]))
        passes = [generator.permutation(len(dataset)) for _ in range(-(-count // len(dataset)))]
        return np.concatenate([np.empty(0, np.int64), *passes])[:count].astype(np.int64)
