"""Traces, step 5, with a tokenizer: a dataset → tokens, loss mask and spans under the root.

In: the store, the manifest, the URI of a tokenizer.json. Out: the arrays, published create-only at `dataset_root` by
the step itself with a pending manifest; the tokenizer, for validation.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-tokenize-traces:0.1.0"


@dsl.container_component
def tokenize_traces(
    store: dsl.Input[dsl.Artifact],
    manifest: dsl.Input[dsl.Artifact],
    tokenizer_uri: str,
    dataset_root: str,
    form: str,
    eod: str,
    control_tokens: str,
    valid_fraction: float,
    tokenizer: dsl.Output[dsl.Artifact],
    dataset: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Tokenises a dataset of traces; validate-alignment promotes its manifest."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "tokenize-traces"],
        args=[
            *("--store", store.path),
            *("--manifest", manifest.path),
            *("--tokenizer", tokenizer_uri),
            *("--root", dataset_root),
            *("--asset", tokenizer.path),
            *("--format", form),
            *("--eod", eod),
            *("--control-tokens", control_tokens),
            *("--valid-fraction", valid_fraction),
            *("--executor-input", "{{$}}"),
        ],
    )
