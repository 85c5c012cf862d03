"""Is what is on the disk what it must be?

dataset           every file, token and label of a dataset
by_shard          the same in two steps: one shard where its files are, then what is global
content           the `content` of a manifest checked against itself
json_tokenizer    the tokenizer.json that a dataset carries
disk_documents    runs of documents for the checks of a family
row_ids           how many rows repeat an id
placed_documents  documents by the source row that each was made of
"""
