"""The rows of shards → parts → the files of a dataset.

making   rows → parts, made by workers
ids      is any id repeated, and how many documents are valid?
writing  parts → the files of a shard
files    all shards on one machine
reuse    shards of an earlier dataset that are made of the same
"""
