"""The format of a plan: which documents, or windows of documents, make up each training sample; and opening a plan.

In: the folder that `spanloom plan` wrote, and its dataset. Out: `Plan`, checked. A plan holds only numbers of
documents, no copy of the dataset; one dataset may have many plans.

    PLAN/plan.json                       the commit marker: dataset, options, counts, files
    PLAN/SPLIT/shard_NN_units.bin        int32 [U]     units, sample by sample: a document u < D, or window u - D
    PLAN/SPLIT/shard_NN_samples.bin      int64 [P + 1] sample k holds units samples[k] … samples[k + 1] - 1
    PLAN/SPLIT/shard_NN_windows.bin      int32 [W, 6]  document, head, question_begin, question_end, begin, end

Opening a plan does not hash unchanged indexes again: an index is unchanged if inode, size and mtime are the same as
when the plan was made; otherwise it is hashed. docs/format.md describes every field.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from spanloom.dataset.manifest import Content, ListedFile
from spanloom.dataset.marker import read_marker
from spanloom.dataset.root.layout import shard_name
from spanloom.dataset.root.opened import content_at
from spanloom.dataset.root.shard_files import check_hash, check_size, shard_files
from spanloom.errors import ArtifactError, DatasetError
from spanloom.storage import sha256_file

PLAN_JSON = "plan.json"
SCHEMA_VERSION = "spanloom_plan_v1"

Strategy = Literal["best-fit", "sequential"]
Long = Literal["window", "truncate", "drop"]

FILES: dict[str, tuple[np.dtype[Any], int]] = {
    "units": (np.dtype("<i4"), 1),
    "samples": (np.dtype("<i8"), 1),
    "windows": (np.dtype("<i4"), 6),
}
"""Name → (dtype, values in a row)."""

_AGAIN = "make the plan again: spanloom plan ROOT --sequence-length …"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PlanOptions(_Section):
    """What decides a plan, in addition to the dataset.

    sequence_length  positions of a sample
    strategy         best-fit: least padding; sequential: documents in their order
    seed             for best-fit: the order of documents of equal length; for both: the default order of samples
    long             documents longer than a sample: cut into windows, truncated, or dropped
    question_tokens  for windows: the most positions of the question at the beginning of each window
    multiple_of      each document is padded to a multiple of it, for context and sequence parallelism
    """

    sequence_length: int
    strategy: Strategy
    seed: int
    long: Long
    question_tokens: int
    multiple_of: int


class ShardPlan(_Section):
    """The plan of one split of one shard. `files`: the non-empty files of `FILES`."""

    shard: int
    documents: int
    samples: int
    units: int
    windows: int
    files: list[ListedFile]


class SlicingCounts(_Section):
    """Counts if concatenated documents were cut every `sequence_length` tokens: `sequences` that were examined, of
    `of_sequences` in total; their trained `labels`, and how many of these have lost all of their question."""

    sequences: int
    of_sequences: int
    labels: int
    without_question: int


class SplitPlan(_Section):
    """The plan of a split.

    documents           documents of the split
    long_documents      longer than a sample; see windows, truncated or dropped
    samples, positions  in all samples, `positions` belong to documents, the others are `padding`
    repeated            pinned positions, which are read more than once
    lost_labels         trained labels in no sample: truncated, or in dropped documents
    shortened_questions trained labels of windows whose question is pinned without its middle
    """

    documents: int
    long_documents: int
    windows: int
    truncated: int
    dropped: int
    samples: int
    positions: int
    padding: int
    repeated: int
    lost_labels: int
    shortened_questions: int
    slicing: SlicingCounts
    shards: list[ShardPlan]


class PlannedDataset(_Section):
    """The dataset of a plan, identified by the sha256 of its manifest's `content`."""

    content_sha256: str
    family: str


class PlanContent(_Section):
    """What decides the bytes of a plan, and its inventory."""

    dataset: PlannedDataset
    options: PlanOptions
    splits: dict[str, SplitPlan]


class IndexFile(_Section):
    """The state of an `.idx` when it was hashed."""

    bytes: int
    inode: int
    mtime_ns: int


