"""External data → the source folders of Harmony datasets.

task_list.toml  the pipeline of raw SYNTH as a list of tasks
synth            raw SYNTH Parquet → `synth_harmony_v1`
raw_files        the raw files with the rows of one shard
convert_shard    raw SYNTH → one shard: a step of the pipeline
assemble_source  inventories of all shards → the source's manifest: the step after it
rendered         rendered Harmony text → messages, by openai-harmony
conversion       records → rows of a shard, without files
in_order         records converted in order, in this process or by workers
chat_input       the files of chat data, their form, their records in order
chat             chat data of any form → `conversations_v1`
preview          the documents that a build would make of a converted conversation
"""
