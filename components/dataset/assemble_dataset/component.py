"""After a task for each shard: one pending manifest of all shards, and the search for repeated ids.

In: the manifest of parts and the inventory of each shard, one input each. Out: manifest.pending.json at `dataset_root`,
and a small artifact that points there. It is no dataset before assemble-validation has passed.
"""

from functools import partial

from components.of_task import component_of

assemble_dataset_of = partial(
    component_of,
    "models.task_list:BY_SHARD",
    "assemble-dataset",
    outputs=("dataset", "metrics"),
)
assemble_dataset = assemble_dataset_of()
OTHERS = (partial(component_of, "chat.task_list:BY_SHARD", "assemble-dataset", outputs=("dataset", "metrics")),)
"""The component for packed chat, which has no ids that are compared."""
