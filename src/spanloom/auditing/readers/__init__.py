"""Token datasets of any supported container as `Documents`, streamed.

unit     a part of a dataset that one worker reads
columns  columns of a table → documents: masks of all names, packed rows, padding
tables   Parquet files and folders of `save_to_disk`
indexed  `.bin` and `.idx` with the files of the mask; Spanloom's datasets
opened   a place → its container and units
"""
