"""Signals by document: for users, batches and trainers. numpy alone; a document is read when it is wanted.

In: a folder of signals and its dataset. Out: `TeacherSignals`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.opened import content_at
from spanloom.errors import ArtifactError, DatasetError
from spanloom.megatron.reader import MappedSequences
from spanloom.storage import sha256_file
from spanloom.teacher.coding import decode_ids, decode_logprobs
from spanloom.teacher.format import (
    OWN,
    REST,
    TOP_HIGH,
    TOP_LOGP,
    TOP_LOW,
    ShardSignals,
    TeacherContent,
    check_dataset,
    prefixes,
    read_teacher,
)
from spanloom.teacher.signals import Signals


@dataclass(frozen=True, kw_only=True)
class TeacherSignals:
    """Opened signals. `folder`: theirs; `spans`: the ids of the spans that are scored, None for all; `shards`: by split
    and number."""

    folder: Path
    content: TeacherContent
    spans: frozenset[int] | None
    shards: Mapping[tuple[str, int], ShardSignals]
    _mapped: dict[tuple[str, int], dict[str, MappedSequences]] = field(default_factory=dict, repr=False, compare=False)

    def document(self, split: str, shard: int, sequence: int) -> Signals | None:
        """The signals of a document; None if the teacher has none of it."""
        entry = self.shards.get((split, shard))
        if entry is None or not entry.positions:
            return None
        stored = {name: mapped[sequence] for name, mapped in self._shard(split, shard).items()}
        k = self.content.k
        count = stored[REST].size
        if not count or stored[TOP_LOW].size != count * k:
            return None
        high = stored.get(TOP_HIGH)
        return Signals(
            ids=decode_ids(stored[TOP_LOW], high).reshape(count, k),
            logprobs=decode_logprobs(stored[TOP_LOGP]).reshape(count, k),
            own=decode_logprobs(stored[OWN]) if OWN in stored else np.full(count, np.nan, np.float32),
            rest=decode_logprobs(stored[REST]),
        )

    def entries(self, document: tuple[str, int, int], labels: int) -> Signals | None:
        """The signals of a document, given by split, shard and sequence, with so many labels to score; None if there
        are none. Raises DatasetError if its signals are of another number of labels."""
        found = self.document(*document)
        if found is not None and len(found) != labels:
            raise self.other_labels(document, labels, len(found))
        return found

    def other_labels(self, document: tuple[str, int, int], labels: int, entries: int) -> DatasetError:
        """The error of a document whose signals are of another number of labels."""
        return DatasetError(
            f"document {'/'.join(map(str, document))} has {labels} labels, its signals are of {entries}",
            where=str(self.folder),
            remedy="`spanloom teacher validate` says all that is wrong",
        )

    def _shard(self, split: str, shard: int) -> dict[str, MappedSequences]:
        """The arrays of one split of one shard, opened when the first of its documents is wanted."""
        if (split, shard) not in self._mapped:
            arrays = self.content.arrays
            self._mapped[split, shard] = {
                name: MappedSequences(prefix, arrays[name])
                for name, prefix in prefixes(self.folder, split, shard, arrays).items()
            }
        return self._mapped[split, shard]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_mapped": {}}  # a worker process maps the files itself

    def scored(self, lossmask: npt.NDArray[Any], spans: npt.NDArray[Any] | None) -> npt.NDArray[np.int64]:
        """The positions of a document that have an entry, int64 [P]. `lossmask`, `spans`: [T], label-aligned, as on
        disk."""
        scored = lossmask > 0
        if self.spans is not None and spans is not None:
            scored = scored & np.isin(spans, sorted(self.spans))
        scored[-1:] = False
        return np.flatnonzero(scored)


def open_teacher(
    folder: Path | str, root: Path | str, *, dataset: Content | None = None, verify: bool = False
) -> TeacherSignals:
    """Finished signals with their dataset, checked against each other.

    Args: root, the dataset's; dataset, the content of its manifest, if it was read; verify, hash every file.
    Raises ArtifactError for damaged signals, DatasetError for signals of another dataset.
    """
    folder, root = Path(folder), Path(root)
    content, _ = read_teacher(folder)
    dataset = dataset or content_at(root)
    check_dataset(content, dataset, folder, root)
    for counts in content.splits.values():
        for entry in counts.shards:
            for file in entry.files:
                path = folder / file.path
                if not path.is_file() or path.stat().st_size != file.bytes:
                    raise ArtifactError(
                        f"a file of the signals is missing or has not {file.bytes:,} bytes", where=str(path)
                    )
                if verify and sha256_file(path) != file.sha256:
                    raise ArtifactError("a file of the signals was changed", where=str(path))
    shards = {(split, entry.shard): entry for split, counts in content.splits.items() for entry in counts.shards}
    return TeacherSignals(folder=folder, content=content, spans=content.span_ids(dataset), shards=shards)
