"""Step 1: is the tokenizer asset the pinned file?

In: a URI, or nothing for the asset that the image carries. Out: the verified asset, and what was verified.
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
