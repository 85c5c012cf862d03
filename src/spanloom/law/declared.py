"""Findings that a dataset's options intend: they are notes.

In: the `config` of a Spanloom dataset's manifest, its family. Out: class → the option.
"""

from collections.abc import Mapping
from typing import Any

from spanloom.law.classes import (
    COMPLETION_UNTRAINED,
    HISTORY_UNTRAINED,
    PROMPT_TRAINED,
    RETOKENISED,
    SPECIAL_IN_TEXT,
    STOP_UNTRAINED,
)

TRAINED_SPANS = 3
"""The spans of an answer: reasoning, calls, the text."""

_WRAPPERS_TRAINED = ("synth_kd", "harmony_chat")


def declared_by(config: Mapping[str, Any], family: str) -> dict[str, str]:
    """What the options of a dataset declare."""
    declared = {HISTORY_UNTRAINED: f"{family}: one document serves the runs that it can"}
    if family in _WRAPPERS_TRAINED and not config.get("mask_generation_prompt"):
        declared[PROMPT_TRAINED] = f"{family} trains wrappers by contract"
    train = config.get("train")
    if isinstance(train, list) and len(train) < TRAINED_SPANS:
        option = f"--train {','.join(map(str, train))}"
        declared |= dict.fromkeys((COMPLETION_UNTRAINED, STOP_UNTRAINED), option)
    # The options of build and tool calls, and of traces.
    controls = config.get("control_texts", config.get("control_tokens"))
    if controls == "as-served":
        declared[SPECIAL_IN_TEXT] = "--control-texts as-served"
    if controls == "text":
        declared[RETOKENISED] = "--control-texts text"
    return declared
