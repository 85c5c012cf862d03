"""Reading of games: tables, and their order in an epoch.

source    Parquet files → tables of games and thinking rows
tables    the games or thinking rows of a file as arrays, without bad ones
prepared  tables as memory-mapped arrays
epochs    the games of a shard in an epoch, in order
folders   a folder of Parquet files or a root of prepared games → its files
progress  the progress of a rank, and its state
"""
