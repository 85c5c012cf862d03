"""Many files of samples → one training file, and one for evaluation.

In: a folder of harmful files and one of retain files. Out: the lines of one file in a seeded order, and its statistics.
Nothing is written before all checks have passed.

    read ─► normalise ─► drop duplicates ─► cut or repeat retain samples ─► gates ─► order ─► train, eval

The result depends only on the samples, not on the order of files: samples are sorted by id before the seeded shuffle,
and which of two duplicates is kept depends on their text. `compatible.py` reproduces the original program instead.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.errors import DuplicateIdError
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.ids import Ids, hash_input
from spanloom.families.toolcalls.format.source import SampleFile, files_below, read_samples, rename_keys
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN, mapping, subtype_of, weight_of
from spanloom.families.toolcalls.options import MixOptions
from spanloom.families.toolcalls.rules import Rules, check_sample
from spanloom.families.toolcalls.validation import content_key
from spanloom.records.scalars import is_integer


@dataclass(frozen=True, kw_only=True)
class MergeOptions(MixOptions):
    """The options of a merge. Raises ToolCallError for a negative ratio or an `eval_fraction` outside 0 … 1.

    ratio                 retain samples per harmful one; surplus ones are dropped, those of least weight first
    max_per_source        only the first samples of each file are read, at most this many; None: all
    oversample            if there are too few retain samples, some count several times (`training.repeat`)
    min_ratio             the merge fails with fewer retain samples per harmful one
    min_adversarial_safe  the merge fails with fewer samples of that subtype
    validate              the merge fails if the rules find an error
    """

    max_per_source: int | None = None
    shuffle: bool = True
    oversample: bool = False
    min_ratio: float | None = None
    min_adversarial_safe: int | None = None
    validate: bool = False

    def __post_init__(self) -> None:
        if self.ratio < 0 or not 0 <= self.eval_fraction <= 1:
            raise ToolCallError("the ratio must be 0 or more, the eval fraction 0 to 1", remedy="fix the options")


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The lines of both files as JSON values, in order, and the statistics of the merge."""

    train: Sequence[dict[str, Any]]
    evaluation: Sequence[dict[str, Any]]
    stats: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """A sample with its id, its content key and its place."""

    id: str
    content: bytes
    sample: dict[str, Any]
    where: str

    @property
    def text(self) -> str:
        """The sample as text; it decides which duplicate is kept."""
        return json.dumps(self.sample, sort_keys=True)


def merge(harmful_dir: Path, retain_dir: Path, options: MergeOptions) -> Merged:
    """Merges all samples of two folders. Raises DuplicateIdError if an id has two contents.

    Raises ToolCallError for a folder without samples, a sample of both splits, or a failed gate.
    """
    counts: Counter[str] = Counter()
    sources = {split: Counter[str]() for split in (HARMFUL, RETAIN)}
    read: dict[str, list[_Read]] = {}
    ids = Ids()
    for split, folder in ((HARMFUL, harmful_dir), (RETAIN, retain_dir)):
        read[split] = []
        for file in files_below(folder):
            for where, sample in _first(_normalised(file, split, counts), options.max_per_source):
                name = sample.get("id")
                if not isinstance(name, str) or not name:
                    name, _ = ids.take(file.path.stem, split, hash_input(sample))
                    sample["id"] = name
                    counts["ids_made"] += 1
                read[split].append(_Read(id=name, content=content_key(sample), sample=sample, where=where))
                sources[split][file.path.stem] += 1
        check_samples_there(read[split], folder)
    kept = _without_duplicates([*read[HARMFUL], *read[RETAIN]], counts)
    harmful = [sample for sample in kept if sample["labels"]["split"] == HARMFUL]
    retain = _as_many(
        [sample for sample in kept if sample["labels"]["split"] == RETAIN],
        int(len(harmful) * options.ratio),
        options,
        counts,
    )
    _check_gates(harmful, retain, options)
    together = sorted([*harmful, *retain], key=lambda sample: str(sample["id"]))
    if options.shuffle:
        random.Random(options.seed).shuffle(together)
    train, evaluation = cut_evaluation(together, options)
    stats = {
        **numbers(train, options),
        "harmful_sources": dict(sources[HARMFUL]),
        "retain_sources": dict(sources[RETAIN]),
        "repeats": sum(repeats(sample) for sample in [*train, *evaluation]) - len(train) - len(evaluation),
        "counted": dict(sorted(counts.items())),
    }
    return Merged(train=train, evaluation=evaluation, stats=stats)


