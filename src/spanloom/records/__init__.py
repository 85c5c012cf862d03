"""Files of records: found, opened, read record by record, each with its place; the same for every family.

record_files  files of any kind: found, recognised, read record by record
files         the files at a path; the place of a record
unpacked      plain or compressed files, as a stream or as a file
json_lines    JSON Lines: split at LF, compressed or not, with line numbers
strict_json   JSON without repeated keys, fast
scalars       type checks of one value: boolean, integer, number
json_array    JSON documents: an array of records, streamed, or one record
delimited     CSV and TSV: rows under a header
arrow         Arrow IPC files, and folders of `save_to_disk`
json_values   columns and values of Parquet and Arrow as JSON
parquet       Parquet: batches of rows, values that are not UTF-8 separated
staging       the same files from an object store
"""
