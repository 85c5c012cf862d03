"""The merge of the original program with all its faults, for comparison with data that it made.

In: as in `merged.py`. Out: the same ids, order, lines and numbers as the original's. Differences from `merged.py`:
files in subfolders are not read, invalid lines are skipped, and `max_per_source` counts lines; the file's name replaces
`metadata.source`; duplicate ids are dropped within a split, duplicate contents are kept; if there are too few retain
samples, all of them are replaced by draws with ids ending in `_dup0`, `_dup1` and so on; the gates have fixed limits
and are evaluated after the files are written.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.ids import hash_input
from spanloom.families.toolcalls.format.source import files_below, lines_of, parse_exactly, rename_keys
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN
from spanloom.families.toolcalls.merge.merged import Merged, MergeOptions, check_samples_there, cut_evaluation, numbers


@dataclass(frozen=True, kw_only=True)
class MergedAsOriginal(Merged):
    """A merge with `failed_gates`: the gates that the original reports as failed after writing the files."""

    failed_gates: Sequence[str]


def merge_as_original(harmful_dir: Path, retain_dir: Path, options: MergeOptions) -> MergedAsOriginal:
    """Merges two folders like the original. Raises ToolCallError if either has no sample, or the original fails."""
    harmful, harmful_sources = _read(harmful_dir, HARMFUL, options.max_per_source)
    retain, retain_sources = _read(retain_dir, RETAIN, options.max_per_source)
    check_samples_there(harmful, harmful_dir)
    check_samples_there(retain, retain_dir)
    harmful, retain = _first_of_each_id(harmful), _first_of_each_id(retain)
    safe = sum(sample["labels"].get("is_adversarial_safe") is True for sample in retain)
    wanted = int(len(harmful) * options.ratio)
    if len(retain) > wanted:
        retain = sorted(retain, key=_weight, reverse=True)[:wanted]
    elif len(retain) < wanted:
        generator = random.Random(options.seed)
        weights = [_weight(sample) for sample in retain]
        drawn = [generator.choices(retain, weights=weights, k=1)[0] for _ in range(wanted)]
        retain = [{**sample, "id": f"{sample['id']}_dup{number}"} for number, sample in enumerate(drawn)]
    together = [*harmful, *retain]
    if options.shuffle:
        random.Random(options.seed).shuffle(together)
    train, evaluation = cut_evaluation(together, options)
    stats = {
        **numbers(train, options),
        "by_split": dict(Counter(sample["metadata"]["split"] for sample in train)),
        "harmful_sources": dict(harmful_sources),
        "retain_sources": dict(retain_sources),
    }
    return MergedAsOriginal(train=train, evaluation=evaluation, stats=stats, failed_gates=_failed_gates(train, safe))


def _failed_gates(samples: Sequence[dict[str, Any]], safe: int) -> list[str]:
    """The failed gates. `safe`: retain samples with `is_adversarial_safe`, counted before any are drawn or held out."""
    splits = Counter(sample["labels"].get("split") for sample in samples)
    failed = []
    if splits[RETAIN] < defaults.MIN_RATIO * max(1, splits[HARMFUL]):
        failed.append(f"fewer than {defaults.MIN_RATIO:g} retain samples for each harmful one")
    if safe < defaults.MIN_ADVERSARIAL_SAFE:
        failed.append(f"fewer than {defaults.MIN_ADVERSARIAL_SAFE} adversarial_safe samples")
    if len({sample["id"] for sample in samples}) < len(samples):
        failed.append("ids that come again")
    if any(sample.get("tools") in (None, "") for sample in samples if sample["metadata"]["has_tool_calls"]):
        failed.append("tool calls without tools")
    return failed


def _read(folder: Path, split: str, most: int | None) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The samples of the files directly in a folder, and the number of samples of each file."""
    samples = []
    sources: Counter[str] = Counter()
    for file in files_below(folder):
        if "/" in file.name:
            continue
        stem = file.path.stem
        sources[stem] = 0
        with file.path.open("rb") as stream:
            for line_number, line in lines_of(stream):
                if most is not None and line_number > most:
                    break
                sample = parse_exactly(line)
                if isinstance(sample, dict) and _has_turns(sample):
                    samples.append(_normalised(sample, split, stem, f"{file.path}, line {line_number}"))
                    sources[stem] += 1
    return samples, sources


def _has_turns(sample: dict[str, Any]) -> bool:
    return ("messages" in sample or "context" in sample) and ("assistant_raw" in sample or "completion" in sample)


def _normalised(sample: dict[str, Any], split: str, stem: str, where: str) -> dict[str, Any]:
    rename_keys(sample)
    metadata, labels = sample.setdefault("metadata", {}), sample.setdefault("labels", {})
    raw = sample["assistant_raw"]
    if not (
        isinstance(metadata, dict)
        and isinstance(labels, dict)
        and isinstance(raw, str)
        and isinstance(sample["messages"], list)
        and isinstance(sample.get("id"), str | int | float | None)
    ):
        raise ToolCallError(
            "the original program fails at this sample: messages, assistant_raw, labels, metadata or id is of a wrong"
            " type",
            where=where,
            remedy="fix it, or merge without --compat",
        )
    called = PYTHON_TAG in raw
    metadata["split"] = split
    metadata["source"] = stem
    labels.setdefault("split", split)
    metadata["has_tool_calls"] = called
    if called and not sample.get("tools"):
        sample["tools"] = _TOOLS.get(stem, defaults.B4_TOOLS)
    return sample


_TOOLS = {
    **dict.fromkeys(("agentdojo", "agentdojo_failures", "agentdojo_resisted"), "agentdojo_native"),
    **dict.fromkeys(("tau2", "tau2_traces"), "tau2_native"),
}
"""File name without suffix → the registry for samples of this file that call a tool but name no registry."""


def _first_of_each_id(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drops duplicate ids. A sample without an id is compared by its bare hash, not by its new id `auto_` + hash."""
    first: dict[str, dict[str, Any]] = {}
    for sample in samples:
        key = sample.get("id")
        if not key:
            key = hashlib.sha256(hash_input(sample).encode()).hexdigest()[:12]
            sample["id"] = f"auto_{key}"
        first.setdefault(key, sample)
    return list(first.values())


def _weight(sample: dict[str, Any]) -> float:
    weight = sample["metadata"].get("weight", 1.0)
    return float(weight) if isinstance(weight, int | float) else 1.0
