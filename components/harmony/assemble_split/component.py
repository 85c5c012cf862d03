"""Step 3: the one global decision. Which rows are valid, and are there duplicate ids?

In: the ids of all shards, an input each. Out: the split.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS, each, with_inputs

IMAGE = "ghcr.io/spanloom/spanloom-assemble-split:0.1.0"


def assemble_split_of(shards: int) -> Any:
    """The component for so many shards."""

    @dsl.container_component
    @with_inputs(each("ids", shards), dsl.Input[dsl.Dataset])
    def assemble_split(
        ids: Sequence[dsl.Dataset],
        valid_fraction: float,
        on_duplicate: str,
        split: dsl.Output[dsl.Dataset],
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Splits the rows of all shards by their ids."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "assemble-split"],
            args=[
                *(word for of_shard in ids for word in ("--ids", of_shard.path)),
                *("--split", split.path),
                *("--valid-fraction", valid_fraction),
                *("--on-duplicate", on_duplicate),
                *("--executor-input", "{{$}}"),
            ],
        )

    return assemble_split


assemble_split = assemble_split_of(DEFAULT_SHARDS)
