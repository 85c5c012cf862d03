"""Which games are read, and where from.

source    Parquet files → tables of games and rows
prepared  tables as memory-mapped arrays
epochs    which games a shard gives in an epoch, in which order
folders   a folder of either kind → its files
progress  how far a rank has come, and its state
"""
