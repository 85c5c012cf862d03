"""A dataset as files for other trainers: Parquet, or a folder of `datasets`.

form         the forms of an export: their columns and meanings
bridge_rows  documents → rows of Megatron-Bridge's packed Parquet
disk_folder  the files of a folder of `datasets`' `save_to_disk`
parquet      the files of an export
"""
