"""Step 2, once a shard: conversations → tokens with spans.

In: one Parquet shard of the source (a URI, staged by the step itself), the tokenizer. Out: the rendered shard and its
ids, published at the work place by the step itself, and their manifest.
An option that is an empty string is left out, so the step's own default holds.
"""

from typing import Any

from kfp import dsl

from components.of_shards import DEFAULT_SHARDS

IMAGE = "ghcr.io/spanloom/spanloom-render-shard:0.1.0"


def render_shard_of(shards: int) -> Any:
    """The component for a source of so many shards."""

    @dsl.container_component
    def render_shard(
        shard: int,
        source_uri: str,
        tokenizer: dsl.Input[dsl.Artifact],
        renderer: str,
        audit_fraction: float,
        max_rows: str,
        max_rows_per_shard: str,
        max_tokens: str,
        max_rejects: str,
        workers: str,
        work_uri: str,
        dataset_root: str,
        rendered: dsl.Output[dsl.Artifact],
        metrics: dsl.Output[dsl.Metrics],
    ) -> dsl.ContainerSpec:
        """Renders one shard; caps are those of the whole run."""
        return dsl.ContainerSpec(
            image=IMAGE,
            command=["spanloom", "step", "render-shard"],
            args=[
                *("--shard", shard),
                *(() if shards == DEFAULT_SHARDS else ("--shards", str(shards))),
                *("--source", source_uri),
                *("--tokenizer", tokenizer.path),
                *("--renderer", renderer),
                *("--audit-fraction", audit_fraction),
                *("--max-rows", max_rows),
                *("--max-rows-per-shard", max_rows_per_shard),
                *("--max-tokens", max_tokens),
                *("--max-rejects", max_rejects),
                *("--workers", workers),
                *("--work", work_uri),
                *("--root", dataset_root),
                *("--rendered", rendered.path),
                *("--executor-input", "{{$}}"),
            ],
        )

    return render_shard


render_shard = render_shard_of(DEFAULT_SHARDS)
