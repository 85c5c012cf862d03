"""The blocks of a finished dataset for torch, with the same keys as blocks packed on the fly by `loader`.

In: the root of a finished dataset. Out: samples, see `samples`.
"""

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from spanloom.errors import DatasetError
from spanloom.families.chat.samples import Sample, fields
from spanloom.training.pytorch import DocumentDataset
from spanloom.training.shard import read_content


class BlockDataset(Dataset[Sample]):  # type: ignore[misc]  # torch is not followed by mypy here
    """Sample k: block k of a finished dataset, with the keys of `PackedChatDataset`, in the order of the files.

    Raises DatasetError for a dataset that is not packed in blocks.
    """

    def __init__(
        self, root: Path | str, split: str = "train", *, position_ids: bool = False, cu_seqlens: bool = False
    ) -> None:
        content = read_content(Path(root))
        if content.block_size is None:
            raise DatasetError(
                f"this dataset ({content.family}) is not packed in blocks",
                where=str(root),
                remedy="take spanloom.training.pytorch.DocumentDataset or StreamDataset",
            )
        self._documents = DocumentDataset(root, split)
        self._eos, self._all = content.tokenizer.eod, not content.config["post_training"]
        self._fields = {"position_ids": position_ids, "cu_seqlens": cu_seqlens}

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int) -> Sample:
        document = self._documents[index]
        mask = np.empty((1, document["tokens"].numel()), np.uint8)
        # Label-aligned on disk. Token 0 is nobody's label: it has loss only if every token has.
        mask[0, 1:] = document["loss_mask"].numpy()[:-1]
        mask[0, 0] = self._all
        made = fields(document["tokens"].numpy()[None], mask, eos=self._eos, **self._fields)
        return {name: torch.from_numpy(rows[0].copy()) for name, rows in made.items()}
