"""The machine that makes datasets; a family gives what is its own, in its `recipe.py`.

recipe     what a family gives: how rows become documents
options    how a build runs, alike in all families
make       a dataset on one machine: claim the root, make, validate, replace
files      all its shards: parts, repeated ids, files
steps      what containers run: one shard; the manifest of all shards
making     rows → parts, made by workers
ordered    jobs done by workers, results in order
parts      the files of parts
packs      many parts in a few large files
work       packs at a work place, for the next steps and the next try
clear      removes what was published at a work place
ids        is any id repeated, and how many documents are valid?
writing    parts → the files of a shard
assembly   inventories of shards → the pending manifest
disk       will it fit?
conclude   the report of a validation, and the manifest
"""
