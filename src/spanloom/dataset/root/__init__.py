"""The files of a dataset root.

layout       paths and names of all files, defined only here
opened       the manifest of a finished dataset, read once per process
shard_files  the files of one split of one shard, checked against the manifest
inventory    all files checked against the manifest; sums over shards
lock         holds a root for one build at a time, and records which build
made         makes a dataset, or keeps the finished one
replace      replaces one dataset by another
places       a root at a path or URI: staged, published
"""
