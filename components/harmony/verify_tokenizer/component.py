"""Step 1: checks that the tokenizer asset is the pinned file.

In: a URI, or nothing for the asset in the image. Out: the verified asset, and a report of the checks.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-verify-tokenizer:0.1.0"


@dsl.container_component
def verify_tokenizer(
    tokenizer_uri: str,
    tokenizer: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.Artifact],
) -> dsl.ContainerSpec:
    """Verifies the tokenizer asset by its sha256 and loads it."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "verify-tokenizer"],
        args=[
            *("--tokenizer", tokenizer_uri),
            *("--asset", tokenizer.path),
            *("--report", report.path),
            *("--executor-input", "{{$}}"),
        ],
    )
