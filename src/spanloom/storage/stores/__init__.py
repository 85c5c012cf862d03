"""Object stores.

objects   what a store says of an object, and what the two stores have in common
retry     going on after dropped connections and 503s, up to a deadline
in_order  pieces of one object under way at once, finished in order
tls       the address and the certificate of a store: what no later try makes right
gcs       `gs://`: find, look below, read, create, delete, and its errors in plain words
s3        `s3://`: the same
"""
