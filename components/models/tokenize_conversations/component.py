"""Any model, the step before validation: conversations → tokens, loss mask and spans under the root.

In: the URIs of a source folder and of a model's folder. Out: the dataset's files and manifest.pending.json, published
create-only at `dataset_root` by the step itself; a small artifact that points there; the model's tokenizer.json. For an
empty parameter the step's default applies.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-tokenize-conversations:0.1.0"


@dsl.container_component
def tokenize_conversations(
    source_uri: str,
    model_uri: str,
    dataset_root: str,
    thinking: str,
    inline_think: str,
    boundary: str,
    stops: str,
    date: str,
    variables: str,
    train: str,
    emission: str,
    control_texts: str,
    valid_fraction: float,
    max_rows: str,
    max_rows_per_shard: str,
    max_rejects: str,
    on_duplicate: str,
    workers: str,
    dataset: dsl.Output[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Proves conversations for a model; validate-alignment promotes the manifest of the result."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "tokenize-conversations"],
        args=[
            *("--source", source_uri),
            *("--model", model_uri),
            *("--root", dataset_root),
            *("--asset", tokenizer.path),
            *("--thinking", thinking),
            *("--inline-think", inline_think),
            *("--boundary", boundary),
            *("--stops", stops),
            *("--date", date),
            *("--variables", variables),
            *("--train", train),
            *("--emission", emission),
            *("--control-texts", control_texts),
            *("--valid-fraction", valid_fraction),
            *("--max-rows", max_rows),
            *("--max-rows-per-shard", max_rows_per_shard),
            *("--max-rejects", max_rejects),
            *("--on-duplicate", on_duplicate),
            *("--workers", workers),
            *("--executor-input", "{{$}}"),
        ],
    )
