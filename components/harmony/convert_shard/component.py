"""Before the pipeline, once per shard: raw SYNTH Parquet → one shard of a `synth_harmony_v1` source.

In: the URI of a Parquet file or of a folder of them; only files with rows of this shard are staged. Out: the
shard at `source_uri`, published by the step itself, and its inventory.
"""

from components.of_task import component_of

convert_shard = component_of("harmony.convert.task_list", "convert-shard")
