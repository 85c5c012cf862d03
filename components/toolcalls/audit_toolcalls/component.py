"""Tool calls, step 4: renders samples with the chat template that will be used for tokenization.

In: the merged file, the template. Out: the audit. Errors fail the run: a mask would be missing or wrong.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-audit-toolcalls:0.1.0"


@dsl.container_component
def audit_toolcalls(
    merged_uri: str,
    template_uri: str,
    limit: int,
    report: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Audits the first `limit` samples, or all."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "audit-toolcalls"],
        args=[
            *("--data", merged_uri),
            *("--template", template_uri),
            *("--limit", limit),
            *("--report", report.path),
            *("--executor-input", "{{$}}"),
        ],
    )
