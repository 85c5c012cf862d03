"""A source folder: Parquet shards, one whole conversation a row, and a manifest.

format     the definition of a folder: files, columns, rules for its rows
manifest   the columns and the manifest of `harmony_conversations_v1`
writer     one shard, written row by row
folder     a folder opened, checked against its manifest, read in batches
places     a folder at a URI, copied to this machine
structure  one row → a checked conversation, and the span of each message
caps       how many rows of each shard a capped run reads
rejects    reasons to refuse a row, and the allowed number of refused rows
"""
