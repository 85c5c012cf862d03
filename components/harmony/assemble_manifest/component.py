"""Step 5: one pending manifest from the inventories of all shards.

In: the inventories, one input each, and the split. Out: manifest.pending.json at `dataset_root`, and a small artifact
that points there. The dataset itself is not an artifact: the launcher refuses an artifact whose URI is outside the
pipeline root's bucket, and would download a whole dataset into each step that takes it.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS, each, with_inputs

IMAGE = "ghcr.io/spanloom/spanloom-assemble-manifest:0.1.0"


def assemble_manifest_of(shards: int) -> Any:
    """The component for this number of shards."""

    @dsl.container_component
    @with_inputs(each("inventory", shards), dsl.Input[dsl.Artifact])
    def assemble_manifest(
        inventories: Sequence[dsl.Artifact],
        split: dsl.Input[dsl.Artifact],
        dataset_root: str,
        dataset: dsl.Output[dsl.Dataset],
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Writes the pending manifest. It is no dataset before validate-alignment has passed."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "assemble-manifest"],
            args=[
                *(word for of_shard in inventories for word in ("--inventory", of_shard.path)),
                *("--split", split.path),
                *("--root", dataset_root),
                *("--executor-input", "{{$}}"),
            ],
        )

    return assemble_manifest


assemble_manifest = assemble_manifest_of(DEFAULT_SHARDS)
