"""Before the pipeline: makes a source of the shards that convert-shard wrote.

In: their inventories, one input each. Out: manifest.json beside the shards at `source_uri`.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS, each, with_inputs

IMAGE = "ghcr.io/spanloom/spanloom-assemble-source:0.1.0"


def assemble_source_of(shards: int) -> Any:
    """The component for this number of shards."""

    @dsl.container_component
    @with_inputs(each("inventory", shards), dsl.Input[dsl.Artifact])
    def assemble_source(
        inventories: Sequence[dsl.Artifact],
        source_uri: str,
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Writes the manifest of the source, when all of its shards are there."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "assemble-source"],
            args=[
                *(word for of_shard in inventories for word in ("--inventory", of_shard.path)),
                *("--out", source_uri),
                *("--executor-input", "{{$}}"),
            ],
        )

    return assemble_source


assemble_source = assemble_source_of(DEFAULT_SHARDS)
