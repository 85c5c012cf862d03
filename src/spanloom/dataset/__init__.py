"""Token datasets of every family: their files, and the code that all families share.

manifest      what a dataset is made of, and the mark that it is finished: the type, the schema, reading and writing
marker        the file that marks a folder beside a dataset as finished
defaults      the defaults of the commands that all families share
root/         the files of a root: names, inventory, lock, replacement, local and remote roots
rows/         the row table: one row a sequence
split_writer  one split of one shard: its arrays and its row table

family        the interface of a family for the shared commands: `DatasetFamily`
folder        the interface of data that is not a token dataset: `DataFolder`
validate/     checks of every file, token and label
statistics    counts by split, shard and the columns of the family
facts         the content of a report, as plain values

document      a document in the form that the views show
inspect       selects documents and prepares them for display
export/       Parquet for other trainers
plan/         which documents make up each training sample
blend         the prefixes that Megatron trains on, with their weights
fetch         a dataset from a bucket to this machine
"""
