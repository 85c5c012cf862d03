"""Tool calls, step 3: both splits → one file without duplicates, in a seeded order.

In: the folder that the converters published into. Out: the merged file, published create-only by the step itself, and
its statistics. Gates on the ratio and on adversarial-safe samples stop it before anything is written.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-merge-toolcalls:0.1.0"


@dsl.container_component
def merge_toolcalls(
    harmful_uri: str,
    retain_uri: str,
    merged_uri: str,
    dr_ratio: float,
    seed: int,
    min_ratio: float,
    min_adversarial_safe: int,
    stats: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Merges all files of both splits."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "merge-toolcalls"],
        args=[
            *("--harmful-dir", harmful_uri),
            *("--retain-dir", retain_uri),
            *("--output", merged_uri),
            *("--dr-ratio", dr_ratio),
            *("--seed", seed),
            *("--min-ratio", min_ratio),
            *("--min-adversarial-safe", min_adversarial_safe),
            *("--stats", stats.path),
            *("--executor-input", "{{$}}"),
        ],
    )
