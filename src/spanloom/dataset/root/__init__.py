"""The files of a dataset root.

layout       where they are: the one place that spells their names
opened       the manifest of a finished dataset, read once a process
shard_files  those of one split of one shard, checked against the manifest
inventory    all of them checked against the manifest; what shards add up to
lock         a root held by one build at a time, and whose build it is
made         a root that is made in one go
replace      one dataset replaced by another
places       a root at a URI: staged, published
"""
