"""Validates datasets on disk.

dataset           every file, token and label of a dataset
processes         the checks of shards, in several processes
checks            the checks of files, documents and source
by_shard          the same in two steps: each shard where its files are, then the global checks
content           checks that the `content` of a manifest is consistent
json_tokenizer    the tokenizer.json of a dataset
disk_documents    ranges of documents for the checks of a family
copies            documents of a shard with the same tokens
row_ids           source rows, and ids that repeat
source            the frame of comparing a dataset with its source
placed_documents  documents by their source row
"""
