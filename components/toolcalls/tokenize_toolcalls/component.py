"""Tool calls, step 5, once per split: its samples → tokens and loss mask at their own dataset root.

In: the merged file, the template, the tokenizer. Out: the files, published create-only at `dataset_root` by the step
itself, with `manifest.pending.json`; the tokenizer, for validate-alignment. Harmful samples never share a root.
"""

from functools import partial

from components.of_task import component_of

tokenize_toolcalls = component_of(
    "toolcalls.task_list", "tokenize-toolcalls", outputs=("dataset", "metrics"), names={"--root": "dataset_root"}
)
OTHERS = (
    partial(component_of, "toolcalls.task_list:BY_SHARD", "tokenize-toolcalls", names={"--root": "dataset_root"}),
)
"""The component for one shard."""
