"""Tool calls, step 5, once per split: its samples → tokens and loss mask at their own dataset root.

In: the merged file, the template, the tokenizer. Out: the files, published create-only at `dataset_root` by the step
itself, with `manifest.pending.json`; the tokenizer, for validate-alignment. Harmful samples never share a root.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-tokenize-toolcalls:0.1.0"


@dsl.container_component
def tokenize_toolcalls(
    split: str,
    merged_uri: str,
    template_uri: str,
    tokenizer_uri: str,
    dataset_root: str,
    eod: str,
    max_length: int,
    valid_fraction: float,
    spans: str,
    control_texts: str,
    dataset: dsl.Output[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Tokenizes the samples of one split; those without a provable mask are counted."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "tokenize-toolcalls"],
        args=[
            *("--split", split),
            *("--data", merged_uri),
            *("--template", template_uri),
            *("--tokenizer", tokenizer_uri),
            *("--root", dataset_root),
            *("--eod", eod),
            *("--max-length", max_length),
            *("--valid-fraction", valid_fraction),
            *("--spans", spans),
            *("--control-texts", control_texts),
            *("--tokenizer-out", tokenizer.path),
            *("--executor-input", "{{$}}"),
        ],
    )
