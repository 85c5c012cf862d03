"""Samples → batches of one harmful sample and N retain samples.

In: samples of one file, in its order. Out: one JSON object per batch.

    harmful  h0 h1 h2        both lists are shuffled with one generator, harmful first
    benign   b0 b1 b2 b3     used in order, again from the start when they are used up
    batches  [h0; b0 b1 b2] [h1; b3 b0 b1] [h2; b2 b3 b0]     with three per batch
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN, split_of
from spanloom.families.toolcalls.merge.merged import repeats


def pair(
    samples: Sequence[dict[str, Any]],
    *,
    benign_per_harmful: int = defaults.BENIGN_PER_HARMFUL,
    seed: int = defaults.SEED,
    require_tool_calls: bool = False,
    max_harmful: int | None = None,
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The batches, each a harmful sample and its retain samples. Raises ToolCallError if either kind is missing.

    Order: shuffle both lists, drop harmful samples without a call (`require_tool_calls`), keep the first `max_harmful`.
    """
    harmful, benign = _of(samples, HARMFUL), _of(samples, RETAIN)
    generator = random.Random(seed)
    generator.shuffle(harmful)
    generator.shuffle(benign)
    if require_tool_calls:
        harmful = [sample for sample in harmful if PYTHON_TAG in str(sample.get("assistant_raw"))]
    if max_harmful is not None:
        harmful = harmful[:max_harmful]
    if not harmful or not benign:
        raise ToolCallError(
            f"there is no {'harmful' if not harmful else 'retain'} sample to make batches of",
            remedy="give samples of both splits",
        )
    batches = []
    for number, sample in enumerate(harmful):
        first = number * benign_per_harmful
        beside = [benign[(first + more) % len(benign)] for more in range(benign_per_harmful)]
        batches.append((sample, beside))
    return batches


def _of(samples: Sequence[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    return [sample for sample in samples if split_of(sample) == split for _ in range(repeats(sample))]


def batch_rows(
    batches: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]], *, with_id: bool = True
) -> Iterator[dict[str, Any]]:
    """Yields the batches as JSON objects. `with_id`: adds an `id`, which validators of batches require."""
    for number, (harmful, benign) in enumerate(batches):
        row = {
            "batch_id": number,
            "batch_size": 1 + len(benign),
            "harmful": [member(harmful)],
            "benign": [member(sample) for sample in benign],
        }
        if with_id:
            row["id"] = f"batch_{number}"
        yield row


def member(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample in the form for a batch: assistant_raw is also appended to its messages."""
    stored, raw = sample.get("messages"), sample.get("assistant_raw")
    messages = list(stored) if isinstance(stored, list) else []
    if raw:
        messages.append({"role": "assistant", "content": raw})
    return {**sample, "messages": messages, "is_agentic": True}
