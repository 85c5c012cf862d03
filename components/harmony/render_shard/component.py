"""Step 2, once per shard: conversations → tokens with spans.

In: one Parquet shard of the source (a URI, staged by the step itself), the tokenizer. Out: the rendered shard and its
ids, published at the work place by the step itself, and their manifest.
An option that is an empty string is left out, so the step's own default applies.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-render-shard:0.1.0"


@dsl.container_component
def render_shard(
    shard: int,
    shards: int,
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
            *("--shards", shards),
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
