"""The format of signals: the files and the manifest of a folder, and reading the manifest.

In: a folder that `spanloom teacher score` filled, and its dataset. Out: `TeacherContent`, checked. A folder holds no
copy of the dataset, whose files stay as they are; one dataset may have the signals of many teachers.

    SIGNALS/teacher.json                          the commit marker: dataset, teacher, options, counts, files
    SIGNALS/SPLIT/shard_NN_topk_low.{bin,idx}     uint16, k a position   lower 16 bits of the ids, most probable first
    SIGNALS/SPLIT/shard_NN_topk_high.{bin,idx}    uint8, k a position    upper 8 bits; only above 65,536 tokens
    SIGNALS/SPLIT/shard_NN_topk_logp.{bin,idx}    uint16, k a position   their log-probabilities, see `coding`
    SIGNALS/SPLIT/shard_NN_own.{bin,idx}          uint16, 1 a position   that of the label itself; not if imported
    SIGNALS/SPLIT/shard_NN_rest.{bin,idx}         uint16, 1 a position   log of what the top k leave
    SIGNALS/without.jsonl                         documents that have labels and no signals, and why

Each is a Megatron IndexedDataset with one sequence a document; a split of a shard without signals has no files. Entry j
of a document belongs to its j-th position t with `lossmask[t] = 1`, of the spans that are scored; its label is
`tokens[t + 1]`.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from spanloom.dataset.manifest import Content, ListedFile
from spanloom.dataset.marker import read_marker
from spanloom.dataset.root.layout import array_prefix
from spanloom.errors import DatasetError
from spanloom.provenance import sha256_json

TEACHER_JSON = "teacher.json"
WITHOUT = "without.jsonl"
SCHEMA_VERSION = "spanloom_teacher_v1"

TOP_LOW, TOP_HIGH, TOP_LOGP, OWN, REST = "topk_low", "topk_high", "topk_logp", "own", "rest"
DTYPES: dict[str, np.dtype[Any]] = {
    TOP_LOW: np.dtype(np.uint16),
    TOP_HIGH: np.dtype(np.uint8),
    TOP_LOGP: np.dtype(np.uint16),
    OWN: np.dtype(np.uint16),
    REST: np.dtype(np.uint16),
}
OF_TOP = (TOP_LOW, TOP_HIGH, TOP_LOGP)
"""Arrays with k values a position; the others have one."""

NARROW = 65_536
"""The largest vocabulary whose ids need no upper bits."""

IMPORTS = ("distillkit",)
"""Sources whose values were approximated before they came here."""

SUMS_OF_IMPORTS = 0.01
"""By how much their probabilities may exceed 1: bfloat16 keeps 8 bits of a log-probability."""

_AGAIN = "score the dataset again: spanloom teacher score ROOT --out SIGNALS …"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ScoredDataset(_Section):
    """The dataset of signals. `content_sha256`: of its manifest's `content`; `vocabulary`: size of its tokenizer."""

    content_sha256: str
    family: str
    vocabulary: int


class ShardSignals(_Section):
    """One split of one shard. `without`: documents that have labels and no signals."""

    shard: int
    documents: int
    positions: int
    without: int
    files: list[ListedFile]


class SplitSignals(_Section):
    documents: int
    positions: int
    without: int
    shards: list[ShardSignals]


class TeacherContent(_Section):
    """What decides the bytes of signals, and their inventory.

    teacher      what the teacher is: its source, sha256 of its files, dtype
    k            tokens a position
    temperature  of the teacher's distribution: 1
    spans        names of the spans that are scored; None: all trained labels
    own          whether the labels' own log-probabilities are stored; of an import they are not known
    padded       how many ids above the tokenizer's were left out; they exist in padded vocabularies
    without      by reason, how many documents have no signals
    """

    dataset: ScoredDataset
    teacher: dict[str, Any]
    k: Annotated[int, Field(ge=1)]
    temperature: Literal[1]
    spans: list[str] | None
    own: bool = True
    padded: int
    without: dict[str, int]
    splits: dict[str, SplitSignals]
    files: list[ListedFile]

    @property
    def sha256(self) -> str:
        return sha256_json(self.model_dump())

    @property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        """The arrays of each shard, by name."""
        return arrays_for(self.dataset.vocabulary, own=self.own)

    @property
    def sums(self) -> float:
        """By how much the probabilities of one position may exceed 1, beside the coding."""
        return SUMS_OF_IMPORTS if self.teacher.get("source") in IMPORTS else 0

    @property
    def places(self) -> list[tuple[str, int]]:
        """The splits of shards with documents, as `Content.filled` gives those of the dataset."""
        return [(split, entry.shard) for split, counts in self.splits.items() for entry in counts.shards]

    def span_ids(self, dataset: Content) -> frozenset[int] | None:
        return span_ids(self.spans, dataset)


