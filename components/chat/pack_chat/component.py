"""Packed chat, step 2: transcripts → blocks under the dataset root.

In: the URI of a file or of a folder of transcripts. Out: the dataset's files and manifest.pending.json, published
create-only at `dataset_root` by the step itself; a small artifact that points there; and a copy of the tokenizer, with
which validation packs again. If the tokenizer is an empty string, the asset in the image is used.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-pack-chat:0.1.0"


@dsl.container_component
def pack_chat(
    transcripts_uri: str,
    dataset_root: str,
    tokenizer_uri: str,
    block_size: int,
    post_training: str,
    strict_user: str,
    keep_lossless: str,
    pad_tail: str,
    shards: int,
    records: str,
    workers: str,
    dataset: dsl.Output[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Packs transcripts. The result is not a dataset until validate-alignment has passed."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "pack-chat"],
        args=[
            *("--transcripts", transcripts_uri),
            *("--root", dataset_root),
            *("--tokenizer", tokenizer_uri),
            *("--asset", tokenizer.path),
            *("--block-size", block_size),
            *("--post-training", post_training),
            *("--strict-user", strict_user),
            *("--keep-lossless", keep_lossless),
            *("--pad-tail", pad_tail),
            *("--shards", shards),
            *("--records", records),
            *("--workers", workers),
            *("--executor-input", "{{$}}"),
        ],
    )
