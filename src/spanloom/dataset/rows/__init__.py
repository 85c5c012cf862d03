"""The row table of a shard.

table    `shard_NN_rows.parquet`, written and read
places   where each source row went: into a split, or rejected
digests  which digests of ids occur more than once, in bounded memory
"""
