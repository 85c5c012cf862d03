"""Tool calls, step 1, once per source: its files → samples under `samples_uri`.

In: the URI of a file or folder of the source; if it is empty, the task does nothing. Out: files of samples, published
create-only by the step itself, and counts of written and rejected records.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-convert-toolcalls:0.1.0"


@dsl.container_component
def convert_toolcalls(
    source: str,
    source_uri: str,
    completions_uri: str,
    samples_uri: str,
    system: str,
    turns: str,
    report: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Converts one source; invalid records are set aside under rejects/ and counted."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "convert-toolcalls"],
        args=[
            *("--from", source),
            *("--input", source_uri),
            *("--completions", completions_uri),
            *("--out", samples_uri),
            *("--system", system),
            *("--turns", turns),
            *("--report", report.path),
            *("--executor-input", "{{$}}"),
        ],
    )
