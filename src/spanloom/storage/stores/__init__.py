"""Object stores.

objects   what a store says of an object, and what the two stores have in common
retry     going on after dropped connections and 503s, up to a deadline
gcs       `gs://`: find, look below, read, create, delete, and its errors in plain words
s3        `s3://`: the same
"""
