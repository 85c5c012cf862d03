"""Subtypes of samples and their weights.

In: a sample. Out: its split, whether it calls a tool, its subtype and its weight. Nothing here reports errors: a value
of a wrong type counts as missing.
"""

import math
from collections.abc import Mapping
from typing import Any

from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.records.scalars import is_number

HARMFUL, RETAIN = "harmful", "retain"
SPLITS = (HARMFUL, RETAIN)

RETAIN_WEIGHTS = {
    "adversarial_safe": 2.0,
    "injection_resisted": 1.5,
    "benign_twin": 1.2,
    "tool_capability": 1.0,
    "general_conversation": 0.8,
    "borderline": 1.0,
}
HARMFUL_WEIGHTS = {"harmful_flip": 1.0, "agentdojo_failure": 1.0}
WEIGHTS = {**HARMFUL_WEIGHTS, **RETAIN_WEIGHTS}
"""Subtype → weight, for samples without `training.sample_weight`."""

_EMPTY: Mapping[str, Any] = {}


def mapping(sample: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """`sample[key]` if it is an object, otherwise an empty mapping."""
    value = sample.get(key)
    return value if isinstance(value, dict) else _EMPTY


def split_of(sample: Mapping[str, Any]) -> str | None:
    """`labels.split` if it is harmful or retain, otherwise None."""
    split = mapping(sample, "labels").get("split")
    return split if isinstance(split, str) and split in SPLITS else None


def source_of(sample: Mapping[str, Any]) -> str:
    """`metadata.source`; empty if it is not a string."""
    source = mapping(sample, "metadata").get("source")
    return source if isinstance(source, str) else ""


def is_agentdojo(source: str) -> bool:
    return source[:9].lower() == "agentdojo"


def is_tool_sample(sample: Mapping[str, Any]) -> bool:
    """Whether the last turn of a sample calls a tool, or should; the first of the checks that applies decides."""
    raw = sample.get("assistant_raw")
    if isinstance(raw, str) and PYTHON_TAG in raw:
        return True
    stated = mapping(sample, "metadata").get("has_tool_calls")
    if isinstance(stated, bool):
        return stated
    labels = mapping(sample, "labels")
    if labels.get("split") == HARMFUL:
        return True
    expected = labels.get("expected_tool")
    return isinstance(expected, str) and expected != ""


def subtype_of(sample: Mapping[str, Any]) -> str:
    """One of the names in `WEIGHTS`."""
    stated = mapping(sample, "training").get("priority_class")
    if isinstance(stated, str) and stated in WEIGHTS:
        return stated
    labels, source = mapping(sample, "labels"), source_of(sample)
    agentdojo = is_agentdojo(source)
    if labels.get("split") == HARMFUL:
        return "agentdojo_failure" if agentdojo else "harmful_flip"
    if agentdojo:
        return "injection_resisted" if labels.get("security") is True else "tool_capability"
    if labels.get("is_adversarial_safe") is True:
        return "adversarial_safe"
    if source.startswith("xstest"):
        return "borderline"
    return "tool_capability" if is_tool_sample(sample) else "general_conversation"


def is_weight(value: Any) -> bool:
    """Whether a JSON value is a valid weight: a finite number of 0 or more, and no boolean."""
    return is_number(value) and value >= 0 and (isinstance(value, int) or math.isfinite(value))


def weight_of(sample: Mapping[str, Any], subtype: str | None = None) -> float:
    """`training.sample_weight` if valid, otherwise the weight of the subtype. inf for an integer beyond float64."""
    stated: Any = mapping(sample, "training").get("sample_weight")
    if is_weight(stated):
        try:
            return float(stated)
        except OverflowError:
            return math.inf
    return WEIGHTS[subtype or subtype_of(sample)]
