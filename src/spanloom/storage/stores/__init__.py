"""Object stores.

objects    the description of an object, the protocol `Store`, and code that both stores share
retry      retries after dropped connections and 503s, up to a deadline
in_order   several pieces of one object transferred at once, finished in order
tls        a store's address and certificate: errors that a retry cannot fix
gcs        `gs://`: find, list, read, create, delete, and its errors in plain words
s3_client  the client of `s3://`, and why it cannot be made
s3         `s3://`: find, list, read, create, delete
hub        `hf://`: find, list and read; one commit for an upload
"""
