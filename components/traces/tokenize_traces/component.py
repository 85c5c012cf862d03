"""Traces, step 5, with a tokenizer: a dataset → tokens, loss mask and spans under the root.

In: the store, the manifest, the URI of a tokenizer.json. Out: the arrays, published create-only at `dataset_root` by
the step itself with a pending manifest; the tokenizer, for validation.
"""

from functools import partial

from components.of_task import component_of

tokenize_traces = component_of(
    "traces.task_list", "tokenize-traces", outputs=("dataset", "metrics"), names={"--control-tokens": "control_tokens"}
)
OTHERS = (
    partial(component_of, "traces.task_list:BY_SHARD", "tokenize-traces", names={"--control-tokens": "control_tokens"}),
)
"""The component for one shard."""
