"""Data of others → source folders that Harmony datasets are built from.

synth            raw SYNTH Parquet → `synth_harmony_v1`
raw_files        which raw files hold the rows of one shard
convert_shard    raw SYNTH → one shard: a step of the pipeline
assemble_source  inventories of all shards → the source's manifest: the step after it
rendered         rendered text of Harmony → messages, by openai-harmony
conversion       records → rows of a shard, without files
in_order         records converted in their order, here or by workers
chat             chat data of any form → `conversations_v1`
preview          a converted conversation as a build makes documents of it
"""
