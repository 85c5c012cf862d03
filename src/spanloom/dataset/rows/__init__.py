"""The row table of a shard.

table    writes and reads `shard_NN_rows.parquet`
places   where each source row went: into a split, or rejected
digests  finds digests that occur more than once, in bounded memory
"""
