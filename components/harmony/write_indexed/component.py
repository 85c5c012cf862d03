"""Step 4, once per shard: tokens, loss mask and span → Megatron IndexedDatasets under the dataset root.

In: the manifest of one rendered shard. A document's id decides its split. Out: the shard's files, published
create-only at `dataset_root` by the step itself (they are too large for an artifact), and their inventory.
"""

from components.of_task import component_of

write_indexed = component_of("harmony.convert.task_list", "write-indexed")
