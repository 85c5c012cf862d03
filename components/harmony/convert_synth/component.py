"""Before the pipeline: raw SYNTH Parquet → `synth_harmony_v1` shards.

In: the URI of a Parquet file or of a folder of them. Out: four shards and their manifest at `source_uri`.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-convert-synth:0.1.0"


@dsl.container_component
def convert_synth(raw_uri: str, source_uri: str, dataset_name: str) -> dsl.ContainerSpec:
    """Converts raw SYNTH; rows without query, reasoning or answer are counted and skipped."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "convert-synth"],
        args=[*("--raw", raw_uri), *("--out", source_uri), *("--dataset", dataset_name)],
    )
