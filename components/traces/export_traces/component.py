"""Traces, step 3, once per format: a dataset → one export for trainers.

In: the store, the manifest, a format. Out: JSON Lines.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-export-traces:0.1.0"


@dsl.container_component
def export_traces(
    store: dsl.Input[dsl.Artifact],
    manifest: dsl.Input[dsl.Artifact],
    form: str,
    control_tokens: str,
    protect_metadata: str,
    export: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Writes one export."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "export-traces"],
        args=[
            *("--store", store.path),
            *("--manifest", manifest.path),
            *("--format", form),
            *("--control-tokens", control_tokens),
            *("--protect-metadata", protect_metadata),
            *("--out", export.path),
            *("--executor-input", "{{$}}"),
        ],
    )