class _Whole(_Section):
    schema_version: Literal["spanloom_teacher_v1"]
    content: TeacherContent
    environment: dict[str, Any]


def arrays_for(vocabulary: int, *, own: bool = True) -> dict[str, np.dtype[Any]]:
    """The arrays for a tokenizer of this size, with or without the labels' own values."""
    absent = {TOP_HIGH} if vocabulary <= NARROW else set()
    return {name: dtype for name, dtype in DTYPES.items() if name not in (absent if own else absent | {OWN})}


def prefixes(folder: Path, split: str, shard: int, arrays: dict[str, np.dtype[Any]]) -> dict[str, Path]:
    """The IndexedDatasets of one split of one shard, without suffix, by the name of the array."""
    return {name: array_prefix(folder, split, shard, name) for name in arrays}


def span_ids(names: list[str] | None, dataset: Content) -> frozenset[int] | None:
    """The ids of spans by name. Raises DatasetError for one that the dataset does not train."""
    if names is None:
        return None
    known = dataset.span_names
    if other := [name for name in names if name not in known[1:]]:
        raise DatasetError(
            f"the dataset has no span {other[0]!r}", remedy=f"its trained spans are {', '.join(known[1:]) or 'none'}"
        )
    return frozenset(known.index(name) for name in names)


def content_of_shards(
    dataset: Content,
    made: dict[str, Any],
    entries: Sequence[tuple[str, dict[str, Any]]],
    without: Sequence[dict[str, Any]],
) -> tuple[dict[str, Any], bytes]:
    """The `content` of a manifest, and the bytes of WITHOUT.

    made     teacher, k, spans, own and padded, as they are in the manifest
    entries  split by split, the shards: a split, and `ShardSignals`
    without  the lines of WITHOUT
    """
    splits: dict[str, Any] = {}
    for split, entry in entries:
        whole = splits.setdefault(split, {"documents": 0, "positions": 0, "without": 0, "shards": []})
        for name in ("documents", "positions", "without"):
            whole[name] += entry[name]
        whole["shards"].append(entry)
    listing = "".join(json.dumps(each) + "\n" for each in without).encode()
    reasons = Counter(each["reason"] for each in without)
    content = {
        "dataset": {
            "content_sha256": dataset.sha256,
            "family": dataset.family,
            "vocabulary": dataset.tokenizer.vocab_size,
        },
        "temperature": 1,
        **made,
        "without": dict(sorted(reasons.items())),
        "splits": splits,
        "files": [{"path": WITHOUT, "bytes": len(listing), "sha256": hashlib.sha256(listing).hexdigest()}],
    }
    return TeacherContent.model_validate(content).model_dump(), listing


def read_teacher(folder: Path) -> tuple[TeacherContent, dict[str, Any]]:
    """`content` and `environment` of finished signals. Raises ArtifactError if they are missing or damaged."""
    what, missing = "the manifest of signals", "these are no finished signals"
    whole = read_marker(folder, TEACHER_JSON, _Whole, what=what, schema=SCHEMA_VERSION, missing=missing, again=_AGAIN)
    return whole.content, whole.environment


def check_dataset(content: TeacherContent, dataset: Content, folder: Path, root: Path) -> None:
    """Raises DatasetError if the signals are those of another dataset."""
    if content.dataset.content_sha256 != dataset.sha256:
        raise DatasetError(
            f"{folder} has the signals of another dataset, or of this one before it was built again",
            where=str(root),
            remedy=_AGAIN,
        )
