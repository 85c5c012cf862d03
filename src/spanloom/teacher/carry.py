"""Signals of a dataset that was built again: entries of documents that are as they were.

In: finished signals, the dataset that they are of, one that is made of some of the same documents. Out: the stored
signals of a document, if the old dataset has one with the same tokens, scored positions and labels. The old signals
hold no tokens, so that both datasets are read.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.opened import content_at
from spanloom.errors import DatasetError
from spanloom.teacher.coding import CODING
from spanloom.teacher.parts import PART_TOKENS
from spanloom.teacher.positions import ScoredDocument, documents_of
from spanloom.teacher.reader import TeacherSignals, open_teacher
from spanloom.teacher.signals import Signals, TeacherError
from spanloom.teacher.sources.teacher import Teacher

Place = tuple[str, int, int]


class CarriedSignals:
    """Old signals, by what their documents are. See `teacher.StoredSignals`."""

    missing = "not_carried"

    def __init__(self, folder: Path, root: Path, dataset: Content) -> None:
        """`folder`: of the signals, whose files are hashed; `root`: of their dataset; `dataset`: the new one's content.

        The old dataset is read whole, and about 200 bytes a document are held. Raises ArtifactError for damaged
        signals, DatasetError if a dataset is another one or has another tokenizer.
        """
        old = content_at(root)
        if old.tokenizer.sha256 != dataset.tokenizer.sha256:
            raise DatasetError(
                f"the old dataset has the tokenizer {old.tokenizer.name}, the new one {dataset.tokenizer.name}",
                where=str(root),
                remedy="score the new dataset: spanloom teacher score",
            )
        self._signals: TeacherSignals = open_teacher(folder, root, dataset=old, verify=True)
        content = self._signals.content
        self.identity, self.sha256 = content.teacher, content.sha256
        self.k, self.spans, self.own, self.padded, self.sums = (
            content.k,
            content.spans,
            content.own,
            content.padded,
            content.sums,
        )
        self._places: dict[bytes, Place] = {}
        for split, shard in old.filled():
            for part in documents_of(root, old, split, shard, self._signals.spans, PART_TOKENS):
                for each in part:
                    if each.positions.size:
                        self._places.setdefault(_key(each), (split, shard, each.sequence))

    def has(self, document: ScoredDocument) -> bool:
        """Whether the document has stored signals."""
        place = self._places.get(_key(document))
        return place is not None and self._signals.document(*place) is not None

    def of(self, documents: Sequence[ScoredDocument]) -> dict[int, Signals]:
        """The stored signals of those documents that have some, by the number of the document."""
        found = {}
        for each in documents:
            place = self._places.get(_key(each))
            signals = None if place is None else self._signals.document(*place)
            if signals is not None:
                found[each.sequence] = signals
        return found

    def check_teacher(self, teacher: Teacher, document: ScoredDocument) -> None:
        """Raises TeacherError if the teacher scores a document with stored signals otherwise than they are."""
        (stored,) = self.of([document]).values()
        (scored,) = teacher.scores([document], self.k)
        differ = float(np.abs(stored.own - scored.own.clip(-32)).max())
        if not differ <= teacher.tolerance + CODING:
            raise TeacherError(
                f"the teacher scores a document otherwise than it is stored: by {differ:.2g}",
                where=str(self._signals.folder),
                remedy="score with the teacher that scored the old dataset, on the same kind of machine",
            )


def _key(document: ScoredDocument) -> bytes:
    """16 bytes of what the signals of a document depend on."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.array([document.tokens.size, document.positions.size], "<i8").tobytes())
    for values, dtype in ((document.tokens, "<i4"), (document.positions, "<i8"), (document.labels, "<i4")):
        digest.update(np.ascontiguousarray(values, dtype).tobytes())
    return digest.digest()
