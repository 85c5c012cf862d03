"""Step 5: one pending manifest from the inventories of all shards.

In: the inventories, one input each, and the split. Out: manifest.pending.json at `dataset_root`, and a small artifact
that points there. The dataset itself is not an artifact: the launcher refuses an artifact whose URI is outside the
pipeline root's bucket, and would download a whole dataset into each step that takes it.
"""

from functools import partial

from components.of_task import component_of

assemble_manifest_of = partial(
    component_of, "harmony.convert.task_list", "assemble-manifest", outputs=("dataset", "metrics")
)
assemble_manifest = assemble_manifest_of()
