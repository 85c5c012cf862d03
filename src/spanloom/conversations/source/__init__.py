"""A source folder: Parquet shards, one whole conversation a row, and a manifest.

format     what a folder is, as values: files, columns, rules for its rows
manifest   the columns and the manifest of `harmony_conversations_v1`
writer     one shard, written row by row
folder     a folder opened, checked against its manifest, read in batches
places     the same at a URI, brought to this machine
structure  one row → a checked conversation, and the span of each message
caps       how many rows of each shard a capped run reads
rejects    why a row is refused, and how many refusals a build may take
"""
