"""A teacher's signals in samples, at the labels that they belong to. numpy alone.

In: opened signals, a document, the range of its positions that a sample has. Out: arrays beside `tokens` and `labels`,
position by position, `[S]` as the sample is:

    teacher_ids       int64   [S, k]  the most probable next tokens
    teacher_logprobs  float32 [S, k]  their log-probabilities
    teacher_own       float32 [S]     that of the label; NaN in imported signals
    teacher_rest      float32 [S]     log of the probability of all other tokens
    teacher_mask      float32 [S]     1 where the label has an entry; all else is 0 elsewhere

Entries on disk are those of scored positions alone. Which entry is that of a position is a count over the document's
mask from its start: with `lossmask` [0, 1, 1, 0, 1], the range 2 … 4 has the entries 1 and 2.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from spanloom.errors import DatasetError
from spanloom.teacher.reader import open_teacher

Missing = Literal["error", "zero"]
Arrays = dict[str, npt.NDArray[Any]]

_VALUES = ("ids", "logprobs", "own", "rest")


class TeacherOfDocuments:
    """The signals of one dataset. `missing`: a document without signals is an error, or has a `teacher_mask` of 0."""

    def __init__(self, folder: Path | str, root: Path, *, missing: Missing = "error") -> None:
        """Raises ArtifactError for damaged signals, DatasetError for those of another dataset."""
        self._signals = open_teacher(folder, root)
        self._missing = missing

    def empty(self, length: int) -> Arrays:
        """The arrays of `length` positions without entries."""
        k = self._signals.content.k
        return {
            "teacher_ids": np.zeros((length, k), np.int64),
            "teacher_logprobs": np.zeros((length, k), np.float32),
            "teacher_own": np.zeros(length, np.float32),
            "teacher_rest": np.zeros(length, np.float32),
            "teacher_mask": np.zeros(length, np.float32),
        }

    def put(
        self,
        sample: Arrays,
        at: int,
        document: tuple[str, int, int],
        lossmask: npt.NDArray[Any],
        spans: npt.NDArray[Any] | None,
        part: slice,
    ) -> None:
        """Writes the entries of a part of a document into the arrays of `empty`, from position `at` on.

        document         split, shard, number in the split of the shard
        lossmask, spans  [T], of the whole document, as on disk
        part             positions of the document, start and stop given, that are in the sample

        Raises DatasetError for a document without signals, or with others than its labels.
        """
        positions = self._signals.scored(lossmask, spans)
        begin, end = np.searchsorted(positions, (part.start, part.stop)).tolist()
        if begin == end:
            return
        found = self._signals.entries(document, positions.size)
        if found is None:
            if self._missing == "zero":
                return
            raise DatasetError(
                f"the teacher has no signals of document {'/'.join(map(str, document))}",
                where=str(self._signals.folder),
                remedy="missing_teacher='zero' gives such documents a teacher_mask of 0",
            )
        places = positions[begin:end] - part.start + at
        for name in _VALUES:
            sample[f"teacher_{name}"][places] = getattr(found, name)[begin:end]
        sample["teacher_mask"][places] = 1
