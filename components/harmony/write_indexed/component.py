"""Step 4, once per shard: tokens, loss mask and span → Megatron IndexedDatasets under the dataset root.

In: the manifest of one rendered shard. A document's id decides its split. Out: the shard's files, published
create-only at `dataset_root` by the step itself (they are too large for an artifact), and their inventory.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-write-indexed:0.1.0"


@dsl.container_component
def write_indexed(
    rendered: dsl.Input[dsl.Artifact],
    valid_fraction: float,
    dataset_root: str,
    inventory: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Writes one shard of the dataset."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "write-indexed"],
        args=[
            *("--rendered", rendered.path),
            *("--valid-fraction", valid_fraction),
            *("--root", dataset_root),
            *("--inventory", inventory.path),
            *("--executor-input", "{{$}}"),
        ],
    )
