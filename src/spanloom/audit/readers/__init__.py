"""Token datasets of others, and ours, as `Documents`: streamed, whatever container they are in.

unit     a piece of a dataset that one worker reads
columns  columns of a table → documents: masks of all names, packed rows, padding
tables   Parquet files and folders of `save_to_disk`
indexed  `.bin` and `.idx` with a mask beside; roots of ours
opened   a place → its container and units
"""
