"""Step 6: validates the published dataset. Only then is manifest.json written.

In: the dataset at `dataset_root`, the source for the rows that are rendered again. Out: the validation
report as JSON and HTML. Findings fail the run.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-validate-alignment:0.1.0"


@dsl.container_component
def validate_alignment(
    dataset: dsl.Input[dsl.Dataset],
    dataset_root: str,
    source_uri: str,
    tokenizer: dsl.Input[dsl.Artifact],
    deep: int,
    report: dsl.Output[dsl.Artifact],
    html: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Validates the dataset and promotes its manifest; `dataset` orders it after assemble-manifest."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "validate-alignment"],
        args=[
            *("--root", dataset_root),
            *("--source", source_uri),
            *("--tokenizer", tokenizer.path),
            *("--deep", deep),
            *("--report", report.path),
            *("--html", html.path),
            *("--executor-input", "{{$}}"),
        ],
    )