class _Whole(_Section):
    schema_version: Literal["spanloom_plan_v1"]
    content: PlanContent
    environment: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An opened plan. `folder`: the plan's; `root`: its dataset's; `dataset`: the content of the dataset's manifest."""

    folder: Path
    root: Path
    content: PlanContent
    dataset: Content

    @property
    def options(self) -> PlanOptions:
        return self.content.options

    def split(self, name: str) -> SplitPlan:
        """The plan of a split. Raises DatasetError if the plan has no samples of this split."""
        entry = self.content.splits.get(name)
        if entry is None or not entry.samples:
            filled = [split for split, planned in self.content.splits.items() if planned.samples]
            raise DatasetError(
                f"the plan has no samples of {name}; it has samples of {', '.join(filled) or 'no split'}",
                where=str(self.folder),
                remedy="a split has samples where it has documents, and not only long ones that were dropped",
            )
        return entry


def plan_file(folder: Path, split: str, shard: int, name: str) -> Path:
    """`PLAN/train/shard_03_units.bin`"""
    return folder / split / f"{shard_name(shard)}_{name}.bin"


def expected_sizes(shard: ShardPlan) -> dict[str, int]:
    """Bytes of each file of a shard's plan; empty ones are not written."""
    rows = {"units": shard.units, "samples": shard.samples + 1 if shard.samples else 0, "windows": shard.windows}
    return {name: rows[name] * width * dtype.itemsize for name, (dtype, width) in FILES.items() if rows[name]}


def read_plan(folder: Path) -> tuple[PlanContent, dict[str, Any]]:
    """`content` and `environment` of a finished plan. Raises ArtifactError if it is missing or damaged."""
    missing = "this is not a finished plan"
    whole = read_marker(
        folder, PLAN_JSON, _Whole, what="the plan", schema=SCHEMA_VERSION, missing=missing, again=_AGAIN
    )
    return whole.content, whole.environment


def open_plan(folder: Path | str, root: Path | str | None = None, *, verify: bool = False) -> Plan:
    """A finished plan with its dataset, checked against each other.

    Args: root, the dataset's; None: its path when the plan was made. verify: hash every file of the plan and every
    `.idx`, even an unchanged one.
    Raises ArtifactError for a damaged plan, DatasetError or ManifestError for a dataset that is not the plan's.
    """
    folder = Path(folder)
    content, environment = read_plan(folder)
    place = Path(root) if root is not None else Path(str(environment.get("root")))
    if not place.is_dir():
        raise DatasetError(
            "the dataset of this plan is not here: there is no such folder",
            where=str(place),
            remedy="name the root of the dataset beside the plan (the entry for Megatron-LM: --dataset-root)",
        )
    dataset = content_at(place)
    if dataset.sha256 != content.dataset.content_sha256:
        raise DatasetError(
            f"{folder} is the plan of another dataset, or of this one before it was built again",
            where=str(place),
            remedy=_AGAIN,
        )
    plan = Plan(folder=folder, root=place, content=content, dataset=dataset)
    _check_files(plan, verify=verify)
    _check_dataset(plan, environment, verify=verify)
    return plan


def _check_files(plan: Plan, *, verify: bool) -> None:
    for split, counts in plan.content.splits.items():
        for shard in counts.shards:
            listed = {file.path: file for file in shard.files}
            sizes = expected_sizes(shard)
            if listed.keys() != {f"{split}/{plan_file(Path(), split, shard.shard, name).name}" for name in sizes}:
                raise ArtifactError(
                    f"the files of {split}, shard {shard.shard} are not those that its counts require",
                    where=str(plan.folder / PLAN_JSON),
                    remedy=_AGAIN,
                )
            for name, size in sizes.items():
                path = plan_file(plan.folder, split, shard.shard, name)
                entry = listed[f"{split}/{path.name}"]
                if not path.is_file() or path.stat().st_size != size or entry.bytes != size:
                    raise ArtifactError(f"a file of the plan is missing or has not {size:,} bytes", where=str(path))
                if verify and sha256_file(path) != entry.sha256:
                    raise ArtifactError("a file of the plan was changed", where=str(path), remedy=_AGAIN)


def index_file(path: Path) -> IndexFile:
    """The state of an index now."""
    status = path.stat()
    return IndexFile(bytes=status.st_size, inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def _check_dataset(plan: Plan, environment: dict[str, Any], *, verify: bool) -> None:
    known = environment.get("index_files")
    for split, counts in plan.content.splits.items():
        for shard in counts.shards:
            if not shard.units:
                continue
            for path, entry in shard_files(plan.dataset, plan.root, split, shard.shard):
                check_size(path, entry)
                if path.suffix != ".idx":
                    continue
                before = known.get(f"{split}/{path.name}") if isinstance(known, dict) else None
                if verify or before != index_file(path).model_dump():
                    check_hash(path, entry)
