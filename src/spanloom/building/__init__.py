"""The machine that makes datasets; a family gives what is its own, in its `recipe.py`.

recipe    what a family gives: how rows become documents
options   how a build runs, alike in all families
kept      the rows of a part that become a document each
ordered   jobs done by workers, results in order
request   a requested dataset: its identity, and what it is made of
make      a dataset on one machine: claim the root, make, validate, replace
validating  validation in a process of its own, which loads its libraries meanwhile
steps     what containers run: one shard; the manifest of all shards
shards/   the rows of shards → parts → files
preflight/  checks before the tasks of a pipeline start
parts/    parts on disk, and at a work place between steps
assembly  inventories of shards → the pending manifest
disk      will it fit?
conclude  the report of a validation, and the manifest
"""
