"""Files of records: found, opened, read record by record, each with its place; the same for every family.

files        which files a place means
json_lines   JSON Lines: split at LF, compressed or not, with line numbers
strict_json  JSON without repeated keys, fast
parquet      Parquet: batches of rows, values that are not UTF-8 told apart
staging      the same files where they lie in an object store
"""
