"""A teacher's signals in samples of documents, at the labels that they belong to.

In: opened signals, the place of a document, its mask and spans. Out: tensors beside `tokens` and `labels`.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from spanloom.errors import DatasetError
from spanloom.teacher.reader import open_teacher

Missing = Literal["error", "zero"]


class TeacherOfDocuments:
    """The signals of one dataset, for samples. `missing`: what a document without signals is."""

    def __init__(self, folder: Path | str, root: Path, *, missing: Missing) -> None:
        self._signals = open_teacher(folder, root)
        self._missing = missing

    def sample(
        self,
        split: str,
        shard: int,
        sequence: int,
        lossmask: npt.NDArray[Any],
        spans: npt.NDArray[Any] | None,
        length: int,
    ) -> dict[str, torch.Tensor]:
        """Of the first `length` positions of a document:

            teacher_ids       int64 [T, k]    the most probable next tokens
            teacher_logprobs  float32 [T, k]  their log-probabilities
            teacher_own       float32 [T]     that of the label
            teacher_rest      float32 [T]     log of the probability of all other tokens
            teacher_mask      float32 [T]     1 where the label has an entry; all else is 0 elsewhere

        `lossmask`, `spans`: of the whole document, as on disk. Raises DatasetError for one without signals.
        """
        k = self._signals.content.k
        found = self._signals.document(split, shard, sequence)
        positions = self._signals.scored(lossmask, spans)
        if found is None and positions.size and self._missing == "error":
            raise DatasetError(
                f"the teacher has no signals of document {split}/{shard}/{sequence}",
                where=str(self._signals.folder),
                remedy="missing_teacher='zero' gives such documents a teacher_mask of 0",
            )
        if found is not None and len(found) != positions.size:
            raise DatasetError(
                f"document {split}/{shard}/{sequence} has {positions.size} labels, its signals are of {len(found)}",
                where=str(self._signals.folder),
                remedy="`spanloom teacher validate` says all that is wrong",
            )
        sample = {
            "teacher_ids": torch.zeros((length, k), dtype=torch.int64),
            "teacher_logprobs": torch.zeros((length, k), dtype=torch.float32),
            "teacher_own": torch.zeros(length, dtype=torch.float32),
            "teacher_rest": torch.zeros(length, dtype=torch.float32),
            "teacher_mask": torch.zeros(length, dtype=torch.float32),
        }
        if found is None:
            return sample
        kept = positions < length
        at = torch.from_numpy(positions[kept])
        for name in ("ids", "logprobs", "own", "rest"):
            values = torch.from_numpy(np.ascontiguousarray(getattr(found, name)[kept]))
            sample[f"teacher_{name}"][at] = values.to(sample[f"teacher_{name}"].dtype)
        sample["teacher_mask"][at] = 1
        return sample
