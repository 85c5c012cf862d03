"""A dataset as Parquet for other trainers.

form         the forms of an export: their columns and meanings
bridge_rows  documents → rows of Megatron-Bridge's packed Parquet
parquet      the files of an export
"""
