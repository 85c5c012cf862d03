"""A dataset as Parquet for other trainers.

form         the forms: their columns and what they mean
bridge_rows  documents → rows of Megatron-Bridge's packed Parquet
parquet      the files of an export
"""
