"""Step 6, once per shard: validates the published files of the shard.

In: the dataset at `dataset_root`, of which the manifest and this shard are read, and the shard's source. Out: a report
and digests of its ids and tokens, for assemble-validation. Findings fail the task.
"""

from components.of_task import component_of

validate_shard = component_of("harmony.task_list", "validate-shard")
