"""Before the pipeline, once per shard: raw SYNTH Parquet → one shard of a `synth_harmony_v1` source.

In: the URI of a Parquet file or of a folder of them; only files with rows of this shard are staged. Out: the
shard at `source_uri`, published by the step itself, and its inventory.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-convert-shard:0.1.0"


@dsl.container_component
def convert_shard(
    shard: int,
    shards: int,
    raw_uri: str,
    source_uri: str,
    dataset_name: str,
    inventory: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Converts one shard of raw SYNTH; rows without query, reasoning or answer are counted and skipped."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "convert-shard"],
        args=[
            *("--shard", shard),
            *("--shards", shards),
            *("--raw", raw_uri),
            *("--out", source_uri),
            *("--dataset", dataset_name),
            *("--inventory", inventory.path),
            *("--executor-input", "{{$}}"),
        ],
    )
