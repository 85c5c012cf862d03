"""What every token dataset root has, whatever its family.

manifest      what a dataset is made of, and the mark that it is one: the type, the schema, reading and writing
defaults      the defaults of the commands that all families share
root/         the files of a root: names, inventory, lock, replacing, places
rows/         the row table: one row a sequence
split_writer  one split of one shard: its arrays and its row table

family        what the shared commands ask of a family: `DatasetFamily`
folder        what they ask of data that is no token dataset: `DataFolder`
validate/     every file, token and label checked
statistics    counts by split, shard and the columns of the family
facts         everything a report says, as plain values

document      a document as the views are given it
inspect       documents picked and made ready to look at
export/       Parquet for other trainers
plan/         which documents make up each sample of training
blend         which prefixes Megatron trains on, with their weights
fetch         a dataset from a bucket to this machine
"""
