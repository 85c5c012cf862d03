"""Step 7: joins the reports of all shards and does the global checks. Only then is manifest.json written.

In: the reports and digests of validate-shard, one input each; the dataset at `dataset_root`, of which the row tables
and the listing are read; the manifest of the source. Out: the report as JSON and HTML. Findings fail the run.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS, each, with_inputs

IMAGE = "ghcr.io/spanloom/spanloom-assemble-validation:0.1.0"


def assemble_validation_of(shards: int) -> Any:
    """The component for this number of shards."""

    @dsl.container_component
    @with_inputs([*each("report", shards), *each("digests", shards)], dsl.Input[dsl.Artifact])
    def assemble_validation(
        of_shards: Sequence[dsl.Artifact],
        dataset_root: str,
        source_uri: str,
        report: dsl.Output[dsl.Artifact],
        html: dsl.Output[dsl.HTML],
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Joins the reports of the shards and promotes the manifest."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "assemble-validation"],
            args=[
                *(word for of_shard in of_shards[:shards] for word in ("--shard-report", of_shard.path)),
                *(word for of_shard in of_shards[shards:] for word in ("--shard-digests", of_shard.path)),
                *("--root", dataset_root),
                *("--source", source_uri),
                *("--report", report.path),
                *("--html", html.path),
                *("--executor-input", "{{$}}"),
            ],
        )

    return assemble_validation


assemble_validation = assemble_validation_of(DEFAULT_SHARDS)
