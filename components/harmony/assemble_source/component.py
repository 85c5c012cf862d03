"""Before the pipeline: makes a source of the shards that convert-shard wrote.

In: their inventories, one input each. Out: manifest.json beside the shards at `source_uri`.
"""

from functools import partial

from components.of_task import component_of

assemble_source_of = partial(component_of, "harmony.convert.task_list", "assemble-source")
assemble_source = assemble_source_of()
