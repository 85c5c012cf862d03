"""Step 3: global checks of the split: finds repeated ids, and counts the documents of valid.

In: the manifests of all rendered shards, one input each. Out: the split, a small file that the manifest
requires.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS, each, with_inputs

IMAGE = "ghcr.io/spanloom/spanloom-assemble-split:0.1.0"


def assemble_split_of(shards: int) -> Any:
    """The component for this number of shards."""

    @dsl.container_component
    @with_inputs(each("rendered", shards), dsl.Input[dsl.Artifact])
    def assemble_split(
        rendered: Sequence[dsl.Artifact],
        valid_fraction: float,
        on_duplicate: str,
        split: dsl.Output[dsl.Artifact],
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Looks through the ids of all shards."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "assemble-split"],
            args=[
                *(word for of_shard in rendered for word in ("--rendered", of_shard.path)),
                *("--split", split.path),
                *("--valid-fraction", valid_fraction),
                *("--on-duplicate", on_duplicate),
                *("--executor-input", "{{$}}"),
            ],
        )

    return assemble_split


assemble_split = assemble_split_of(DEFAULT_SHARDS)
