"""Traces, step 4: validates the exports.

In: the three exports, the manifest. Out: the report as JSON. Errors fail the run.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-validate-traces:0.1.0"


@dsl.container_component
def validate_traces(
    trace: dsl.Input[dsl.Artifact],
    tunix_sft: dsl.Input[dsl.Artifact],
    training_example: dsl.Input[dsl.Artifact],
    manifest: dsl.Input[dsl.Artifact],
    report: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Checks each export against its rules and the manifest."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "validate-traces"],
        args=[
            *("--trace", trace.path),
            *("--tunix-sft", tunix_sft.path),
            *("--training-example", training_example.path),
            *("--manifest", manifest.path),
            *("--report", report.path),
            *("--executor-input", "{{$}}"),
        ],
    )
