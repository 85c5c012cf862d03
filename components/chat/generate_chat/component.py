"""Packed chat, step 1: conversations → transcripts that fit the context, and a report of the others.

In: the URI of a file or of a folder of conversations. Out: one file of transcripts at `transcripts_uri`, published by
the step itself, and the report. If the tokenizer is an empty string, the asset in the image is used.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-generate-chat:0.1.0"


@dsl.container_component
def generate_chat(
    conversations_uri: str,
    transcripts_uri: str,
    tokenizer_uri: str,
    context_len: int,
    drop: str,
    think: str,
    on_error: str,
    report: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Generates transcripts; what does not fit is counted, what a transcript cannot hold is refused or dropped."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "generate-chat"],
        args=[
            *("--source", conversations_uri),
            *("--out", transcripts_uri),
            *("--tokenizer", tokenizer_uri),
            *("--context-len", context_len),
            *("--drop", drop),
            *("--think", think),
            *("--on-error", on_error),
            *("--report", report.path),
            *("--executor-input", "{{$}}"),
        ],
    )
