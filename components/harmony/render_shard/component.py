"""Step 2, once per shard: conversations → tokens with spans.

In: one Parquet shard of the source (a URI, staged by the step itself), the tokenizer. Out: the rendered shard and its
ids, published at the work place by the step itself, and their manifest.
An option that is an empty string is left out, so the step's own default applies.
"""

from functools import partial

from components.of_task import component_of

render_shard = component_of("harmony.convert.task_list", "render-shard")
OTHERS = (partial(component_of, "harmony.chat_task_list", "render-shard"),)
"""The component for conversations of harmony_chat, with the options of how they are cut."""
