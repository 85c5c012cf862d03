"""Step 6, once per shard: validates the published files of the shard.

In: the dataset at `dataset_root`, of which the manifest and this shard are read, and the shard's source. Out: a report
and digests of its ids and tokens, for assemble-validation. Findings fail the task.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-validate-shard:0.1.0"


@dsl.container_component
def validate_shard(
    shard: int,
    dataset: dsl.Input[dsl.Dataset],
    dataset_root: str,
    source_uri: str,
    tokenizer: dsl.Input[dsl.Artifact],
    deep: int,
    report: dsl.Output[dsl.Artifact],
    digests: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Validates one shard; `dataset` orders it after assemble-manifest."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "validate-shard"],
        args=[
            *("--shard", shard),
            *("--root", dataset_root),
            *("--source", source_uri),
            *("--tokenizer", tokenizer.path),
            *("--deep", deep),
            *("--report", report.path),
            *("--digests", digests.path),
            *("--executor-input", "{{$}}"),
        ],
    )
