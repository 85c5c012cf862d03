"""Chess, step 1, once per shard: its share of the Parquet files → memory-mapped arrays under the root.

In: the URIs of a folder of games and of one of thinking rows; one of them may be empty. Out: the arrays, published
create-only at `dataset_root` by the step itself, and the inventory, with the result for each file.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-prepare-chess:0.1.0"


@dsl.container_component
def prepare_chess(
    shard: int,
    games_uri: str,
    thinking_uri: str,
    dataset_root: str,
    shards: int,
    valid_fraction: float,
    on_error: str,
    inventory: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Prepares one shard's files; a bad game is set aside and counted."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "prepare-chess"],
        args=[
            *("--shard", shard),
            *("--games", games_uri),
            *("--thinking", thinking_uri),
            *("--root", dataset_root),
            *("--shards", shards),
            *("--valid-fraction", valid_fraction),
            *("--on-error", on_error),
            *("--inventory", inventory.path),
            *("--executor-input", "{{$}}"),
        ],
    )
