"""The row table of a shard.

table   `shard_NN_rows.parquet`, written and read
places  where each source row went: into a split, or rejected
"""
