"""Traces, step 2: a selection of the store → the manifest of a dataset.

In: the store; filter, strategy, limit. Out: the manifest, which lists the traces in order.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-build-traces:0.1.0"


@dsl.container_component
def build_traces(
    store: dsl.Input[dsl.Artifact],
    dataset_name: str,
    dataset_version: str,
    filters: str,
    limit: int,
    strategy: str,
    seed: str,
    reproducible: str,
    manifest: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Selects traces and freezes the selection."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "build-traces"],
        args=[
            *("--store", store.path),
            *("--manifest", manifest.path),
            *("--name", dataset_name),
            *("--version", dataset_version),
            *("--filters", filters),
            *("--limit", limit),
            *("--strategy", strategy),
            *("--seed", seed),
            *("--reproducible", reproducible),
            *("--executor-input", "{{$}}"),
        ],
    )
