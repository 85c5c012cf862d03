"""Step 3: the one global decision. Which rows are valid, and does any id stand twice?

In: the ids of the four shards. Out: the split. The inputs have a name each: a list of artifacts can only be passed out
of a ParallelFor, whose tasks Kubeflow does not retry.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-assemble-split:0.1.0"


@dsl.container_component
def assemble_split(
    ids_00: dsl.Input[dsl.Dataset],
    ids_01: dsl.Input[dsl.Dataset],
    ids_02: dsl.Input[dsl.Dataset],
    ids_03: dsl.Input[dsl.Dataset],
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
            *("--ids", ids_00.path),
            *("--ids", ids_01.path),
            *("--ids", ids_02.path),
            *("--ids", ids_03.path),
            *("--split", split.path),
            *("--valid-fraction", valid_fraction),
            *("--on-duplicate", on_duplicate),
            *("--executor-input", "{{$}}"),
        ],
    )
