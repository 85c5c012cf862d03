"""Tool calls, step 2: checks all samples against all rules, and against each other.

In: the folder that the converters published into. Out: the report as JSON and HTML. Errors fail the run.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-validate-toolcalls:0.1.0"


@dsl.container_component
def validate_toolcalls(
    samples_uri: str,
    report: dsl.Output[dsl.Artifact],
    html: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Validates strictly: a system message is required, and any error fails the task."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "validate-toolcalls"],
        args=[
            *("--data-dir", samples_uri),
            *("--report", report.path),
            *("--html", html.path),
            *("--executor-input", "{{$}}"),
        ],
    )
