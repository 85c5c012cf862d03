"""Traces, step 1: records in a bucket → a store in one file.

In: the URI of a file or of a folder of files, in any form that `spanloom traces ingest` reads. Out: the store (SQLite);
the numbers of lines that are not traces.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-ingest-traces:0.1.0"


@dsl.container_component
def ingest_traces(
    traces_uri: str,
    source_name: str,
    ids: str,
    strict: str,
    created_at: str,
    map: str,
    max_step_characters: int,
    store: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Makes the store; lines that are not traces are counted, or with `strict` stop the task."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "ingest-traces"],
        args=[
            *("--source", traces_uri),
            *("--store", store.path),
            *("--source-name", source_name),
            *("--ids", ids),
            *("--strict", strict),
            *("--created-at", created_at),
            *("--map", map),
            *("--max-step-characters", max_step_characters),
            *("--executor-input", "{{$}}"),
        ],
    )
