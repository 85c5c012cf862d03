"""Chess, step 2: one pending manifest from the inventories of all shards.

In: the inventories, one input each. Out: manifest.pending.json at `dataset_root`, and a small artifact that points
there.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS, each, with_inputs

IMAGE = "ghcr.io/spanloom/spanloom-assemble-chess:0.1.0"


def assemble_chess_of(shards: int) -> Any:
    """The component for this number of shards."""

    @dsl.container_component
    @with_inputs(each("inventory", shards), dsl.Input[dsl.Artifact])
    def assemble_chess(
        inventories: Sequence[dsl.Artifact],
        dataset_root: str,
        dataset: dsl.Output[dsl.Dataset],
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Writes the pending manifest. These are no prepared games before validate-chess has passed."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "assemble-chess"],
            args=[
                *(word for of_shard in inventories for word in ("--inventory", of_shard.path)),
                *("--root", dataset_root),
                *("--executor-input", "{{$}}"),
            ],
        )

    return assemble_chess


assemble_chess = assemble_chess_of(DEFAULT_SHARDS)