def check_samples_there(samples: Sequence[Any], folder: Path) -> None:
    """Raises ToolCallError for a folder without samples: without harmful samples the ratio drops all retain samples."""
    if not samples:
        raise ToolCallError("the folder has no samples", where=str(folder), remedy="give a folder of *.jsonl")


def cut_evaluation(
    samples: Sequence[dict[str, Any]], options: MergeOptions
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Splits off the evaluation samples. Returns training and evaluation samples, both in the order of `samples`."""
    order = list(range(len(samples)))
    random.Random(options.seed).shuffle(order)
    held = set(order[: int(len(samples) * options.eval_fraction)])
    train = [sample for number, sample in enumerate(samples) if number not in held]
    return train, [sample for number, sample in enumerate(samples) if number in held]


def numbers(samples: Sequence[Mapping[str, Any]], options: MergeOptions) -> dict[str, Any]:
    """The statistics of the training samples."""
    messages = sum(len(sample["messages"]) for sample in samples)
    return {
        "total": len(samples),
        "by_split": dict(Counter(sample["labels"]["split"] for sample in samples)),
        "by_source": dict(Counter(mapping(sample, "metadata").get("source") for sample in samples)),
        "has_tool_calls": sum(mapping(sample, "metadata").get("has_tool_calls") is True for sample in samples),
        "avg_messages": messages / len(samples) if samples else 0,
        "dr_ratio_target": options.ratio,
        "eval_fraction": options.eval_fraction,
    }


def lines_of_samples(samples: Sequence[Mapping[str, Any]]) -> bytes:
    """Samples as JSON Lines in UTF-8, without ASCII escapes."""
    return "".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples).encode()


def repeats(sample: Mapping[str, Any]) -> int:
    """How many times a sample counts: `training.repeat` if it is valid, otherwise once."""
    stated = mapping(sample, "training").get("repeat")
    return stated if is_integer(stated) and stated > 0 else 1


def default_tools(source: str) -> str:
    """The default registry, by source, for a sample that calls a tool but names no registry."""
    for name in ("tau2", "agentdojo"):
        if name in source.lower():
            return f"{name}_native"
    return "b4_standard_v1"


def _first(samples: Iterator[tuple[str, dict[str, Any]]], most: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, sample in enumerate(samples):
        if most is not None and number >= most:
            return
        yield sample


def _normalised(file: SampleFile, split: str, counts: Counter[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields place and sample of each line with messages and assistant_raw, with missing fields filled in."""
    for line, sample in read_samples(file):
        where = f"{file.path}, line {line}"
        rename_keys(sample)
        messages, raw = sample.get("messages"), sample.get("assistant_raw")
        if not isinstance(messages, list) or not isinstance(raw, str):
            counts["without_messages"] += 1
            continue
        metadata = sample["metadata"] = dict(mapping(sample, "metadata"))
        called = PYTHON_TAG in raw
        stem = file.path.stem
        metadata["split"] = split
        if not isinstance(metadata.get("source"), str) or not metadata["source"]:
            metadata["source"] = stem
        metadata["source_file"] = stem
        if not isinstance(metadata.get("has_tool_calls"), bool):
            metadata["has_tool_calls"] = called
        labels = sample["labels"] = dict(mapping(sample, "labels"))
        if labels.setdefault("split", split) != split:
            raise ToolCallError(
                f"the sample is {labels['split']!r} but is in the folder of {split} ones",
                where=where,
                remedy="move it, or fix labels.split",
            )
        if called and sample.get("tools") is None:
            sample["tools"] = default_tools(str(metadata["source"]))
        yield where, sample


def _without_duplicates(read: Sequence[_Read], counts: Counter[str]) -> list[dict[str, Any]]:
    """Keeps each id and each content once, sorted by id. Raises if an id has two contents, or a content both splits."""
    by_id: dict[str, _Read] = {}
    for record in read:
        first = by_id.get(record.id)
        if first is None:
            by_id[record.id] = record
        elif first.content != record.content:
            raise DuplicateIdError(
                f"the id {record.id!r} has two contents; the first is at {first.where}",
                where=record.where,
                remedy="give one of them another id, or remove it",
            )
        else:
            _check_same_split(record, first)
            counts["same_id_and_content"] += 1
            if record.text < first.text:
                by_id[record.id] = record
    by_content: dict[bytes, _Read] = {}
    for record in sorted(by_id.values(), key=lambda sample: sample.id):
        first = by_content.setdefault(record.content, record)
        if first is not record:
            _check_same_split(record, first)
            counts["same_content"] += 1
    return [record.sample for record in by_content.values()]


def _check_same_split(record: _Read, first: _Read) -> None:
    if record.sample["labels"]["split"] != first.sample["labels"]["split"]:
        raise ToolCallError(
            f"the same messages and assistant_raw are harmful and retain; the other is at {first.where}",
            where=record.where,
            remedy="remove one of them",
        )


def _as_many(
    retain: list[dict[str, Any]], wanted: int, options: MergeOptions, counts: Counter[str]
) -> list[dict[str, Any]]:
    """Drops surplus retain samples, those of least weight first. If there are too few, `oversample` repeats some."""
    if len(retain) > wanted:
        counts["above_ratio"] += len(retain) - wanted
        return sorted(retain, key=lambda sample: (-weight_of(sample), str(sample["id"])))[:wanted]
    if options.oversample and retain and len(retain) < wanted:
        retain = sorted(retain, key=lambda sample: str(sample["id"]))
        weights = [weight_of(sample) for sample in retain]
        if not sum(weights):
            raise ToolCallError("all retain samples have weight 0: none can be repeated", remedy="fix the weights")
        drawn = random.Random(options.seed).choices(range(len(retain)), weights, k=wanted - len(retain))
        for number, more in Counter(drawn).items():
            training = mapping(retain[number], "training")
            retain[number] = {**retain[number], "training": {**training, "repeat": 1 + more}}
    return retain


def _check_gates(
    harmful: Sequence[Mapping[str, Any]], retain: Sequence[Mapping[str, Any]], options: MergeOptions
) -> None:
    failed = []
    kept = sum(map(repeats, retain))
    if options.min_ratio is not None and kept < options.min_ratio * len(harmful):
        failed.append(
            f"{kept:,} retain samples for {len(harmful):,} harmful ones, less than {options.min_ratio:g} each"
        )
    safe = sum(subtype_of(sample) == "adversarial_safe" for sample in retain)
    if options.min_adversarial_safe is not None and safe < options.min_adversarial_safe:
        failed.append(f"{safe:,} samples of adversarial_safe, fewer than {options.min_adversarial_safe:,}")
    if options.validate:
        rules = Rules()
        wrong = [
            f"{sample.get('id')}: {finding.code} {finding.path}"
            for sample in (*harmful, *retain)
            for finding in check_sample(sample, rules).findings
            if finding.severity == "ERROR"
        ]
        if wrong:
            failed.append(f"{len(wrong):,} errors in samples, the first: {wrong[0]}")
    if failed:
        raise ToolCallError(
            "nothing was written: " + "; ".join(failed),
            remedy="add samples, fix them, or lower --min-ratio and --min-adversarial-safe",
        )
